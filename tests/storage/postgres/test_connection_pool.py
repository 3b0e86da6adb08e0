"""Connections are lent to one caller at a time, and nobody waits while one is free."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tertulia.storage.postgres import connection_pool as module
from tertulia.storage.postgres.batch import BatchConnection
from tertulia.storage.postgres.connection_pool import Connections
from tests.records.store_inspection import PATIENCE
from tests.servers.postgres import Server

MOST = 16


@pytest.fixture
def connections(postgres: Server) -> Iterator[Connections]:
    address = postgres.database()
    lender = Connections(address, {"autocommit": True}, PATIENCE)
    yield lender
    lender.close()
    postgres.drop(address)


def test_connection_is_lent_again(connections: Connections) -> None:
    connection = connections.take()
    connections.put_back(connection)
    assert connections.take() is connection
    connections.put_back(connection)


def test_lost_connection_is_replaced(connections: Connections) -> None:
    connection = connections.take()
    connection.close()
    connections.put_back(connection)
    with connections.borrowed() as other:
        assert other.execute("select 1").fetchone() == (1,)


def test_connection_in_a_transaction_is_not_lent_as_it_is(connections: Connections) -> None:
    with connections.borrowed() as connection:
        connection.execute("begin")
    with connections.borrowed() as other:
        assert other.info.transaction_status == 0


def test_connection_goes_back_to_the_pool_at_times(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_USES", 3)
    sizes = []
    for _ in range(4):
        with connections.borrowed():
            pass
        sizes.append(len(connections._ready))
    assert sizes == [1, 1, 0, 1]


def test_the_connection_that_was_used_last_is_lent_first(connections: Connections) -> None:
    taken = [connections.take() for _ in range(MOST)]
    for connection in taken:
        connections.put_back(connection)
    used = set()
    for _ in range(3 * MOST):
        with connections.borrowed() as connection:
            used.add(connection)
    assert used == {taken[-1]}


def test_connections_that_nobody_needs_go_back_to_the_pool(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(module, "_LOOK_EVERY", 1)
    taken = [connections.take() for _ in range(MOST)]
    for connection in taken:
        connections.put_back(connection)
    for _ in range(MOST):
        with connections.borrowed():
            pass
    assert len(connections._ready) == module._KEPT


def test_waiting_caller_gets_the_connection_that_is_put_back(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POOL_SECONDS", 2 * PATIENCE)  # the pool is asked once
    taken = [connections.take() for _ in range(MOST)]
    received: list[BatchConnection] = []
    waiter = threading.Thread(target=lambda: received.append(connections.take()))
    waiter.start()
    while not connections._waiting:
        pass
    connections.put_back(taken.pop())
    waiter.join(PATIENCE)
    assert len(received) == 1
    for connection in taken + received:
        connections.put_back(connection)


def test_no_two_callers_have_the_same_connection(connections: Connections) -> None:
    lent: set[BatchConnection] = set()
    lock = threading.Lock()
    problems: list[str] = []

    def use() -> None:
        for _ in range(300):
            with connections.borrowed() as connection:
                with lock:
                    if connection in lent:
                        problems.append("a connection was lent twice")
                    lent.add(connection)
                with lock:
                    lent.remove(connection)

    threads = [threading.Thread(target=use) for _ in range(2 * MOST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert problems == []
