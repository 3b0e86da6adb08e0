"""Importers: one reader per foreign system, and one writer for all."""
