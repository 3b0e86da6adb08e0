"""The line before a message that says when it was written, and its removal from answers.

A model that reads such lines before each message of a person sometimes begins its own answer with
one. The line is not part of the answer: it is removed before the answer is shown or stored.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Final

from tertulia.core.text.heads import TIME_HEAD

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_BEGINNING: Final = TIME_HEAD.rstrip()
# A line that is longer is not a time.
_LONGEST: Final = 80


def format_local_time(at: datetime, zone: tzinfo) -> str:
    """Return a time for a model: weekday, date, time and offset."""
    local = at.astimezone(zone)
    date_and_time = local.isoformat(" ", "minutes")
    # Not by %a: the name of the day must not depend on the locale of the process.
    return f"{_DAYS[local.weekday()]} {date_and_time[:16]} {date_and_time[16:22]}"


def time_head(at: datetime, zone: tzinfo | None) -> str:
    """Return the line before a message: its local time, or without a zone its time in UTC."""
    time = at.isoformat("T", "seconds") if zone is None else format_local_time(at, zone)
    return f"{TIME_HEAD}{time}]\n"


class TimeHeadFilter:
    """Removes time lines from the beginning of a text that comes in pieces.

    `feed` returns what can be shown so far, and `end` the rest. A text with nothing else in it is
    returned as it is.
    """

    def __init__(self) -> None:
        self._text = ""
        self._pending = ""
        self._is_done = False

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that is no part of a time line."""
        if self._is_done:
            return piece
        self._text += piece
        self._pending = rest = _without_heads(self._text)
        begins = rest.lstrip()
        if not begins or _may_become_head(begins):
            return ""
        self._is_done = True
        return rest

    def end(self) -> str:
        """Return the text that was held back because it could have been a time line."""
        if self._is_done:
            return ""
        self._is_done = True
        return self._pending if self._pending.strip() else self._text


def strip_time_head(text: str) -> str:
    """Return a whole answer without the time lines that it begins with."""
    line_filter = TimeHeadFilter()
    return line_filter.feed(text) + line_filter.end()


def _without_heads(text: str) -> str:
    """Return the text after all complete time lines that it begins with."""
    while (begins := text.lstrip()).startswith(_BEGINNING):
        end = begins.find("]")
        if not 0 < end < _LONGEST or "\n" in begins[:end]:
            break
        text = begins[end + 1 :].lstrip()
    return text


def _may_become_head(begins: str) -> bool:
    if len(begins) < len(_BEGINNING):
        return _BEGINNING.startswith(begins)
    return begins.startswith(_BEGINNING) and len(begins) < _LONGEST and "\n" not in begins
