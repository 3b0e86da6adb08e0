"""When a task runs: once, at an interval, or by a cron rule in a named zone.

    at 2026-11-20 09:00         once, in the zone's time; `at 09:00` is the next nine o'clock
    in 20 min                   once, from now
    every 2h, every 1h30m       again and again, from now on; of the same length on every day
    cron 0 9 * * MON-FRI        minute, hour, day, month, weekday

These rules only decide: they are given the moment, and do nothing. Where clocks go forward, a time
of day that does not exist is taken when they have gone forward; where they go back, a time of day
that comes twice is taken once, the first time. A cron rule with a `*` for the hour, or for the
minute, runs at every such hour or minute that passes, as cron does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

import msgspec

from tertulia.core.settings import zone as zone_named
from tertulia.errors import ConfigError

Misfire = Literal["once", "skip", "all"]
"""What becomes of occurrences that were missed: one run for all, none, or each of them."""
MISFIRES: tuple[Misfire, ...] = ("once", "skip", "all")

# An occurrence is missed when nobody took it for so long.
GRACE: Final = timedelta(minutes=5)
# With "all", so many of the newest run; who was away for a year wants no half a million of them.
MOST_RUNS: Final = 100

SHORTEST: Final = timedelta(minutes=1)
LONGEST: Final = timedelta(days=3660)

_FORMS: Final = (
    "Write for example: every 2h, in 20 min, at 2026-11-20 09:00, at 09:00, cron 0 9 * * MON-FRI."
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(
    r"(\d{1,7})\s*(s|sec|secs|seconds?|m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
    r"(?![a-z])\s*"
)
_TINY: Final = timedelta(microseconds=1)


class Once(msgspec.Struct, frozen=True, tag="once"):
    """At one moment."""

    at: datetime


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Every so many seconds; the first time that long after `since`."""

    seconds: int
    since: datetime


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """By a cron rule of five fields, in the time of a zone."""

    fields: str
    zone: str


Rule = Once | Every | Cron


class Due(NamedTuple):
    """What is to be done now: `runs` in order, what was `skipped`, and the time after that.

    `since` is the first occurrence that these stand for.
    """

    runs: tuple[datetime, ...]
    skipped: datetime | None
    since: datetime
    next: datetime | None


def parse(words: str, *, now: datetime, zone: str) -> Rule:
    """Read a rule as people write it; what can never run is refused."""
    kind, _, rest = " ".join(words.split()).partition(" ")
    reader = _READERS.get(kind.lower())
    if reader is None or not rest:
        _refuse(words, _FORMS)
    zone_named(zone)
    try:
        rule = reader(rest, now, zone)
        first = next_after(rule, now)
    except (OverflowError, ValueError):
        _refuse(words, f"There is no such time. {_FORMS}")
    if first is None:
        why = "That moment has passed." if isinstance(rule, Once) else "No such day ever comes."
        _refuse(words, why)
    return rule


def next_after(rule: Rule, moment: datetime) -> datetime | None:
    """The first occurrence after a moment, in UTC; None if there is none."""
    if isinstance(rule, Once):
        return rule.at if rule.at > moment else None
    if isinstance(rule, Every):
        step = timedelta(seconds=rule.seconds)
        passed = max(0, (moment - rule.since) // step)
        return (rule.since + (passed + 1) * step).astimezone(UTC)
    return _cron_after(rule, moment)


def decide(rule: Rule, planned: datetime, now: datetime, misfire: Misfire) -> Due:
    """What to do with an occurrence that was planned, and with those that came after it until now.

    Those within the grace are run whatever the policy says. A clock that jumps forward misses what
    it jumped over; one that jumps back finds nothing due, and runs nothing twice.
    """
    newest = latest(rule, planned, now)
    after = next_after(rule, newest)
    if newest == planned and now - planned <= GRACE:
        return Due((planned,), None, planned, after)
    if misfire == "once":
        return Due((newest,), None, planned, after)
    found = tuple(_newest_first(rule, planned, newest))[::-1]
    if misfire == "all":
        return Due(found, None, planned, after)
    in_time = tuple(one for one in found if now - one <= GRACE)
    missed = [one for one in found if now - one > GRACE]
    return Due(in_time, missed[-1] if missed else None, planned, after)


def latest(rule: Rule, planned: datetime, now: datetime) -> datetime:
    """The last occurrence up to now, where `planned` is one of them.

    It is searched by halves: how many there were in between does not matter.
    """
    low, high = planned, now  # after `low` there may be more; after `high` there is none
    found = planned
    while (following := next_after(rule, found)) is not None and following <= now:
        found = low = following
        middle = low + (high - low) / 2
        further = next_after(rule, middle)
        if further is not None and further <= now:
            found = further
        else:
            high = middle
    return found


def describe(rule: Rule) -> str:
    """The rule in words that `parse` would take."""
    if isinstance(rule, Once):
        return f"at {rule.at:%Y-%m-%d %H:%M} UTC"
    if isinstance(rule, Cron):
        return f"cron {rule.fields} ({rule.zone})"
    left, parts = rule.seconds, []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _SECONDS[unit])
        parts += [f"{count}{unit}"] if count else []
    return f"every {''.join(parts)}"


