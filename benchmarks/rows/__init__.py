"""One module for each line of the table; each has a `run(stage)` that gives its rows."""
