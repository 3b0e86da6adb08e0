"""A run that kills, stops and disconnects nodes while they answer; see `__main__`."""
