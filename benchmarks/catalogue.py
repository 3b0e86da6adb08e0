"""Every row by name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.report import Row
from benchmarks.rows import (
    callers,
    disk,
    exchange,
    find,
    gateway,
    importing,
    listing,
    moving,
    newest,
    opening,
    processes,
    search,
    turn,
)
from benchmarks.stage import Stage

ROWS: dict[str, Callable[[Stage], Sequence[Row]]] = {
    "turn_safe": turn.run_safe,
    "turn_fast": turn.run_fast,
    "exchange": exchange.run,
    "find": find.run,
    "newest": newest.run,
    "list": listing.run,
    "callers": callers.run,
    "open": opening.run,
    "import": importing.run,
    "disk": disk.run,
    "moving_in": moving.run,
    "search": search.run,
    "processes": processes.run,
    "gateway": gateway.run,
}
