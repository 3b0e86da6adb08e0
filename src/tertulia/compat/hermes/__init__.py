"""Hermes Agent's session API: `config`, `session` and `delivery`, as they are called there."""
