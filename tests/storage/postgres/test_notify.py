"""LISTEN and NOTIFY between processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import tertulia
from tertulia.storage.postgres import notify
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.testing.fixtures import wait_until
from tests.servers.postgres import Server


def test_listener_reconnects_after_a_lost_connection(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_RECONNECT_SECONDS", 0.01)
    address = postgres.database(postgres.template)
    listeners = "select pid from pg_stat_activity where query like 'listen%%' and datname = %s"
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    with tertulia.open(address) as store, psycopg.connect(address, autocommit=True) as aside:
        database = store.context.db
        database.wait("noon", database.notifications("noon"), 0.01)
        wait_until(lambda: aside.execute(listeners, (name,)).fetchone(), "it listens")
        aside.execute(f"select pg_terminate_backend(pid) from ({listeners}) cut", (name,))
        before = database.notifications("noon")

        def is_notified() -> bool:
            aside.execute("select pg_notify('tertulia', 'noon')")
            database.wait("noon", before, 0.05)
            return database.notifications("noon") > before

        wait_until(is_notified, "it listens again")


def test_burst_of_notifications_is_sent_together(postgres: Server) -> None:
    address = postgres.database(postgres.template)
    name = notify.LISTENER_NAME
    with (
        tertulia.open(address) as store,
        psycopg.connect(address, autocommit=True, application_name=name) as aside,
    ):
        aside.execute(f"listen {notify.CHANNEL}")
        for _ in range(500):
            store.context.db.notify("noon")
        store.context.db.notify("midnight")
        payloads: list[str] = []

        def is_notified() -> bool:
            payloads.extend(one.payload for one in aside.notifies(timeout=0.05))
            return {"noon", "midnight"} <= {*payloads}

        wait_until(is_notified, "both were sent")
    assert len(payloads) < 250
    postgres.drop(address)


def test_nothing_is_sent_if_no_other_process_listens(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.database(postgres.template)
    sent: list[str] = []
    with tertulia.open(address) as store:
        database = store.context.db
        database.wait("noon", database.notifications("noon"), 0.01)  # its own listener
        assert isinstance(database, PostgresDatabase)
        wait_until(lambda: database._listener.pid, "it listens")
        sender = database._sender
        send = sender._send

        def watched(channels: list[str]) -> None:
            send(channels)
            sent.extend(channels)

        monkeypatch.setattr(sender, "_send", watched)
        database.notify("noon")
        wait_until(lambda: sent == ["noon"], "the thread has looked")
        assert not sender._has_listeners
    postgres.drop(address)


def test_no_connection_is_taken_while_nobody_listens(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_LOOK_SECONDS", 1_000)
    monkeypatch.setattr(notify, "_SEND_SECONDS", 0.001)
    address = postgres.database()
    taken: list[int] = []

    @contextmanager
    def connect() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        with psycopg.connect(address, autocommit=True) as connection:
            taken.append(1)
            yield connection

    sender = notify.Sender(connect, lambda: 0, (psycopg.Error,))
    for _ in range(20):
        sender.put("noon")
        wait_until(lambda: not sender._channels, "it was taken out to be sent")
    sender.stop()
    postgres.drop(address)
    assert taken == [1]
