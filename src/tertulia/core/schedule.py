"""Schedule rules: once, at an interval, or by a cron rule in a named zone.

    at 2026-11-20 09:00         once, in the zone's time; `at 09:00` is the next nine o'clock
    in 20 min                   once, from now
    every 2h, every 1h30m       repeatedly, from now on; the interval is the same on every day
    tomorrow at 9, mon at 9     once, on the next such day; `20 nov at 9` too
    weekdays at 8, daily at 9   by a cron rule; `every mon, thu at 9` too
    cron 0 9 * * MON-FRI        minute, hour, day, month, weekday

The functions here only decide: the caller passes the current time and acts. When clocks go forward,
a time of day that does not exist becomes the time of the change; when they go back, a time of day
that comes twice is used once, the first time. A cron rule with a `*` for the hour, or for the
minute, runs at every such hour or minute that passes, as cron does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

import msgspec

from tertulia.core.settings import require_zone
from tertulia.core.time_phrases import parse_plan
from tertulia.errors import ConfigError
from tertulia.install_command import install_command

Misfire = Literal["once", "skip", "all"]
"""The treatment of missed occurrences: one run for all, no run, or a run for each of them."""
MISFIRES: tuple[Misfire, ...] = ("once", "skip", "all")

# An occurrence counts as missed if no process claimed it for this long.
GRACE: Final = timedelta(minutes=5)
# With "all", only this many of the newest run: after a year of downtime half a million could be
# due.
MAX_RUNS: Final = 100

MIN_INTERVAL: Final = timedelta(minutes=1)
MAX_INTERVAL: Final = timedelta(days=3660)

_FORMS: Final = (
    "Write for example: tomorrow at 9, in 20 min, every monday at 9:00, weekdays at 8, every 2h, "
    "at 2026-11-20 09:00, cron 0 9 * * MON-FRI."
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(
    r"(\d{1,7})\s*(s|sec|secs|seconds?|m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
    r"(?![a-z])\s*"
)
_MICROSECOND: Final = timedelta(microseconds=1)


class Once(msgspec.Struct, frozen=True, tag="once"):
    """A run at one time."""

    at: datetime


class Every(msgspec.Struct, frozen=True, tag="every"):
    """A run every `seconds` seconds, the first one that long after `since`."""

    seconds: int
    since: datetime


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """Runs by a cron rule of five fields, in the local time of a zone."""

    fields: str
    zone: str


Rule = Once | Every | Cron


class Due(NamedTuple):
    """The decision for now: the `runs` in order, the newest `skipped` one, and the `next` time.

    `since` is the first occurrence that the decision covers.
    """

    runs: tuple[datetime, ...]
    skipped: datetime | None
    since: datetime
    next: datetime | None


def parse_rule(text: str, *, now: datetime, zone: str) -> Rule:
    """Parse a rule as people write it; raise `ConfigError` if it is invalid or can never run."""
    phrase = parse_plan(text, now, require_zone(zone))
    kind, _, rest = " ".join((phrase or text).split()).partition(" ")
    parser = _PARSERS.get(kind.lower())
    if parser is None or not rest:
        _refuse(text, _FORMS)
    try:
        rule = parser(rest, now, zone)
        first = next_after(rule, now)
    except (OverflowError, ValueError):
        _refuse(text, f"There is no such time. {_FORMS}")
    if first is None:
        hint = "That time has passed." if isinstance(rule, Once) else "No such day ever comes."
        _refuse(text, hint)
    return rule


def next_after(rule: Rule, time: datetime) -> datetime | None:
    """Return the first occurrence after a time, in UTC; None if there is none."""
    if isinstance(rule, Once):
        return rule.at if rule.at > time else None
    if isinstance(rule, Every):
        step = timedelta(seconds=rule.seconds)
        passed = max(0, (time - rule.since) // step)
        return (rule.since + (passed + 1) * step).astimezone(UTC)
    return _next_cron(rule, time)


def restart(rule: Rule, now: datetime) -> Rule:
    """Return a rule whose next time was decided later than now: the clock was set back since.

    An interval begins anew, because its times until then have run already. A time of day stays what
    it is, and one that has run does not run again.
    """
    return Every(rule.seconds, now.astimezone(UTC)) if isinstance(rule, Every) else rule


def decide(rule: Rule, planned: datetime, now: datetime, misfire: Misfire) -> Due:
    """Decide about a planned occurrence and those that came after it until now.

    Occurrences within the grace time run with every misfire policy. A clock that jumps forward
    misses the occurrences it jumped over; one that jumps back has nothing due: see `restart`.
    """
    newest = latest_occurrence(rule, planned, now)
    after = next_after(rule, newest)
    if newest == planned and now - planned <= GRACE:
        return Due((planned,), None, planned, after)
    if misfire == "once":
        return Due((newest,), None, planned, after)
    occurrences = tuple(_newest_first(rule, planned, newest))[::-1]
    if misfire == "all":
        return Due(occurrences, None, planned, after)
    in_time = tuple(time for time in occurrences if now - time <= GRACE)
    missed = [time for time in occurrences if now - time > GRACE]
    return Due(in_time, missed[-1] if missed else None, planned, after)


def latest_occurrence(rule: Rule, planned: datetime, now: datetime) -> datetime:
    """Return the last occurrence up to now, where `planned` is one of them.

    A binary search: its cost does not depend on the number of occurrences in between.
    """
    low, high = planned, now  # after `low` there may be more; after `high` there is none
    newest = planned
    while (following := next_after(rule, newest)) is not None and following <= now:
        newest = low = following
        middle = low + (high - low) / 2
        further = next_after(rule, middle)
        if further is not None and further <= now:
            newest = further
        else:
            high = middle
    return newest


def describe_rule(rule: Rule) -> str:
    """Return the rule as text that people can read."""
    if isinstance(rule, Once):
        return f"at {rule.at:%Y-%m-%d %H:%M} UTC"
    if isinstance(rule, Cron):
        return f"cron {rule.fields} ({rule.zone})"
    left, parts = rule.seconds, []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _SECONDS[unit])
        parts += [f"{count}{unit}"] if count else []
    return f"every {''.join(parts)}"


def local_to_utc(local: datetime, zone: ZoneInfo) -> datetime:
    """Convert the naive local time of a zone to UTC.

    A time that comes twice is the first one. A skipped time is the time of the clock change.
    """
    utc = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if utc.astimezone(zone).replace(tzinfo=None) == local:
        return utc
    # The offset before the change gives a time after it, the one after the change a time before it.
    before_change = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _find_clock_change(before_change, utc, zone)


def _find_clock_change(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the time between two others when the clocks of a zone change, to the second."""
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def _newest_first(rule: Rule, planned: datetime, newest: datetime) -> Iterator[datetime]:
    """Yield occurrences from the newest back to the planned one, at most `MAX_RUNS`."""
    for _ in range(MAX_RUNS):
        yield newest
        if newest <= planned:
            return
        newest = latest_occurrence(rule, planned, newest - _MICROSECOND)


