"""One contract, and the databases that keep it."""
