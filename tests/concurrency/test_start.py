"""Several processes that open the same store at once: one migrates it, and all work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import tertulia
from tertulia import Settings
from tertulia.storage import statements
from tertulia.storage.postgres import migrate as postgres_migrate
from tertulia.storage.sqlite import migrate as sqlite_migrate
from tertulia.testing import FakeClock
from tests.servers.postgres import Server
from tests.storage.child_process import ChildProcess

pytestmark = pytest.mark.check

PROGRAMS = 6


# A session with a message, in the schema of the first migration.
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
    """The location of a store that does not exist yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "talk.db")
        return
    running: Server = request.getfixturevalue("postgres")
    address = running.database()
    yield address
    running.drop(address)


def create_old_store(where: str) -> None:
    """Create a store with the first migration only."""
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
    """Return the applied migrations, each with the transaction that applied it."""
    if where.startswith("postgresql:"):
        with psycopg.connect(where) as connection:
            return connection.execute(
                "select name, xmin::text from migrations order by name"
            ).fetchall()
    file = apsw.Connection(where)
    rows = file.execute("select name, applied_at from migrations order by name").fetchall()
    file.close()
    return rows


@pytest.mark.parametrize("is_old", [False, True], ids=["empty", "old"])
def test_one_of_several_starting_processes_migrates(empty: str, is_old: bool) -> None:
    """Exactly one process migrates, and all of them work."""
    if is_old:
        create_old_store(empty)
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("open_first", [empty], 4)) for _ in range(PROGRAMS)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        reports = [child.read() for child in children]
    assert [report["problems"] for report in reports] == [[]] * PROGRAMS
    # The secret of the installation is created with the store, by one of them.
    assert len({tuple(report["secrets"]) for report in reports}) == 1
    applied = migrations_of(empty)
    assert [name for name, _ in applied] == [name for name, _ in statements.migrations("sqlite")]
    new = applied[1:] if is_old else applied
    if empty.startswith("postgresql:"):
        assert len({transaction for _, transaction in new}) == 1
    with tertulia.open(empty, settings=Settings(zone="UTC"), clock=FakeClock()) as store:
        assert store.sessions.count() == 4 * PROGRAMS + is_old
        assert store.check() == []
        if is_old:
            transcript = store.transcript("20240101_000000_0000abcd")
            assert transcript.load() == [{"role": "user", "content": "long ago"}]
            assert len(store.search("ago").items) == 1
