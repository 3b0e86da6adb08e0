"""PostgreSQL: many processes on many machines, one set of conversations."""
