"""The configuration: its schema, how it is read, and what is built from it."""
