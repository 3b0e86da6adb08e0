"""Times as other systems wrote them: naive or aware, ISO 8601 or numbers, right or wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from tertulia.core.message import EPOCH

NAIVE = "without a zone"
AWARE = "with a zone"
NUMBER = "as a number"

# Seconds above the first are milliseconds, above the second microseconds: the year 5138.
_MILLISECONDS = 1e11
_MICROSECONDS = 1e14
_LATEST = 253_402_300_800  # the year 10000, which `datetime` cannot tell

_MICROSECOND = timedelta(microseconds=1)


class Timestamp(NamedTuple):
    """A time in microseconds since 1970, and how it was written."""

    micros: int
    form: str


class TimestampParser:
    """Reads times; those without a zone are taken to be in `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._last: tuple[object, Timestamp | None] = (None, None)

    def read(self, value: object) -> Timestamp | None:
        """The moment; None where it cannot be told."""
        # All rows of a turn often have the same one.
        if type(value) is str and value == self._last[0]:
            return self._last[1]
        found = self._read(value)
        self._last = (value, found)
        return found

    def micros(self, value: object) -> int | None:
        found = self.read(value)
        return None if found is None else found.micros

    def _read(self, value: object) -> Timestamp | None:
        if isinstance(value, str):
            return self._text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _number(value)
        return None

    def _text(self, text: str) -> Timestamp | None:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            try:
                return _number(float(text))
            except ValueError:
                return None
        form = AWARE
        if found.tzinfo is None:
            # An id such as 20260328 is a date as well; seconds since 1970 are longer.
            if text.isdigit() and len(text) > 8:
                return _number(float(text))
            found, form = found.replace(tzinfo=self.zone), NAIVE
        try:
            return _within((found - EPOCH) // _MICROSECOND, form)
        except OverflowError:
            return None


def stamp_of(name: str, zone: tzinfo) -> int | None:
    """The time at the head of a session id such as `20260328_071143_59532831`."""
    try:
        found = datetime.strptime(name[:15], "%Y%m%d_%H%M%S").replace(tzinfo=zone)
    except ValueError:
        return None
    return (found.astimezone(UTC) - EPOCH) // _MICROSECOND


def _number(value: float) -> Timestamp | None:
    if not 0 <= value < 1e18:  # also what is no number at all
        return None
    unit = 1_000_000 if value < _MILLISECONDS else 1_000 if value < _MICROSECONDS else 1
    return _within(round(value * unit), NUMBER)


def _within(micros: int, form: str) -> Timestamp | None:
    return Timestamp(micros, form) if 0 <= micros < _LATEST * 1_000_000 else None
