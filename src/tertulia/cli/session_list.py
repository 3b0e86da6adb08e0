"""Format the table of `tertulia sessions list`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tertulia.cli import format, output
from tertulia.cli.session_details import short_name
from tertulia.core.session import Session
from tertulia.core.source import LOCAL
from tertulia.core.text.excerpt import shorten
from tertulia.records.machine_zone import machine_zone

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# The columns of a list, each with the narrowest terminal in which it is shown: the name is never
# the first to shrink.
_MIN_WIDTH_BY_COLUMN = {
    "": 0,
    "name": 0,
    "where": 50,
    "active": 40,
    "messages": 90,
    "tokens": 130,
    "cost": 120,
    "id": 60,
}
# Narrower terminals show the last part of an id, which every command understands.
_MIN_WIDTH_OF_LONG_IDS = 110


def table(
    sessions: Sequence[Session], names: Mapping[str, str], lengths: Mapping[str, int], width: int
) -> Table:
    """Return a list for a terminal of that width; names and message counts are by session id."""
    columns = [name for name, needed in _MIN_WIDTH_BY_COLUMN.items() if width >= needed]
    rows = output.new_table(*columns, elastic="name", numbers=("messages", "tokens", "cost"))
    now, zone = datetime.now(UTC), machine_zone()
    place_width = 30 if width >= _MIN_WIDTH_OF_LONG_IDS else 20
    for session in sessions:
        cells: dict[str, Text | str] = {
            "": _mark(session),
            "name": output.cell(names[session.id], style="bold" if session.title else ""),
            "where": output.cell(shorten(place_of(session), place_width)),
            "active": format.age_or_date(session.updated_at, now, zone),
            "messages": str(lengths[session.id]),
            "tokens": format.short_count(session.usage.total)
            if session.usage.total
            else format.NO_VALUE,
            "cost": format.format_cost(session.usage),
            "id": session.id
            if width >= _MIN_WIDTH_OF_LONG_IDS
            else session.id.rpartition("_")[2][:8],
        }
        rows.add_row(*(cells[name] for name in columns))
    return rows


def name_of(session: Session, first_words: str | None) -> str:
    """Return the name of a session: its title, else what the person said first, else its origin."""
    if session.title:
        return short_name(session)
    if first_words:
        return f'"{output.display_line(first_words)}"'
    return short_name(session)


def place_of(session: Session) -> str:
    """Return where the conversation is: the platform, and whom or which chat it is with."""
    source = session.origin
    if source.platform == LOCAL:
        return "terminal"
    return f"{source.platform}, {source.chat_name or source.user_name or source.chat_id}"


def _mark(session: Session) -> Text:
    if session.ended_at is None:
        return output.cell("●", style="green")
    return output.cell("○", style="dim")
