"""The brake on log lines: repeated warnings are counted instead of written."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from tertulia.core.text.redact import Redactor
from tertulia.gateway.log_brake import LINES, PERIOD_SECONDS, LogBrake
from tertulia.gateway.logging_setup import configured_logging
from tertulia.gateway.settings import LogSettings
from tertulia.platforms.registry import needs_raw_ids


def record(text: str, *values: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("tertulia.http", level, "", 0, text, values, None)


def test_repeated_warning_is_limited_and_counted() -> None:
    now = [0.0]
    brake = LogBrake(lambda: now[0])
    written = [brake.filter(record("refused %s", number)) for number in range(LINES + 12)]
    assert written == [True] * LINES + [False] * 12
    assert brake.filter(record("another line"))
    now[0] = PERIOD_SECONDS
    line = record("refused %s", 99)
    assert brake.filter(line)
    assert line.getMessage() == "refused 99 (12 similar lines were left out)"
    line = record("refused %s", 100)
    assert brake.filter(line)
    assert line.getMessage() == "refused 100"


def test_line_of_each_turn_is_never_limited() -> None:
    brake = LogBrake(lambda: 0.0)
    assert all(brake.filter(record("turn", level=logging.INFO)) for _ in range(1000))


def test_kinds_of_lines_are_limited() -> None:
    brake = LogBrake(lambda: 0.0)
    assert all(brake.filter(record(f"line {number}")) for number in range(3000))
    assert len(brake._kinds) <= 1000


def test_errors_of_the_event_loop_are_limited(tmp_path: Path) -> None:
    """Without descriptors asyncio logged each failed accept: 110 MB in 40 seconds."""
    path = tmp_path / "log"

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(5000):
            loop.call_exception_handler({"message": "socket.accept() out of system resource"})

    settings = LogSettings(file=str(path))
    with configured_logging(settings, Redactor(b"0" * 32, needs_raw_ids)):
        asyncio.run(fail())
    assert len(path.read_text("utf-8").splitlines()) == LINES
