"""Every row by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.report import Row
from benchmarks.rows import (
    callers,
    console,
    crowd,
    disk,
    exchange,
    find,
    folder_import,
    gateway,
    import_time,
    listing,
    newest,
    open_store,
    processes,
    search,
    telegram,
    turn,
    usage,
)
from benchmarks.run_context import RunContext

ROWS: dict[str, Callable[[RunContext], Sequence[Row]]] = {
    "turn_safe": turn.run_safe,
    "turn_fast": turn.run_fast,
    "exchange": exchange.run,
    "find": find.run,
    "newest": newest.run,
    "list": listing.run,
    "callers": callers.run,
    "open": open_store.run,
    "import": import_time.run,
    "disk": disk.run,
    "moving_in": folder_import.run,
    "search": search.run,
    "processes": processes.run,
    "gateway": gateway.run,
    "telegram": telegram.run,
    "crowd": crowd.run,
    "console": console.run,
    "usage": usage.run,
}
