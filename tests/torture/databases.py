"""What is done to a database while nodes work on it."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg

from tests.servers.postgres import name_in


def cutter(address: str, seed: int) -> Callable[[], int]:
    """Cuts some connections of a database, in whatever they are doing."""
    chance = random.Random(seed)

    def cut() -> int:
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                pids = connection.execute(
                    "select pid from pg_stat_activity"
                    " where datname = %s and pid <> pg_backend_pid()",
                    (name_in(address),),
                ).fetchall()
                chosen = chance.sample(pids, min(len(pids), chance.randint(1, 6)))
                for (pid,) in chosen:
                    connection.execute("select pg_terminate_backend(%s)", (pid,))
                return len(chosen)
        except psycopg.OperationalError:
            return 0

    return cut
