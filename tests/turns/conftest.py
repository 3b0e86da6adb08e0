"""The fixtures of tests/records, for the test that is still here."""

from __future__ import annotations

from tests.records.conftest import handles, store

__all__ = ["handles", "store"]
