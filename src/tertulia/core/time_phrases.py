"""Days and times as people write them: `yesterday`, `7d`, `tomorrow at 9`, `weekdays at 8`.

A phrase is understood whole or not at all: nothing in it is skipped. A bare day or span points back
where something is looked for (`parse_span`), and ahead where something is planned (`parse_plan`).
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

_WEEKDAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_WEEKDAY = (
    r"(?:mon(?:days?)?|tue(?:s(?:days?)?)?|wed(?:nesdays?)?|thu(?:r(?:s(?:days?)?)?)?"
    r"|fri(?:days?)?|sat(?:urdays?)?|sun(?:days?)?)"
)
_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_CLOCK = r"(?:\d{1,2}:\d{2}(?: ?[ap]m)?|\d{1,2} ?[ap]m|noon|midnight)"
# After "at" an hour alone is clear too.
_AT = rf"(?:(?:at )(?P<hour>{_CLOCK}|\d{{1,2}})|(?P<clock>{_CLOCK}))"
_DAY_AND_MONTH = rf"(?P<day>\d{{1,2}}) (?P<month>{_MONTH})(?: (?P<year>\d{{4}}))?"
_MONTH_AND_DAY = rf"(?P<month>{_MONTH}) (?P<day>\d{{1,2}})(?: (?P<year>\d{{4}}))?"
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(
    r"(\d{1,5}) ?(m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?: ago)?", re.ASCII
)
_REPEATED: Final = {
    "daily": "*", "every day": "*", "weekdays": "MON-FRI", "every weekday": "MON-FRI",
    "weekends": "SAT,SUN", "every weekend": "SAT,SUN",
}  # fmt: skip


def parse_span(text: str, now: datetime, zone: tzinfo) -> tuple[datetime, datetime] | None:
    """Return the beginning and the end of the time that a phrase about the past names, or None.

    A day ends when the next one begins; a span such as `7d` is the one moment that long ago.
    """
    phrase = _normalise(text)
    local = now.astimezone(zone)
    if match := _SPAN.fullmatch(phrase):
        try:
            moment = now - timedelta(**{_UNITS[match[2][0]]: int(match[1])})
        except OverflowError:
            return None
        return moment, moment
    day = _parse_day(phrase, local.date(), is_ahead=False)
    if day is None or day == date.max:
        return None
    return (
        datetime.combine(day, time(), zone),
        datetime.combine(day + timedelta(days=1), time(), zone),
    )


def parse_plan(text: str, now: datetime, zone: tzinfo) -> str | None:
    """Return a plan in the form of a schedule rule (`at …`, `cron …`), or None if it is no plan."""
    phrase = _normalise(text)
    local = now.astimezone(zone)
    if phrase in ("hourly", "every hour"):
        return "every 1h"
    match = re.fullmatch(rf"(?P<when>.+?),? {_AT}", phrase, re.ASCII)
    if match is None:
        return f"in {phrase}" if _SPAN.fullmatch(phrase) and "ago" not in phrase else None
    clock = _parse_clock(match["hour"] or match["clock"])
    if clock is None:
        return None
    days = _parse_repeated(match["when"])
    if days is not None:
        return f"cron {clock.minute} {clock.hour} * * {days}"
    day = _parse_day(match["when"], local.date(), is_ahead=True)
    if day is None:
        return None
    if day == local.date() and match["when"] != "today" and clock <= local.time():
        later = _parse_day(match["when"], local.date() + timedelta(days=1), is_ahead=True)
        day = later or day
    return f"at {day:%Y-%m-%d} {clock:%H:%M}"


def _normalise(text: str) -> str:
    return " ".join(text.lower().split())


def _parse_repeated(phrase: str) -> str | None:
    """Return the weekdays of a cron rule: `every mon, thu`, `mondays`, `weekdays`."""
    if phrase in _REPEATED:
        return _REPEATED[phrase]
    if not re.fullmatch(rf"(?:every |on )?{_WEEKDAY}(?:(?:, ?| and |, and ){_WEEKDAY})*", phrase):
        return None
    names = re.findall(_WEEKDAY, phrase.removeprefix("every ").removeprefix("on "))
    if not phrase.startswith("every ") and not all(name.endswith("days") for name in names):
        return None  # `monday at 9` is one monday
    return ",".join(name[:3].upper() for name in names)


def _parse_day(phrase: str, today: date, *, is_ahead: bool) -> date | None:
    """Return a day: the next one like this, today included, or the latest one before."""
    named = {"today": 0, "tomorrow": 1, "yesterday": -1}
    if phrase in named:
        return today + timedelta(days=named[phrase])
    bare = re.sub(r"^(?:on |next |last )", "", phrase)
    if re.fullmatch(_WEEKDAY, bare) and not bare.endswith("days"):
        distance = (_WEEKDAYS.index(bare[:3].upper()) - today.weekday()) % 7
        return today + timedelta(days=distance if is_ahead else distance - 7)
    for pattern in (_DAY_AND_MONTH, _MONTH_AND_DAY):
        match = re.fullmatch(pattern, bare, re.ASCII)
        if match:
            return _resolve_year(match, today, is_ahead=is_ahead)
    try:
        return date.fromisoformat(bare) if re.match(r"\d{4}-", bare) else None
    except ValueError:
        return None


def _resolve_year(match: re.Match[str], today: date, *, is_ahead: bool) -> date | None:
    month, day = _MONTHS.index(match["month"][:3]) + 1, int(match["day"])
    step = 1 if is_ahead else -1
    # Eight years contain a 29th of February.
    years = [int(match["year"])] if match["year"] else [today.year + step * n for n in range(9)]
    for year in years:
        try:
            candidate = date(year, month, day)
        except ValueError:
            continue
        if match["year"] or (candidate >= today if is_ahead else candidate <= today):
            return candidate
    return None


def _parse_clock(text: str) -> time | None:
    """Return a time of day: `9`, `9:30`, `9 pm`, `noon`; None if there is none such."""
    if text in ("noon", "midnight"):
        return time(12 if text == "noon" else 0)
    match = re.fullmatch(r"(\d{1,2})(?::(\d{2}))? ?([ap]m)?", text, re.ASCII)
    if match is None:
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[3] == "pm" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None
