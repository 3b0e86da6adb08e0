"""Opening stores on a server, and the faults that the tests of PostgreSQL cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import tertulia
from tertulia import Settings, Source, Store
from tertulia.errors import StoreError
from tests.records.store_inspection import without_index
from tests.servers.proxy import TIMEOUT

ANNA = Source("telegram", "anna", user_id="anna")


def opened(where: str, **settings: Any) -> Store:
    chosen = {"zone": "UTC", "busy_seconds": 5, **settings}
    return without_index(tertulia.open(where, settings=Settings(**chosen)))


@contextmanager
def refused(kind: type[StoreError], text: str) -> Iterator[None]:
    """Assert that the block raises this class with this text and a hint."""
    with pytest.raises(kind, match=text) as caught:
        yield
    assert caught.value.hint


@contextmanager
def as_owner(address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def terminate_all(address: str) -> int:
    """Terminate every other connection to a database; return how many there were."""
    with as_owner(address) as connection:
        rows = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
        return len(rows)


def in_threads(
    count: int, work: Callable[[int], object], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Run `work` in `count` threads and `meanwhile` in this one; raise the first exception."""
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:  # noqa: BLE001 — raised again below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a thread did not end in time"
    if problems:
        raise problems[0]
