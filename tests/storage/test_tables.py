"""The list of tables that an archive or a move copies."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import Settings, Source, StoreError
from tertulia.storage import statements, tables
from tertulia.storage.base import Row, Transaction

SQL = statements.load("sqlite")


def test_every_table_has_its_statements() -> None:
    for table in tables.TABLES:
        for name in (
            f"copy_{table.name}_page",
            f"copy_{table.name}_put",
            f"move_{table.name}_drop",
        ):
            assert name in SQL, name


def test_key_columns_are_copied() -> None:
    for table in tables.TABLES:
        assert set(table.key) <= set(table.columns), table.name


def test_pages_return_every_row_once_in_the_order_of_the_key(where: str) -> None:
    people = next(table for table in tables.TABLES if table.name == "people")
    small = people._replace(page=2)
    with tertulia.open(where, settings=Settings(zone="UTC")) as store:
        for number in range(5):
            store.sessions.open(Source("telegram", f"{number}", user_id=f"{number}"))

        def read(tx: Transaction) -> list[list[Row]]:
            return list(small.pages(tx))

        pages = store.context.db.read(read)
    assert [len(page) for page in pages] == [2, 2, 1]
    keys = [row[0] for page in pages for row in page]
    assert keys == sorted(keys)
    assert len(set(keys)) == 5


def test_only_an_unused_store_is_empty(where: str) -> None:
    with tertulia.open(where, settings=Settings(zone="UTC")) as store:
        assert store.context.db.read(tables.is_empty)
        store.sessions.open(Source("telegram", "1"))
        assert not store.context.db.read(tables.is_empty)


def test_rows_are_deleted_by_their_keys(where: str) -> None:
    people = next(table for table in tables.TABLES if table.name == "people")
    with tertulia.open(where, settings=Settings(zone="UTC")) as store:
        for number in range(3):
            store.sessions.open(Source("telegram", f"{number}", user_id=f"{number}"))
        context = store.context
        first, *rest = context.read(lambda tx: people.page_after(tx, people.lowest_key))
        assert context.read(tables.count_rows) > 0
        context.write(lambda tx: people.delete(tx, rest))
        assert context.read(lambda tx: people.page_after(tx, people.lowest_key)) == [first]


def test_a_store_that_was_closed_for_good_takes_no_writes(where: str) -> None:
    with tertulia.open(where) as store:
        store.context.write(tables.close_for_good)
        with pytest.raises(StoreError):
            store.sessions.open(Source("telegram", "1"))
