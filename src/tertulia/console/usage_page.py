"""Usage: tells what it cost, and who spent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from tertulia.console.bar_chart import HEIGHT, WIDTH, BarValue, lay_out
from tertulia.console.environment import zone
from tertulia.console.page_definition import ConsolePage, PageCall
from tertulia.console.people_page import load_names
from tertulia.core.text import format
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError
from tertulia.records.usage import DayUsage

_DAYS: Final = 30
_MAX_DAYS: Final = 92
_SHOWN: Final = 20
_COLOURS: Final = 4
_PERSONS: Final = "persons"


async def load_usage(call: PageCall) -> dict[str, Any]:
    """Load tokens and cost of some days, by day, model and platform, and by session of one day.

    The script loads the table of the owner's people after the page: it costs more the more people
    there are.
    """
    today = call.api.store.now().astimezone(zone()).date()
    until = _day(call, "until", today)
    since = _day(call, "since", until - timedelta(days=_DAYS - 1))
    since = max(min(since, until), until - timedelta(days=_MAX_DAYS - 1))
    span = {
        "since": datetime.combine(since, time(), zone()).isoformat(),
        "until": datetime.combine(until + timedelta(days=1), time(), zone()).isoformat(),
    }
    if call.query.get("part") == _PERSONS:
        return await _load_persons(call, span)
    groups = ["model", "platform"] if is_owner(call) else ["person"]
    if call.query.get("by") == "person" and is_owner(call):
        groups.append("person")
    if since == until and is_owner(call):
        # There are no sums by session: of more than a day, every call would be read.
        groups.append("session")
    query = {"by": " ".join(groups), "by_day": "model", **span}
    report = await call.operate("report_usage", query=query)
    days, sums = report.days, report.sums
    budgets = await call.operate("list_budgets") if is_owner(call) else None
    is_by_tokens = not any(each.usage.cost_usd for each in days)
    models = _models(days, is_by_tokens)
    values = _daily(days, models, since, until, is_by_tokens)
    return {
        "since": since,
        "until": until,
        "is_one_day": since == until,
        "bars": lay_out(values) if days else [],
        "most": max(sum(amount or 0 for amount in each.values) for each in values),
        "is_by_tokens": is_by_tokens,
        "models": models,
        "has_others": any(each.values[-1] for each in values),
        "budgets": budgets.items if budgets else (),
        "width": WIDTH,
        "height": HEIGHT,
        "total": sum_all(sums["platform" if is_owner(call) else "person"]),
        "sums": {name: _largest(each) for name, each in sums.items()},
        "names": await _names(call, sums.get("person", {})) if is_owner(call) else {},
        "titles": await _titles(call, sums["session"]) if "session" in sums else {},
        "shown": _SHOWN,
        "persons_query": urlencode({"since": since, "until": until}),
    }


async def _load_persons(call: PageCall, span: Mapping[str, str]) -> dict[str, Any]:
    """Load the table of people alone: to rank them, the total of each of them is read."""
    report = await call.operate("report_usage", query={"by": "person", **span})
    sums = report.sums["person"]
    return {
        "sums": {"person": _largest(sums)},
        "names": await _names(call, sums) if is_owner(call) else {},
        "shown": _SHOWN,
    }


def is_owner(call: PageCall) -> bool:
    """Return whether the person may see what others have spent."""
    return call.caller.is_owner


async def _names(call: PageCall, sums: Mapping[str, Usage]) -> dict[str, str]:
    """Return the names of the people who are listed, by identity."""
    return await load_names(call, [name for name, _ in _largest(sums)[:_SHOWN]])


async def _titles(call: PageCall, sums: Mapping[str, Usage]) -> dict[str, str]:
    """Return the titles of the sessions that are listed, by id; one that is gone has none."""
    ids = " ".join(session_id for session_id, _ in _largest(sums)[:_SHOWN])
    if not ids:
        return {}
    page = await call.operate("list_sessions", query={"ids": ids})
    return {session.id: format.session_name(session) for session in page.items}


def _day(call: PageCall, name: str, default: date) -> date:
    text = call.query.get(name, "")
    if not text:
        return default
    try:
        day = date.fromisoformat(text)
        for around in (day - timedelta(days=_MAX_DAYS), day + timedelta(days=2)):
            datetime.combine(around, time(), zone()).astimezone(UTC)  # the days around it exist
    except (ValueError, OverflowError):
        raise ConfigError(f"{text[:40]!r} is not a day.", hint="Write 2026-03-31.") from None
    return day


def _amount(usage: Usage, is_by_tokens: bool) -> float | None:
    """Return what the chart shows: the cost, or where no cost is known the tokens."""
    return float(usage.total) if is_by_tokens else usage.cost_usd


def _models(days: Sequence[DayUsage], is_by_tokens: bool) -> list[str]:
    """Return the models with the highest amounts; the colours of the chart are few."""
    sums: dict[str, float] = {}
    for each in days:
        sums[each.group] = sums.get(each.group, 0) + (_amount(each.usage, is_by_tokens) or 0)
    return sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])[:_COLOURS]


def _daily(
    days: Sequence[DayUsage],
    models: Sequence[str],
    since: date,
    until: date,
    is_by_tokens: bool,
) -> list[BarValue]:
    """Return the amounts of each day: one for each model, and the last for all others."""
    by_day: dict[str, list[DayUsage]] = {}
    for each in days:
        by_day.setdefault(each.day, []).append(each)
    values = []
    for offset in range((until - since).days + 1):
        day = since + timedelta(days=offset)
        entries = by_day.get(day.isoformat(), [])
        amounts: list[float | None] = [0.0] * (len(models) + 1)
        for entry in entries:
            index = models.index(entry.group) if entry.group in models else len(models)
            amount = _amount(entry.usage, is_by_tokens)
            amounts[index] = amount if not amounts[index] else (amounts[index] or 0) + (amount or 0)
        total = sum(entry.usage.cost_usd or 0 for entry in entries)
        is_known = any(entry.usage.cost_usd is not None for entry in entries)
        tokens = sum(entry.usage.total for entry in entries)
        label = (
            "nothing" if not entries else format.format_dollars(total) if is_known else "unknown"
        )
        name = f"{day.isoformat()}: {label}, {tokens:,} tokens"
        values.append(BarValue(day=day, name=name, values=tuple(amounts)))
    return values


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


PAGES = (
    ConsolePage(
        path="/usage", name="usage", title="Usage", section="usage", load=load_usage, part=_PERSONS
    ),
)
