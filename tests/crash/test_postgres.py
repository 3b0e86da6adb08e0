"""`kill -9` at arbitrary moments, on PostgreSQL: acknowledged writes are there, once."""

from __future__ import annotations

import random
import time

import psycopg
import pytest

import tertulia
from tertulia import Settings, Usage
from tertulia.testing.fixtures import wait_until
from tests.servers.postgres import Server
from tests.storage.child_process import ChildProcess

pytestmark = pytest.mark.check

WRITERS = 4


MOMENTS = (0, 50, 1, 10, 2, 3)


class Ledger:
    """The lines of the child processes, and the comparison with the store."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: dict[str, int] = {}
        self.sessions: dict[str, str] = {}

    def run_and_kill(self, name: str, after: int) -> None:
        """Start a child that writes, and kill it shortly after it has reported `after` lines."""
        durability = random.choice(("safe", "fast"))
        with ChildProcess("write_until_killed", self.address, name, WRITERS, durability) as child:
            for _ in range(after):
                self.note(child.read())
            time.sleep(random.uniform(0, 0.005))
            child.kill()
            for line in child.read_all():
                self.note(line)

    def note(self, line: object) -> None:
        if isinstance(line, list):
            who, session_id, count = line
            assert count == self.acknowledged.get(who, -1) + 1
            self.acknowledged[who] = count
            self.sessions[who] = session_id

    def wait_for_the_server(self) -> None:
        """Wait until the server has finished or given up the requests of the killed process."""
        query = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        with psycopg.connect(self.address, autocommit=True) as connection:
            wait_until(lambda: connection.execute(query).fetchone() == (0,), "the server notices")

    def compare(self) -> None:
        self.wait_for_the_server()
        with tertulia.open(self.address, settings=Settings(zone="UTC")) as store:
            assert store.check() == []
            for session in store.sessions.find(limit=1000, platform="telegram").items:
                self.compare_session(store, session)
                before = store.transcript(session.id).count()
                store.transcript(session.id).append({"role": "system", "content": "went on"})
                assert store.transcript(session.id).count() == before + 1
            store.settle()
            assert store.check() == []

    def compare_session(self, store: tertulia.Store, session: tertulia.Session) -> None:
        messages = [m for m in store.transcript(session.id).load() if m["role"] != "system"]
        assert len({m["content"] for m in messages}) == len(messages), "something is there twice"
        counts_by_writer: dict[str, list[int]] = {}
        for question, answer in zip(messages[::2], messages[1::2], strict=True):
            who, count, _ = question["content"].split()
            # Both messages of a call are stored, or none.
            assert answer["content"] == f"{who} {count} assistant"
            assert answer.get("padding", f"{who} {count} " * 5000) == f"{who} {count} " * 5000
            counts_by_writer.setdefault(who, []).append(int(count))
        for who, counts in counts_by_writer.items():
            last = self.acknowledged.get(who, -1)
            # In order, and at most one more than it could report.
            assert counts == list(range(len(counts)))
            assert len(counts) - 1 in (last, last + 1)
        missing = {
            who for who, session_id in self.sessions.items() if session_id == session.id
        } - set(counts_by_writer)
        assert not missing
        entered = store.usage.sum("session").get(session.id, Usage())
        assert session.usage.input == entered.input == len(messages) // 2


@pytest.mark.parametrize(
    "kills", [20, pytest.param(200, marks=pytest.mark.slow)], ids=["20 times", "200 times"]
)
def test_acknowledged_writes_survive_kill(postgres: Server, kills: int) -> None:
    ledger = Ledger(postgres.database(postgres.template))
    for number in range(kills):
        # From the start of the process to long after many commits, each equally often.
        ledger.run_and_kill(f"run{number}", MOMENTS[number % len(MOMENTS)])
        if number % 5 == 4:
            ledger.compare()
    ledger.compare()
    assert len(ledger.acknowledged) >= kills // 5
    postgres.drop(ledger.address)


def test_new_store_survives_kill_of_its_creator(postgres: Server) -> None:
    for _ in range(3):
        ledger = Ledger(postgres.database())
        ledger.run_and_kill("first", 1)  # it has started and is about to create the tables
        ledger.compare()
        ledger.run_and_kill("second", 20)
        ledger.compare()
        postgres.drop(ledger.address)
