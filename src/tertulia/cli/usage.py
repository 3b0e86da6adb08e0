"""`tertulia usage`: sum the tokens and the cost of model calls."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import click

from tertulia.cli import format, locations, output
from tertulia.cli.options import TEXT, CliCommand, CommandOptions, json_option
from tertulia.core.time_phrases import parse_span
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError
from tertulia.records.machine_zone import machine_zone
from tertulia.records.usage import GROUPINGS, Grouping

if TYPE_CHECKING:
    from rich.table import Table

# On a narrower terminal, cache reads and cache writes share one column.
_ALL_COLUMNS_WIDTH = 100


@click.command(cls=CliCommand)
@click.option(
    "--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="Group by."
)
@click.option("--since", metavar="WHEN", type=TEXT, help="Start: yesterday, 7d, a date or a time.")
@click.option("--until", metavar="WHEN", type=TEXT, help="End: a date, included, or a time.")
@json_option
@click.pass_obj
def usage(options: CommandOptions, by: Grouping, since: str | None, until: str | None) -> None:
    """Sum the tokens and the cost of model calls.

    WHEN is a date such as 2026-03-01 or a time such as 2026-03-01T18:30, in the machine's time
    zone unless it names another (2026-03-01T18:30+02:00).

    A cost with ≈ is estimated from a price list. A cost with ≥ does not include the calls whose
    price is not known.
    """
    zone = machine_zone()
    since_at = None if since is None else parse_time(since, zone, option="--since")
    until_at = None if until is None else parse_time(until, zone, option="--until", is_end=True)
    with locations.open_to_read(options) as store, output.spinner(options, "Summing …"):
        sums = store.usage.sum(by, since=since_at, until=until_at)
    if options.json:
        output.print_json(_to_dict(by, since_at, until_at, sums))
    elif not sums:
        period = "in that time" if since_at or until_at else "yet"
        output.print_text(options, f"No model was called {period}.")
    else:
        output.print_renderables(options, _table(options, by, sums))


def parse_time(text: str, zone: tzinfo, *, option: str, is_end: bool = False) -> datetime:
    """Return the time of `yesterday`, `7d`, a date or a time; with `is_end` the end of a day.

    Raise ConfigError, which names `option`, for any other text.
    """
    span = parse_span(text, datetime.now(zone), zone)
    if span is not None and span[1].year < 9999 and span[0].year >= 1970:
        return span[1] if is_end else span[0]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _parse_date_and_time(text, zone, option)
    if not 1970 <= day.year < 9999:
        raise _out_of_range(text, option)
    return datetime.combine(day + timedelta(days=1) if is_end else day, time(), zone)


def _parse_date_and_time(text: str, zone: tzinfo, option: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise _invalid_time(text, option) from None
    if not 1970 <= parsed.year < 9999:
        raise _out_of_range(text, option)
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=zone)


def _out_of_range(text: str, option: str) -> ConfigError:
    return ConfigError(
        f"{option} is {text!r}, which is before 1970 or after 9998.",
        hint=f"Leave {option} out for all times.",
        field=option,
    )


def _invalid_time(text: str, option: str) -> ConfigError:
    return ConfigError(
        f"{option} is {text!r}, which is not a date and not a time.",
        hint="Write yesterday, monday, 7d, 20 nov, 2026-03-01 or 2026-03-01T18:30.",
        field=option,
    )


def _table(options: CommandOptions, by: Grouping, sums: dict[str, Usage]) -> Table:
    is_narrow = output.console(options).width < _ALL_COLUMNS_WIDTH
    cache_columns = ("cached",) if is_narrow else ("cache read", "cache write")
    numbers = ("input", "output", *cache_columns, "total", "cost")
    table = output.new_table(by, *numbers, elastic=by, numbers=numbers)
    rows = list(sums.items())
    if by != "day":
        # Days are read in their order; in every other grouping the largest sums come first.
        rows.sort(key=lambda row: row[1].total, reverse=True)
    for name, group in rows:
        table.add_row(output.cell(name), *_cells(group, is_narrow))
    if len(rows) > 1:
        table.add_row(
            "total", *_cells(format.sum_usage(list(sums.values())), is_narrow), style="bold"
        )
    return table


def _cells(group: Usage, is_narrow: bool) -> list[str]:
    cached = (group.cache_read, group.cache_write)
    counts = (group.input, group.output, *((sum(cached),) if is_narrow else cached), group.total)
    return [*(f"{count:,}" for count in counts), format.format_cost(group)]


def _to_dict(
    by: Grouping, since: datetime | None, until: datetime | None, sums: dict[str, Usage]
) -> dict[str, Any]:
    return {
        "by": by,
        "since": since and since.isoformat(),
        "until": until and until.isoformat(),
        "groups": [{by: name, **_usage_to_dict(group)} for name, group in sums.items()],
        "total": _usage_to_dict(format.sum_usage(list(sums.values()))),
    }


def _usage_to_dict(group: Usage) -> dict[str, Any]:
    counts = {name: getattr(group, name) for name in format.COUNTS}
    return {
        **counts,
        "total": group.total,
        "cost_usd": group.cost_usd,
        "cost_status": group.cost_status,
    }
