"""Format the table of `tertulia sessions list`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tertulia.cli import format, output
from tertulia.cli.session_details import short_name
from tertulia.core.session import Session
from tertulia.records.machine_zone import machine_zone

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# The columns of a list, each with the narrowest terminal in which it is shown.
_MIN_WIDTH_BY_COLUMN = {
    "id": 0,
    "name": 0,
    "platform": 0,
    "state": 0,
    "active": 0,
    "messages": 110,
    "tokens": 110,
    "cost": 95,
}


def table(sessions: Sequence[Session], lengths: Mapping[str, int], width: int) -> Table:
    """Return a list for a terminal of that width; `lengths` maps ids to message counts."""
    columns = [name for name, needed in _MIN_WIDTH_BY_COLUMN.items() if width >= needed]
    rows = output.new_table(*columns, elastic="name", numbers=("messages", "tokens", "cost"))
    now, zone = datetime.now(UTC), machine_zone()
    for session in sessions:
        cells: dict[str, Text | str] = {
            "id": session.id,
            "name": output.cell(short_name(session), style="bold" if session.title else ""),
            "platform": output.cell(session.origin.platform),
            "state": _state(session, with_reason="messages" in columns),
            "active": format.age_or_date(session.updated_at, now, zone),
            "messages": str(lengths[session.id]),
            "tokens": format.short_count(session.usage.total)
            if session.usage.total
            else format.NO_VALUE,
            "cost": format.format_cost(session.usage),
        }
        rows.add_row(*(cells[name] for name in columns))
    return rows


def _state(session: Session, *, with_reason: bool) -> Text:
    if session.ended_at is None:
        return output.cell("current", style="green")
    return output.cell(format.session_state(session) if with_reason else "ended", style="dim")