def local_moment(naive: datetime, zone: ZoneInfo) -> datetime:
    """A time of day as the clocks of a zone show it, in UTC.

    One that comes twice is the first. One that is left out is when the clocks have gone forward.
    """
    found = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == naive:
        return found
    # With the offset from before the change it lies after it, as far as it was into the gap.
    after = naive.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _change_between(after, found, zone)


def _change_between(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """When, between two moments, the clocks of a zone are changed; to the second."""
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def _newest_first(rule: Rule, planned: datetime, newest: datetime) -> Iterator[datetime]:
    """Occurrences from the newest back to the planned one, as many as may run."""
    for _ in range(MOST_RUNS):
        yield newest
        if newest <= planned:
            return
        newest = latest(rule, planned, newest - _TINY)


def _cron_after(rule: Cron, moment: datetime) -> datetime | None:
    # It reckons with the clock on the wall, which shows some times twice; so what it finds may lie
    # before the moment, and then it is asked again from a little later on.
    zone = zone_named(rule.zone)
    begin = moment
    while True:
        before: datetime | None = None
        for local in _cronsim(rule.fields, begin.astimezone(zone)):
            found = local.astimezone(UTC)
            if found > moment:
                return found
            if before is not None and found <= before:
                break
            before = found
        else:
            return None
        begin += SHORTEST


def _cronsim(fields: str, begin: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as missing:
        raise ConfigError(
            "Cron rules need the package cronsim.", hint="Run: pip install 'tertulia[schedules]'"
        ) from missing
    try:
        return iter(CronSim(fields, begin))
    except CronSimError as problem:
        raise ConfigError(
            f"{fields[:200]!r} is no cron rule: {problem}.",
            hint="The fields are minute, hour, day, month, weekday; for example 0 9 * * MON-FRI.",
            field="when",
        ) from problem


def _at(rest: str, now: datetime, zone: str) -> Rule:
    place = zone_named(zone)
    given = rest.upper().removesuffix(" UTC")
    if given != rest.upper():
        place = zone_named("UTC")
    if re.fullmatch(r"\d{1,2}:\d{2}", given):
        today = now.astimezone(place).replace(tzinfo=None)
        hour, minute = map(int, given.split(":"))
        wanted = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
        found = local_moment(wanted, place)
        return Once(found if found > now else local_moment(wanted + timedelta(days=1), place))
    read = datetime.fromisoformat(given)
    return Once(read.astimezone(UTC) if read.tzinfo else local_moment(read, place))


def _in(rest: str, now: datetime, zone: str) -> Rule:
    return Once((now + _span(rest)).astimezone(UTC))


def _every(rest: str, now: datetime, zone: str) -> Rule:
    return Every(int(_span(rest).total_seconds()), now.astimezone(UTC))


def _cron(rest: str, now: datetime, zone: str) -> Rule:
    rule = Cron(rest.strip("\"'").upper(), zone)
    if len(rule.fields.split()) != 5:
        _refuse(f"cron {rest}", "Give five fields: minute, hour, day, month, weekday.")
    return rule


def _span(text: str) -> timedelta:
    """A length of time; words like "every day" count one."""
    given = text.lower().replace(" and ", " ").strip()
    if given.isalpha():
        given = f"1 {given}"
    seconds, place = 0, 0
    while found := _SPAN.match(given, place):
        seconds += int(found[1]) * _SECONDS[found[2][0]]
        place = found.end()
    if place < len(given) or not seconds:
        _refuse(text, "Give a length of time, such as 90 min, 2h or 1d.")
    length = timedelta(seconds=seconds)
    if not SHORTEST <= length <= LONGEST:
        _refuse(text, "Give at least one minute and at most ten years.")
    return length


def _refuse(words: str, hint: str) -> NoReturn:
    raise ConfigError(f"{words[:200]!r} is no time to run at.", hint=hint, field="when")


_READERS: Final[dict[str, Callable[[str, datetime, str], Rule]]] = {
    "at": _at,
    "in": _in,
    "every": _every,
    "cron": _cron,
}
