"""SQLite: one file, any number of threads and processes."""
