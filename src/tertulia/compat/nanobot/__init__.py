"""nanobot's session API: `manager`, as it is called there."""
