"""Parse times as other systems write them: naive or aware, ISO 8601 or numbers, valid or not."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from tertulia.core.message import EPOCH

NAIVE = "without a zone"
AWARE = "with a zone"
NUMBER = "as a number"

# A number above the first limit is milliseconds, above the second microseconds. In seconds the
# first limit is the year 5138.
_FIRST_MILLISECONDS = 1e11
_FIRST_MICROSECONDS = 1e14
# A smaller number counts something else, or nothing: in seconds it is a time before the year 2000.
_EARLIEST = 946_684_800
_LATEST = 253_402_300_800  # the year 10000, which `datetime` cannot represent

_MICROSECOND = timedelta(microseconds=1)


class Timestamp(NamedTuple):
    """A time in microseconds since 1970, and the form it was written in."""

    micros: int
    form: str


class TimestampParser:
    """Parses times; a time without a time zone is read in `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._last: tuple[object, Timestamp | None] = (None, None)

    def parse(self, value: object) -> Timestamp | None:
        """Return the time, or None if the value is not one."""
        # All rows of a turn often have the same time, so the last result is cached.
        if type(value) is str and value == self._last[0]:
            return self._last[1]
        timestamp = self._parse(value)
        self._last = (value, timestamp)
        return timestamp

    def micros(self, value: object) -> int | None:
        """Return the time in microseconds since 1970, or None if the value is not a time."""
        timestamp = self.parse(value)
        return None if timestamp is None else timestamp.micros

    def _parse(self, value: object) -> Timestamp | None:
        if isinstance(value, str):
            return self._parse_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _parse_number(value)
        return None

    def _parse_text(self, text: str) -> Timestamp | None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            try:
                return _parse_number(float(text))
            except ValueError:
                return None
        form = AWARE
        if moment.tzinfo is None:
            # A text such as 20260328 is a date; seconds since 1970 have more digits.
            if text.isdigit() and len(text) > 8:
                return _parse_number(float(text))
            moment, form = moment.replace(tzinfo=self.zone), NAIVE
        try:
            return _within_range((moment - EPOCH) // _MICROSECOND, form)
        except OverflowError:
            return None


def time_in_session_id(name: str, zone: tzinfo) -> int | None:
    """Return the time a session id such as `20260328_071143_59532831` begins with, or None."""
    try:
        moment = datetime.strptime(name[:15], "%Y%m%d_%H%M%S").replace(tzinfo=zone)
        timestamp = _within_range((moment - EPOCH) // _MICROSECOND, NAIVE)
    except (ValueError, OverflowError):
        return None
    return None if timestamp is None else timestamp.micros


def _parse_number(value: float) -> Timestamp | None:
    if not _EARLIEST <= value < 1e18:  # also excludes NaN
        return None
    unit = 1_000_000 if value < _FIRST_MILLISECONDS else 1_000 if value < _FIRST_MICROSECONDS else 1
    return _within_range(round(value * unit), NUMBER)


def _within_range(micros: int, form: str) -> Timestamp | None:
    """Return the timestamp, or None if it is before 1970 or `datetime` cannot represent it."""
    return Timestamp(micros, form) if 0 <= micros < _LATEST * 1_000_000 else None
