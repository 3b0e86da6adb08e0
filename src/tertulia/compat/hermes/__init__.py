"""Hermes Agent's session API: the modules `config`, `session` and `delivery`."""
