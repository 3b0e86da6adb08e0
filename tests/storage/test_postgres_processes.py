"""Several programs on one store: those that start at once, and those that are killed.

What the programs do stands in `programs`; they are the same ones that SQLite is tried with.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import tertulia
from tertulia import Settings, Usage
from tertulia.storage import statements
from tertulia.storage.postgres import migrate as postgres_migrate
from tertulia.storage.sqlite import migrate as sqlite_migrate
from tertulia.testing import FakeClock
from tertulia.testing.fixtures import until
from tests.servers.postgres import Server
from tests.storage.children import Child
from tests.storage.programs import source

PROGRAMS = 6
WRITERS = 4
MOMENTS = (0, 50, 1, 10, 2, 3)

# A session with a message, as the first migration alone could hold it.
OLD_ROWS = """
insert into installation (name, value) values ('secret', '{secret}'), ('search_rule', '0');
insert into sessions (id, key, agent, platform, chat_type, person, owner, origin, created_at,
    updated_at, last_seq, turns)
values ('20240101_000000_0000abcd', 'agent:main:telegram:dm:7', 'main', 'telegram', 'dm',
    'telegram:7', 'telegram:7', '{{"platform":"telegram","chat_id":"7","user_id":"7"}}',
    1, 1, 1, 1);
insert into revisions (session, number, ranges, made_by, start_seq, at)
values (1, 1, '[[1,1,null]]', 'start', 0, 1);
insert into messages (place, turn, role, at, body)
values ((1::bigint << 32) + 1, 1, 'user', 1, '{{"role":"user","content":"long ago"}}');
insert into unindexed (session) values (1);
insert into migrations (name, applied_at) values ('{name}', '2024-01-01T00:00:00+00:00');
"""


def old_rows(name: str) -> str:
    return OLD_ROWS.format(name=name, secret=os.urandom(32).hex())


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place where no store is yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "talk.db")
        return
    running: Server = request.getfixturevalue("postgres")
    address = running.database()
    yield address
    running.drop(address)


def make_old(where: str) -> None:
    """A store that has had the first migration only."""
    if where.startswith("postgresql:"):
        name, script = statements.migrations(postgres_migrate.DIALECT)[0]
        with psycopg.connect(where) as connection:
            connection.execute(
                "create table migrations (name text primary key, applied_at text not null)"
            )
            connection.execute(script)
            connection.execute(old_rows(name))
        return
    name, script = statements.migrations(sqlite_migrate.DIALECT)[0]
    file = apsw.Connection(where)
    file.pragma("journal_mode", "wal")
    sqlite_migrate._create(file)
    file.execute(script)
    file.execute(old_rows(name).replace("::bigint", ""))
    file.close()


def migrations_of(where: str) -> list[tuple[Any, ...]]:
    """The migrations a store has had, each with the transaction that it was part of."""
    if where.startswith("postgresql:"):
        with psycopg.connect(where) as connection:
            return connection.execute(
                "select name, xmin::text from migrations order by name"
            ).fetchall()
    file = apsw.Connection(where)
    found = file.execute("select name, applied_at from migrations order by name").fetchall()
    file.close()
    return found


@pytest.mark.parametrize("is_old", [False, True], ids=["empty", "old"])
def test_programs_that_start_at_once(empty: str, is_old: bool) -> None:
    """Exactly one migrates, and all work."""
    if is_old:
        make_old(empty)
    with ExitStack() as stack:
        children = [stack.enter_context(Child("open_first", [empty], 4)) for _ in range(PROGRAMS)]
        for child in children:
            assert child.said() == "ready"
        for child in children:
            child.go_on()
        reports = [child.said() for child in children]
    assert [report["problems"] for report in reports] == [[]] * PROGRAMS
    # The secret of the installation is made with the store, by one of them.
    assert len({tuple(report["secrets"]) for report in reports}) == 1
    had = migrations_of(empty)
    assert [name for name, _ in had] == [name for name, _ in statements.migrations("sqlite")]
    new = had[1:] if is_old else had
    if empty.startswith("postgresql:"):
        assert len({transaction for _, transaction in new}) == 1
    with tertulia.open(empty, settings=Settings(zone="UTC"), clock=FakeClock()) as store:
        assert store.sessions.count() == 4 * PROGRAMS + is_old
        assert store.check() == []
        if is_old:
            transcript = store.transcript("20240101_000000_0000abcd")
            assert transcript.load() == [{"role": "user", "content": "long ago"}]
            assert len(store.search("ago").items) == 1


class Ledger:
    """What the children said, and whether the store says the same."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: dict[str, int] = {}
        self.sessions: dict[str, str] = {}

    def run_and_kill(self, name: str, after: int) -> None:
        """Let a child write, and kill it some moments after it has said so much."""
        durability = random.choice(("safe", "fast"))
        with Child("write_until_killed", self.address, name, WRITERS, durability) as child:
            for _ in range(after):
                self.note(child.said())
            time.sleep(random.uniform(0, 0.005))
            child.kill()
            for line in child.rest():
                self.note(line)

    def note(self, line: object) -> None:
        if isinstance(line, list):
            who, session_id, count = line
            assert count == self.acknowledged.get(who, -1) + 1
            self.acknowledged[who] = count
            self.sessions[who] = session_id

    def wait_for_the_server(self) -> None:
        """What a killed program had asked for is done, or given up, a little later."""
        query = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        with psycopg.connect(self.address, autocommit=True) as connection:
            until(lambda: connection.execute(query).fetchone() == (0,), "the server notices")

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
        found = [m for m in store.transcript(session.id).load() if m["role"] != "system"]
        assert len({m["content"] for m in found}) == len(found), "something is there twice"
        seen: dict[str, list[int]] = {}
        for question, answer in zip(found[::2], found[1::2], strict=True):
            who, count, _ = question["content"].split()
            # Both of a call are there, or none.
            assert answer["content"] == f"{who} {count} assistant"
            assert answer.get("padding", f"{who} {count} " * 5000) == f"{who} {count} " * 5000
            seen.setdefault(who, []).append(int(count))
        for who, counts in seen.items():
            last = self.acknowledged.get(who, -1)
            # In order, and at most one more than it could still say.
            assert counts == list(range(len(counts)))
            assert len(counts) - 1 in (last, last + 1)
        missing = {who for who, found in self.sessions.items() if found == session.id} - set(seen)
        assert not missing
        entered = store.usage.sum("session").get(session.id, Usage())
        assert session.usage.input == entered.input == len(found) // 2


