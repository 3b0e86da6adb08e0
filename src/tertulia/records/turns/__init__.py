"""Turns: enter a session, write under its lease, and leave."""
