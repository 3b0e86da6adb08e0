"""The templates of the console, and the filters that write values for people.

Everything a template writes is escaped. Only `Markup` is not. Only `markdown_html.py` and the
filters here make it, of parts that they have escaped themselves, and `page_definition.py`, of rows
that a template has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, tzinfo
from functools import cache, lru_cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tertulia.core.session import Session
from tertulia.core.text import format
from tertulia.core.text.display_safe import display_json, display_line, display_text
from tertulia.core.usage import Usage
from tertulia.platforms import registry
from tertulia.records.machine_zone import machine_zone


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    result = Environment(
        loader=PackageLoader("tertulia.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    result.filters.update(
        clean=_clean,
        line=_line,
        clock=_clock,
        day=_day,
        count=_count,
        money=_money,
        cost=_cost,
        tokens=_tokens,
        duration=_duration,
        json=_json,
        json_line=_json_line,
        platform=_platform,
        title=_title,
        browser=_browser,
        reason=_reason,
        date=_date,
    )
    return result


@cache
def zone() -> tzinfo:
    """Return the time zone of all pages: that of the machine."""
    return machine_zone()


def render_template(name: str, context: Mapping[str, Any]) -> str:
    """Return a template as HTML."""
    return environment().get_template(name).render(context)


def render_block(name: str, block: str, context: Mapping[str, Any]) -> str:
    """Return one block of a template as HTML, such as a part of a page that has changed."""
    template = environment().get_template(name)
    return "".join(template.blocks[block](template.new_context(dict(context))))


def load_macro(name: str, macro: str) -> Callable[..., str]:
    """Return a macro of a template, to be called for each of many rows: that costs no context."""
    return cast(Callable[..., str], getattr(_module(name), macro))


@cache
def _module(name: str) -> object:
    return environment().get_template(name).module


def _clean(text: object) -> str:
    """Return a stranger's text without control characters; it is escaped when it is written."""
    return display_text(str(text))


def _line(text: object, limit: int = 120) -> str:
    return display_line(str(text)[: limit * 8], limit)


def _clock(moment: datetime | None, *, seconds: bool = False, alone: bool = True) -> Markup:
    """Return a time in the zone of the page, with UTC as its title; as short as is clear.

    Where the day stands beside it, it is not `alone`.
    """
    if moment is None:
        return Markup('<span class="none">–</span>')
    return _clock_html(moment, datetime.now(zone()).date() if alone else None, seconds)


@lru_cache(maxsize=5_000)
def _clock_html(moment: datetime, today: date | None, seconds: bool) -> Markup:
    """Return a time as HTML, with its day if it is not today; lists show the same ones often."""
    local = moment.astimezone(zone())
    label = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    if today is not None and local.date() != today:
        day = f"{local.day} {local:%b}" if local.year == today.year else f"{local:%Y-%m-%d}"
        label = f"{day}, {label}"
    utc = moment.astimezone(UTC).isoformat(sep=" ", timespec="seconds")[:19]
    # Digits and the name of a month: nothing in it has to be escaped.
    return Markup(  # noqa: S704
        f'<time datetime="{utc[:10]}T{utc[11:]}Z" title="{utc} UTC">{label}</time>'
    )


def _day(moment: datetime) -> str:
    local = moment.astimezone(zone())
    return f"{local:%A}, {local.day} {local:%B %Y}"


def _date(day: date) -> str:
    """Return a day, short: 19 Oct; with its year if that is not this one."""
    is_this_year = day.year == datetime.now(zone()).year
    return f"{day.day} {day:%b}" if is_this_year else f"{day.day} {day:%b %Y}"


# Why a session ended or will end, as people say it; any other reason is shown as it is.
_REASONS = {
    "idle": "nobody wrote for a while", "daily": "a new day began", "user": "a person ended it",
    "new": "a new one was begun", "switch": "another one was resumed",
    "fork": "it was forked", "imported": "it was imported as an ended one",
}  # fmt: skip


def _reason(reason: object) -> str:
    return _REASONS.get(str(reason), str(reason))


def _count(number: int | None) -> str:
    return format.NO_VALUE if number is None else f"{number:,}"


def _tokens(number: int | None) -> str:
    """Return a number of tokens, short: 950, 12.3 k, 4.1 M."""
    if number is None:
        return format.NO_VALUE
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size * 10:
            return f"{number / size:,.0f} {unit}"
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return str(number)


def _money(amount: float | None) -> str:
    return "unknown" if amount is None else format.format_dollars(amount)


def _cost(usage: Usage) -> str:
    return format.format_cost(usage)


def _duration(seconds: float) -> str:
    """Return a span of time in its largest units: 45 s, 12 min, 3 h 20 min, 2 days 4 h."""
    whole = round(seconds)
    units = ((86_400, "day" if whole < 2 * 86_400 else "days"), (3_600, "h"), (60, "min"))
    for index, (size, unit) in enumerate(units):
        if whole >= size:
            text = f"{whole // size} {unit}"
            if index + 1 < len(units) and (rest := whole % size // units[index + 1][0]):
                text += f" {rest} {units[index + 1][1]}"
            return text
    return f"{whole} s"


def _json(value: object) -> str:
    return display_json(value)


def _json_line(value: object) -> str:
    return display_json(value, indent=None)


def _platform(name: str) -> str:
    return registry.platform(name).title


def _title(session: Session) -> str:
    return display_line(format.session_name(session)[:1000], 120)


_BROWSERS = (("Edg", "Edge"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("Mac OS", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def _browser(agent: str) -> str:
    """Return what a browser calls itself, short: Firefox on Linux."""
    name = next((label for text, label in _BROWSERS if text in agent), None)
    system = next((label for text, label in _SYSTEMS if text in agent), None)
    if name is None:
        return display_line(agent, 80) or "A browser without a name"
    return name if system is None else f"{name} on {system}"
