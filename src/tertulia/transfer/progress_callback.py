"""The call by which an import, export, archive or move reports its progress."""

from __future__ import annotations

from collections.abc import Callable

# Called as `progress(done, total)`: bytes for an import, rows or sessions for the others.
Progress = Callable[[int, int], None]
