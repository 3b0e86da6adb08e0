"""`tertulia usage`: tokens and cost of model calls."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import click

from tertulia.cli import (
    format,
    locations,
    output,
)
from tertulia.cli.options import WORDS, Command, Request, json_option
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError
from tertulia.records.usage import WAYS, By

if TYPE_CHECKING:
    from rich.table import Table

# Below it, what was read from and written to caches stands in one column.
_ALL_COLUMNS_WIDTH = 100


@click.command(cls=Command)
@click.option("--by", type=click.Choice(WAYS), default="day", show_default=True, help="Sums by.")
@click.option("--since", metavar="WHEN", type=WORDS, help="From a day or a moment on.")
@click.option("--until", metavar="WHEN", type=WORDS, help="Up to the end of a day, or a moment.")
@json_option
@click.pass_obj
def usage(request: Request, by: By, since: str | None, until: str | None) -> None:
    """Sum up the tokens and the cost of model calls.

    WHEN is a date such as 2026-03-01 or a time such as 2026-03-01T18:30, in the machine's time
    zone unless it names another (2026-03-01T18:30+02:00).

    A cost with ≈ is estimated from a price list. One with ≥ lacks the calls whose price is not
    known.
    """
    zone = locations.zone()
    first = None if since is None else moment(since, zone, option="--since")
    last = None if until is None else moment(until, zone, option="--until", is_end=True)
    with locations.existing(request) as store, output.waiting(request, "Adding up …"):
        sums = store.usage.sum(by, since=first, until=last)
    if request.json:
        output.print_json(_to_dict(by, first, last, sums))
    elif not sums:
        when = "in that time" if first or last else "yet"
        output.say(request, f"No model was called {when}.")
    else:
        output.show(request, _table(request, by, sums))


def moment(text: str, zone: tzinfo, *, option: str, is_end: bool = False) -> datetime:
    """The moment that a person means; a date is its whole day."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _time(text, zone, option)
    if not 1970 <= day.year < 9999:
        raise _not_a_time(text, option)
    return datetime.combine(day + timedelta(days=1) if is_end else day, time(), zone)


def _time(text: str, zone: tzinfo, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text, option) from None
    if not 1970 <= found.year < 9999:
        raise _not_a_time(text, option)
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def _not_a_time(text: str, option: str) -> ConfigError:
    return ConfigError(
        f"{option} is {text!r}, which is no date and no time.",
        hint="Give a date such as 2026-03-01, or a time such as 2026-03-01T18:30.",
        field=option,
    )


def _table(request: Request, by: By, sums: dict[str, Usage]) -> Table:
    is_narrow = output.console(request).width < _ALL_COLUMNS_WIDTH
    cached = ("cached",) if is_narrow else ("cache read", "cache write")
    numbers = ("input", "output", *cached, "total", "cost")
    table = output.table(by, *numbers, elastic=by, numbers=numbers)
    rows = list(sums.items())
    if by != "day":
        # The days tell a story in their order; of all else the largest is asked for.
        rows.sort(key=lambda row: row[1].total, reverse=True)
    for name, used in rows:
        table.add_row(output.cell(name), *_cells(used, is_narrow))
    if len(rows) > 1:
        table.add_row("total", *_cells(format.total(list(sums.values())), is_narrow), style="bold")
    return table


def _cells(used: Usage, is_narrow: bool) -> list[str]:
    cached = (used.cache_read, used.cache_write)
    counts = (used.input, used.output, *((sum(cached),) if is_narrow else cached), used.total)
    return [*(f"{count:,}" for count in counts), format.cost(used)]


def _to_dict(
    by: By, since: datetime | None, until: datetime | None, sums: dict[str, Usage]
) -> dict[str, Any]:
    return {
        "by": by,
        "since": since and since.isoformat(),
        "until": until and until.isoformat(),
        "groups": [{by: name, **_figures(used)} for name, used in sums.items()],
        "total": _figures(format.total(list(sums.values()))),
    }


def _figures(used: Usage) -> dict[str, Any]:
    counts = {name: getattr(used, name) for name in format.COUNTS}
    return {
        **counts,
        "total": used.total,
        "cost_usd": used.cost_usd,
        "cost_status": used.cost_status,
    }
