"""The parts of an inspection that are the same for every database."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import Settings, Source, Usage
from tertulia.storage import connect, statements
from tertulia.storage.inspection import Inspection, find_violations, pending_migrations, with_counts


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_pending_migrations_are_those_not_applied(dialect: str) -> None:
    names = [name for name, _ in statements.migrations(dialect)]
    assert pending_migrations([], dialect) == names
    assert pending_migrations(names[:2], dialect) == names[2:]
    assert pending_migrations(names, dialect) == []


def test_counts_are_assigned_in_the_order_of_the_statements() -> None:
    rows = {
        "inspection_counts": (1, 2, 3, 4, 5),
        "inspection_undelivered": (6, 7, 8),
        "inspection_unindexed": (9,),
    }
    inspection = with_counts(Inspection(["0001"], []), rows.__getitem__)
    assert inspection == Inspection(
        ["0001"], [], current=1, ended=2, messages=3, people=4, calls=5,
        dead=6, unknown=7, given_up=8, unindexed=9,
    )  # fmt: skip


def test_violations_are_described_by_the_name_of_the_statement() -> None:
    sql = {"check_a_row_is_missing": "", "check_all_is_well": "", "session_get": ""}
    rows = {"check_a_row_is_missing": [(n,) for n in range(9)], "check_all_is_well": []}
    assert find_violations(sql, rows.__getitem__) == ["a row is missing: 0, 1, 2, 3, 4"]


def test_inspection_counts_the_content_of_a_store(where: str) -> None:
    with tertulia.open(where, settings=Settings(zone="UTC")) as store:
        first = store.sessions.open(Source("telegram", "1", user_id="1"))
        store.sessions.reset(first.key)
        store.transcript(first.id).append({"role": "user", "content": "hello"})
        store.usage.add(first.id, Usage(1, 1, model="m"))
        store.settle()
    inspection = connect.inspect_store(where)
    assert inspection.pending == []
    assert (inspection.current, inspection.ended) == (1, 1)
    assert (inspection.messages, inspection.people, inspection.calls) == (1, 1, 1)
    assert (inspection.unindexed, inspection.dead, inspection.given_up) == (0, 0, 0)
