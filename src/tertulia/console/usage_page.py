"""Usage: tells what it cost, and who spent it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from tertulia.console.bar_chart import HEIGHT, WIDTH, lay_out
from tertulia.console.environment import zone
from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.core.text import format
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, NotFound

_DAYS: Final = 30
_MAX_DAYS: Final = 92
_SHOWN: Final = 20
_GROUPS: Final = (
    ("model", "By model"), ("person", "By person"), ("platform", "By platform"),
    ("session", "By session"),
)  # fmt: skip


async def load_usage(call: PageCall) -> dict[str, Any]:
    """Load tokens and cost of some days, by day, model, person, platform and session."""
    today = call.api.store.now().astimezone(zone()).date()
    until = _day(call, "until", today)
    since = _day(call, "since", until - timedelta(days=_DAYS - 1))
    since = max(min(since, until), until - timedelta(days=_MAX_DAYS - 1))
    span = {
        "since": datetime.combine(since, time(), zone()).isoformat(),
        "until": datetime.combine(until + timedelta(days=1), time(), zone()).isoformat(),
    }
    groups = ["day", *(name for name, _ in _GROUPS)] if call.caller.is_owner else ["person"]
    sums = await gather_values(
        **{name: call.operate("sum_usage", query={"by": name, **span}) for name in groups}
    )
    people = (
        await call.operate("list_people", query={"limit": 1000}) if call.caller.is_owner else None
    )
    by_day = sums["day"].sums if "day" in sums else {}
    return {
        "since": since,
        "until": until,
        "bars": lay_out(_daily(by_day, since, until)) if by_day else [],
        "width": WIDTH,
        "height": HEIGHT,
        "total": sum_all(sums[groups[0]].sums),
        "tables": [
            (label, name, _largest(sums[name].sums)) for name, label in _GROUPS if name in sums
        ],
        "names": {each.id: each.name for each in people.items if each.name} if people else {},
        "titles": await _titles(call, sums["session"].sums) if "session" in sums else {},
        "shown": _SHOWN,
    }


async def _titles(call: PageCall, sums: Mapping[str, Usage]) -> dict[str, str]:
    """Return the titles of the sessions that are listed, by id; one that is gone has none."""
    titles = {}
    for session_id, _ in _largest(sums)[:_SHOWN]:
        try:
            session = await call.operate("get_session", path={"id": session_id})
        except NotFound:
            continue
        titles[session_id] = format.session_name(session)
    return titles


def _day(call: PageCall, name: str, default: date) -> date:
    text = call.query.get(name, "")
    if not text:
        return default
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text[:40]!r} is not a day.", hint="Write 2026-03-31.") from None


def _daily(
    sums: Mapping[str, Usage], since: date, until: date
) -> list[tuple[date, float | None, str]]:
    days = []
    for offset in range((until - since).days + 1):
        day = since + timedelta(days=offset)
        usage = sums.get(day.isoformat())
        cost = 0.0 if usage is None else usage.cost_usd
        label = "nothing" if usage is None else format.format_cost(usage)
        tokens = 0 if usage is None else usage.total
        days.append((day, cost, f"{day.isoformat()}: {label}, {tokens:,} tokens"))
    return days


def sum_all(sums: Mapping[str, Usage]) -> dict[str, Any]:
    """Return the sum of all groups; a cost of None is unknown, never zero."""
    costs = [usage.cost_usd for usage in sums.values() if usage.cost_usd is not None]
    return {
        "tokens": sum(usage.total for usage in sums.values()),
        "output": sum(usage.output for usage in sums.values()),
        "cost": sum(costs) if costs or not sums else None,
        "is_partial": any(usage.cost_status == "unknown" for usage in sums.values()),
    }


def _largest(sums: Mapping[str, Usage]) -> list[tuple[str, Usage]]:
    """Return the groups, the most expensive first, then those with an unknown cost."""
    return sorted(sums.items(), key=lambda item: (-(item[1].cost_usd or 0), -item[1].total))


PAGES = (ConsolePage(path="/usage", name="usage", title="Usage", section="usage", load=load_usage),)
