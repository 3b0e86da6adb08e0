"""LISTEN and NOTIFY between processes."""

from __future__ import annotations

import pytest

import tertulia
from tertulia.storage.postgres import notify
from tertulia.testing.fixtures import wait_until
from tests.servers.postgres import Server


def test_listener_reconnects_after_a_lost_connection(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

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
