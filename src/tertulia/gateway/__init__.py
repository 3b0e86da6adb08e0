"""From a message to an answer: receive → admit → lane → turn → agent → deliver. See `path.py`."""
