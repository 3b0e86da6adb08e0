"""Queues in the database: inbox, outbox and memory flushes."""
