"""Stores for tests, and statements that inspect or change their rows directly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tertulia
from tertulia import Policies, ResetPolicy, Session, Settings, Source, Store, ToolCall
from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.storage import statements
from tertulia.storage.base import Transaction
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.storage.statements import Query
from tertulia.testing import Handles

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
BEN = Source("telegram", "43", user_id="43", user_name="Ben")
# Tests with the real clock: at four in the morning a daily policy would end their sessions.
IDLE = Policies(default=ResetPolicy(mode="idle"))
FAST = Settings(zone="UTC", durability="fast", policies=IDLE)

# How long a test waits for something that must happen, however busy the machine is.
PATIENCE = 60.0


class Row(NamedTuple):
    """A message in the log, visible or not."""

    seq: int
    turn: int
    role: str
    kind: str | None
    body: dict[str, Any]

    @property
    def content(self) -> Any:
        return self.body.get("content")


def open_apart(where: str | Path, settings: Settings = FAST, **options: Any) -> Store:
    """Open a handle that shares no local turns with others, as another process would."""
    store = without_index(tertulia.open(where, settings=settings, **options))
    store._records.local_turns = LocalTurns()
    return store


def open_beside(handles: Handles) -> Store:
    """Open such a handle on the database and with the clock of `handles`."""
    store = handles.open()
    store._records.local_turns = LocalTurns()
    return store


def without_index(store: Store) -> Store:
    """Stop the indexer of a store, which these tests would only wait for, and return the store."""
    store._indexer.stop()
    return store


def log_of(store: Store, session: Session | str) -> list[Row]:
    """Return every message a session ever stored, in order."""
    name = session if isinstance(session, str) else session.id

    def work(tx: Transaction) -> list[Row]:
        row = tx.one("session_by_id", {"id": name})
        assert row is not None
        found = tx.all("messages_of", {"session": row[0], "first": 1, "last": 2**32 - 1})
        return [Row(m[1], m[2], m[3], m[4], json.loads(m[7])) for m in found]

    return store.context.db.read(work)


def contents(store: Store, session: Session | str) -> list[Any]:
    return [row.content for row in log_of(store, session)]


def ask(store: Store, sql: str, *params: object) -> Any:
    """Return the first value of the first row of a statement, or None."""
    rows = execute(store, sql, *params)
    return rows[0][0] if rows else None


def execute(store: Store, sql: str, *params: object) -> list[Any]:
    """Run a statement directly, past all checks of the store; return its rows."""
    is_postgres = isinstance(store.context.db, PostgresDatabase)

    def work(tx: Any) -> list[Any]:
        if not is_postgres:
            return list(tx._connection.execute(sql, params).fetchall())
        tx._batch.put(statements.number_parameters(sql), params)
        return list(tx._batch.rows(tx.receive()[-1]))

    return store.context.db.write(work)


def read_all(store: Store, queries: Iterable[str]) -> list[list[Any]]:
    """Return the rows of each query; on PostgreSQL all are sent together."""

    def work(tx: Any) -> list[list[Any]]:
        if not isinstance(store.context.db, PostgresDatabase):
            return [list(tx._connection.execute(sql).fetchall()) for sql in queries]
        before = len(tx._batch._commands)
        for sql in queries:
            tx._batch.put(Query(sql.encode()))
        return [tx._batch.rows(result) for result in tx.receive()[before:]]

    return store.context.db.read(work)


def now_in(store: Store) -> int:
    """Return the database's time, which leases are measured by."""
    ((now,),) = store.context.db.query("db_now")
    assert isinstance(now, int)
    return now


def let_lease_run_out(store: Store, session: Session | str) -> None:
    """Make the lease of a session expire, as that of a process that has stopped.

    If the turn is one of this process, it is not renewed any more.
    """
    name = session if isinstance(session, str) else session.id
    holder, *_ = store._records.local_turns._holders.get(name, (None,))
    if holder is not None:
        holder.renew = lambda: True  # type: ignore[method-assign]
    execute(store, "update sessions set lease_until = 1 where id = ? and lease_until > 0", name)


def tickets(store: Store) -> int:
    found = ask(store, "select count(*) from tickets")
    assert isinstance(found, int)
    return found


def turn_states(store: Store) -> list[str]:
    return [row[0] for row in execute(store, "select state from turns order by session, number")]


def call(call_id: str = "c1", name: str = "look") -> ToolCall:
    return ToolCall(call_id, name, {"at": "sky"})


def faults_of(history: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what a model would refuse in a history of the OpenAI form; empty if it is legal."""
    faults: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(history):
        role = message["role"]
        if place == 0 and role != "user":
            faults.append(f"it begins with {role}")
        if role == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                faults.append(f"{place}: a result without its call")
            continue
        if waiting:
            faults.append(f"{place}: no result for {waiting}")
        waiting = [item["id"] for item in message.get("tool_calls", ())]
        if role == "assistant" and not waiting and not message.get("content"):
            faults.append(f"{place}: an empty message")
        if len({*waiting}) < len(waiting) or seen & {*waiting}:
            faults.append(f"{place}: an id is used twice")
        seen |= {*waiting}
    return faults + ([f"no result for {waiting} at the end"] if waiting else [])


def unanswered(rows: Iterable[Row]) -> list[str]:
    """Return the calls of a log that have no result, each id as often as it was called."""
    found: list[str] = []
    for row in rows:
        if row.role == "tool" and row.body["tool_call_id"] in found:
            found.remove(row.body["tool_call_id"])
        found += [item["id"] for item in row.body.get("tool_calls", ())]
    return found


def interrupted(rows: Iterable[Row]) -> list[str]:
    """Return the ids of calls whose result says that they were interrupted."""
    return [
        row.body["tool_call_id"]
        for row in rows
        if row.kind == "interrupted" and row.content == INTERRUPTED_RESULT
    ]
