"""Sessions: open, find, end and delete them."""
