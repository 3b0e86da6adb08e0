"""Exporters: sessions as files for people and for programs."""