def _next_cron(rule: Cron, time: datetime) -> datetime | None:
    # cronsim computes in local time, which shows some times twice; so its result may be before
    # `time`, and then it is asked again with a start one minute later.
    zone = require_zone(rule.zone)
    begin = time
    while True:
        previous: datetime | None = None
        for local in _iterate_cron(rule.fields, begin.astimezone(zone)):
            occurrence = local.astimezone(UTC)
            if occurrence > time:
                return occurrence
            if previous is not None and occurrence <= previous:
                break
            previous = occurrence
        else:
            return None
        begin += MIN_INTERVAL


def _iterate_cron(fields: str, begin: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as missing:
        raise ConfigError(
            "Cron rules need the package cronsim.",
            hint=f"Install it: {install_command('schedules')}",
        ) from missing
    try:
        return iter(CronSim(fields, begin))
    except CronSimError as problem:
        raise ConfigError(
            f"Invalid cron rule {fields[:200]!r}: {problem}.",
            hint="The fields are minute, hour, day, month, weekday; for example 0 9 * * MON-FRI.",
            field="when",
        ) from problem


def _parse_at(rest: str, now: datetime, zone: str) -> Rule:
    time_zone = require_zone(zone)
    text = rest.upper().removesuffix(" UTC")
    if text != rest.upper():
        time_zone = require_zone("UTC")
    if re.fullmatch(r"\d{1,2}:\d{2}", text):
        today = now.astimezone(time_zone).replace(tzinfo=None)
        hour, minute = map(int, text.split(":"))
        local = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
        time = local_to_utc(local, time_zone)
        return Once(time if time > now else local_to_utc(local + timedelta(days=1), time_zone))
    parsed = datetime.fromisoformat(text)
    return Once(parsed.astimezone(UTC) if parsed.tzinfo else local_to_utc(parsed, time_zone))


def _parse_in(rest: str, now: datetime, zone: str) -> Rule:
    return Once((now + _parse_duration(rest)).astimezone(UTC))


def _parse_every(rest: str, now: datetime, zone: str) -> Rule:
    return Every(int(_parse_duration(rest).total_seconds()), now.astimezone(UTC))


def _parse_cron(rest: str, now: datetime, zone: str) -> Rule:
    rule = Cron(rest.strip("\"'").upper(), zone)
    if len(rule.fields.split()) != 5:
        _refuse(f"cron {rest}", "Give five fields: minute, hour, day, month, weekday.")
    return rule


def _parse_duration(text: str) -> timedelta:
    """Parse a duration; a unit alone, as in "every day", counts once."""
    units = text.lower().replace(" and ", " ").strip()
    if units.isalpha():
        units = f"1 {units}"
    seconds, end = 0, 0
    while match := _DURATION.match(units, end):
        seconds += int(match[1]) * _SECONDS[match[2][0]]
        end = match.end()
    if end < len(units) or not seconds:
        _refuse(text, "Give a duration, such as 90 min, 2h or 1d.")
    duration = timedelta(seconds=seconds)
    if not MIN_INTERVAL <= duration <= MAX_INTERVAL:
        _refuse(text, "Give at least one minute and at most ten years.")
    return duration


def _refuse(text: str, hint: str) -> NoReturn:
    raise ConfigError(f"Invalid schedule {text[:200]!r}.", hint=hint, field="when")


_PARSERS: Final[dict[str, Callable[[str, datetime, str], Rule]]] = {
    "at": _parse_at,
    "in": _parse_in,
    "every": _parse_every,
    "cron": _parse_cron,
}
