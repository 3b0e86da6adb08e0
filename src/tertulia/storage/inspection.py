"""Inspecting a store without changing it: the parts that are the same for every database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from tertulia.storage import migration

_COUNTS = ("current", "ended", "messages", "people", "calls")
_UNDELIVERED_COUNTS = ("dead", "unknown", "given_up")
_EXAMPLES = 5  # at most so many rows are named for each violation


class Inspection(msgspec.Struct, frozen=True):
    """The state of a store; the counts are None if it is damaged or its schema is not current.

    `dead` and `unknown` count deliveries, `given_up` accepted messages that were not answered.
    """

    applied: list[str]
    pending: list[str]
    journal: str | None = None  # journal mode of a SQLite file
    server: str | None = None  # version of the database server
    size: int | None = None
    damage: str | None = None
    current: int | None = None
    ended: int | None = None
    messages: int | None = None
    people: int | None = None
    calls: int | None = None
    unindexed: int | None = None
    dead: int = 0
    unknown: int = 0
    given_up: int = 0


def pending_migrations(applied: list[str], dialect: str) -> list[str]:
    """Return the names of the migrations that this program would still apply."""
    return [name for name in migration.names(dialect) if name not in applied]


def with_counts(inspection: Inspection, first_row: Callable[[str], Any]) -> Inspection:
    """Return the inspection with its counts; `first_row(name)` executes a statement."""
    counts = dict(zip(_COUNTS, first_row("inspection_counts"), strict=True))
    counts |= zip(_UNDELIVERED_COUNTS, first_row("inspection_undelivered"), strict=True)
    unindexed = first_row("inspection_unindexed")[0]
    return msgspec.structs.replace(inspection, **counts, unindexed=unindexed)


def find_violations(names: Iterable[str], rows: Callable[[str], Iterable[Any]]) -> list[str]:
    """Run every `check_*` statement and describe the violations; `rows(name)` executes one."""
    violations = []
    for name in names:
        if name.startswith("check_"):
            examples = [str(row[0]) for row in islice(rows(name), _EXAMPLES)]
            description = name.removeprefix("check_").replace("_", " ")
            violations += [f"{description}: {', '.join(examples)}"] if examples else []
    return violations