@pytest.mark.parametrize(
    "kills", [20, pytest.param(200, marks=pytest.mark.slow)], ids=["20 times", "200 times"]
)
def test_a_writer_is_killed(postgres: Server, kills: int) -> None:
    ledger = Ledger(postgres.database(postgres.template))
    for number in range(kills):
        # From the first moment of the process to well after many commits; each as often.
        ledger.run_and_kill(f"run{number}", MOMENTS[number % len(MOMENTS)])
        if number % 5 == 4:
            ledger.compare()
    ledger.compare()
    assert len(ledger.acknowledged) >= kills // 5
    postgres.drop(ledger.address)


def test_a_new_store_whose_maker_was_killed(postgres: Server) -> None:
    for _ in range(3):
        ledger = Ledger(postgres.database())
        ledger.run_and_kill("first", 1)  # it has started, and is about to make the tables
        ledger.compare()
        ledger.run_and_kill("second", 20)
        ledger.compare()
        postgres.drop(ledger.address)


def test_the_same_sources_at_once(postgres: Server) -> None:
    """4 programs × 8 threads: one session per key, no error, no lost message, no lost usage."""
    address = postgres.database(postgres.template)
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child("converse", address, f"p{n}", 8, 20, 1)) for n in range(4)
        ]
        for child in children:
            assert child.said() == "ready"
        for child in children:
            child.go_on()
        reports = [child.said() for child in children]
    assert [report["problems"] for report in reports] == [[]] * 4
    written = [tuple(line) for report in reports for line in report["written"]]
    assert len({(place, session_id) for place, session_id, _ in written}) == len(
        {place for place, _, _ in written}
    )
    with tertulia.open(address, settings=Settings(zone="UTC")) as store:
        for session in store.sessions.find(limit=100).items:
            own = sorted(text for _, session_id, text in written if session_id == session.id)
            assert sorted(m["content"] for m in store.transcript(session.id).load()) == own
            assert (session.usage.input, session.usage.output) == (len(own), len(own))
        assert store.check() == []
    postgres.drop(address)


def test_notices_go_to_one_of_many(postgres: Server) -> None:
    address, clock = postgres.database(postgres.template), FakeClock()
    with tertulia.open(address, settings=Settings(zone="UTC"), clock=clock) as store:
        before = {n: store.sessions.open(source(n)).id for n in range(20)}
    later = clock.forward(days=3).isoformat()
    with ExitStack() as stack:
        children = [stack.enter_context(Child("come_back", address, later, 20)) for _ in range(4)]
        for child in children:
            assert child.said() == "ready"
        for child in children:
            child.go_on()
        told = [report for child in children for report in child.rest()]
    assert len(told) == 4 * 20
    notices = sorted((number, about) for number, _, about in told if about is not None)
    assert notices == sorted(before.items())
    postgres.drop(address)
