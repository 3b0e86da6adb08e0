"""nanobot's session API: the module `manager`."""
