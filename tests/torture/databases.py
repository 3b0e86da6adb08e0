"""Faults of a database while nodes work on it."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg

from tests.servers.postgres import name_in


def connection_killer(address: str, seed: int) -> Callable[[], int]:
    """Return a function that terminates random connections and returns their number."""
    generator = random.Random(seed)

    def kill_connections() -> int:
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                pids = connection.execute(
                    "select pid from pg_stat_activity"
                    " where datname = %s and pid <> pg_backend_pid()",
                    (name_in(address),),
                ).fetchall()
                chosen = generator.sample(pids, min(len(pids), generator.randint(1, 6)))
                for (pid,) in chosen:
                    connection.execute("select pg_terminate_backend(%s)", (pid,))
                return len(chosen)
        except psycopg.OperationalError:
            return 0

    return kill_connections
