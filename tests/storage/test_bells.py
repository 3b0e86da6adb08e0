"""Bells between processes: what one program rings, another one hears."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tertulia.storage.postgres import notify
from tertulia.testing.fixtures import (
    dm,
    until,
)
from tests.servers.postgres import Server

PUT = """
import sys, tertulia
from tertulia import Source
with tertulia.open(sys.argv[1]) as store:
    store.inbox.put(Source("telegram", "42"), "hello")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "talk.db")
    server: Server = request.getfixturevalue("postgres")
    return server.database(server.template)


def test_another_process_is_heard(where: str) -> None:
    with tertulia.open(where) as store:
        child = subprocess.Popen([sys.executable, "-c", PUT, where])
        assert store.inbox.wait(60)
        assert child.wait() == 0


def test_without_bells_it_is_found_all_the_same(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that passes no notification on."""
    monkeypatch.setattr(notify, "CHANNEL", "nobody_rings_here")
    with tertulia.open(where) as store:
        child = subprocess.Popen([sys.executable, "-c", PUT, where])
        assert store.inbox.wait(60)
        assert child.wait() == 0


def test_a_listener_whose_connection_was_cut_hears_again(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(notify, "_REST_SECONDS", 0.01)
    address = postgres.database(postgres.template)
    listeners = "select pid from pg_stat_activity where query like 'listen%%' and datname = %s"
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    with tertulia.open(address) as store, psycopg.connect(address, autocommit=True) as aside:
        database = store.context.db
        database.wait("noon", database.notifications("noon"), 0.01)
        until(lambda: aside.execute(listeners, (name,)).fetchone(), "it listens")
        aside.execute(f"select pg_terminate_backend(pid) from ({listeners}) cut", (name,))
        before = database.notifications("noon")

        def is_heard() -> bool:
            aside.execute("select pg_notify('tertulia', 'noon')")
            database.wait("noon", before, 0.05)
            return database.notifications("noon") > before

        until(is_heard, "it listens again")


def test_closing_ends_a_wait(where: str) -> None:
    import threading

    store = tertulia.open(where)
    problems: list[tertulia.Error] = []

    def wait() -> None:
        try:
            store.inbox.wait(1e6)
        except tertulia.Error as problem:
            problems.append(problem)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    store.close()
    waiter.join(60)
    assert not waiter.is_alive()
    assert [problem.code for problem in problems] == ["store"]


def test_a_message_wakes_who_waits(where: str) -> None:
    with tertulia.open(where) as store:
        assert not store.inbox.wait(0.01)
        store.inbox.put(dm("42"), "hello")
        assert store.inbox.wait(0)
