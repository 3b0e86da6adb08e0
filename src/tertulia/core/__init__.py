"""Values and rules. No I/O, no clock, no platform name."""
