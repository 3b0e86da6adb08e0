"""Nodes that are killed, stopped and cut off while they answer; see `__main__`."""
