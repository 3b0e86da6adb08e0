"""Transcripts: an append-only log of messages, read through revisions."""
