"""A brake on repeated log lines: what strangers can cause again and again must not fill a disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

LINES: Final = 30  # of one kind in one period; the rest are counted
PERIOD_SECONDS: Final = 60.0
_MAX_KINDS: Final = 1000


class LogBrake(logging.Filter):
    """Lets through a limited number of warnings and errors of one kind in each period.

    The kind of a line is its logger, its level and its text before values are put in. The first
    line of the next period says how many were left out. Lines below a warning always pass: one
    line per turn is what a log is for.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        # The start of the period of each kind, and its lines in that period.
        self._kinds: dict[tuple[str, int, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written; add the number of left out ones to it if any were."""
        if record.levelno < logging.WARNING:
            return True
        kind = record.name, record.levelno, record.msg
        now = self._now()
        started_at, lines = self._kinds.get(kind, (now, 0))
        if now - started_at >= PERIOD_SECONDS:
            left_out = lines - LINES
            started_at, lines = now, 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} similar lines were left out)"
                record.args = ()
        if len(self._kinds) >= _MAX_KINDS and kind not in self._kinds:
            self._kinds.pop(next(iter(self._kinds)))
        self._kinds[kind] = started_at, lines + 1
        return lines < LINES
