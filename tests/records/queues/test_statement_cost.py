"""What a queue statement reads does not grow with what waits, on both databases.

The test measures the work itself: on SQLite the instructions of its virtual machine, on PostgreSQL
the rows that the nodes of a plan have read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.storage import statements
from tertulia.storage.base import Transaction
from tests.records.store_inspection import execute, now_in
from tests.servers.postgres import Server

LIMIT = 10
NOW = 2_000_000_000_000_000
FEW, MANY = 150, 1_500
# With fewer rows PostgreSQL reads a small table whole, since it is a few pages.
MANY_ON_POSTGRES = 6_000
# A statement may read what it returns and look each of them up a few times.
MOST_ROWS = 20 * LIMIT
MOST_STEPS = 1.3

QUEUES = re.compile(r"(inbox|outbox|occurrence|schedule|memory_flush|ticket)s?_")
# `schedules_of` sorts the schedules of one person; nothing waits in it. The other two look at the
# results that are on their way to a platform.
EXCEPT = {"schedules_of"}
PARAMS: dict[str, Any] = {
    "now": NOW,
    "db_now": NOW,
    "future": NOW + 60_000_000,
    "node": "machine:1:a",
    "node_life": 30_000_000,
    "lease": 60_000_000,
    "limit": LIMIT,
    "after": 0,
    "since": NOW,
    "hash": "none",
    "id": 1,
    "attempts": 0,
    "state": "waiting",
    "tries": 3,
    "problem": None,
    "not_before": NOW,
    "paused_at": 0,
    "key": "busy",
    "person": "busy",
    "people": LIMIT,
    "room": LIMIT,
    "rooms": '{"busy": 0}',
    "worker": "machine:1:a",
    "waiting_limit": LIMIT,
    "accounts": f'[["telegram", null, {LIMIT}], ["telegram", "", {LIMIT}], ["web", "x", 1]]',
    "arrival": "busy-1",
    "session": 1,
    "session_id": "s1",
    "platform": "telegram",
    "account": "",
    "chat_id": "busy",
    "thread_id": None,
    "schedule": 1,
    "planned_at": 1,
    "since_at": 1,
    "is_manual": 0,
    "ended_at": None,
    "owner": "busy",
    "shared": "busy",
    "delivery": "new",
    "result": None,
    "source": "{}",
    "origin": "{}",
    "body": "{}",
    "into": 1,
    "target": "origin",
    "task": "x",
    "rule": "{}",
    "misfire": "once",
    "next_at": NOW,
    "before": NOW,
    "message_id": None,
    "waived": 0,
}

# In one chat everything waits behind its head. Besides, many chats have one entry each: due,
# paused, or settled.
_SEED = """
with recursive numbers (i) as (select 1 union all select i + 1 from numbers where i < {count})
insert into {table} ({columns}) select {values} from numbers
"""
# Not tables: rows that the statement itself has made, as many as its limit.
_DERIVED = (
    "CONSTANT|ended|early|people_due|after_last|from_start|first_person|heads|next|waiting"
    "|counted|json_each|dead_ones|claimed_ones|unknown_ones|due|undelivered"
)
_STATES = (("waiting", 0, 0), ("waiting", 1, 0), ("waiting", 1, NOW // 2), ("done", 0, 0))


def test_every_queue_statement_is_measured() -> None:
    assert len(_names("sqlite")) > 40
    assert _names("sqlite") == _names("postgres")


def test_sqlite_does_not_read_what_waits(tmp_path: Path) -> None:
    steps = {count: _steps_on_sqlite(tmp_path / f"{count}.db", count) for count in (FEW, MANY)}
    grown = {
        name: (few, steps[MANY][name])
        for name, few in steps[FEW].items()
        if steps[MANY][name] > MOST_STEPS * few + 50
    }
    assert grown == {}


def test_sqlite_sorts_nothing_and_scans_no_table(tmp_path: Path) -> None:
    with _store(tmp_path / "talk.db", FEW) as store:
        plans = {name: _plan(store, name) for name in _names("sqlite")}
    faults = {
        name: step
        for name, plan in plans.items()
        for step in plan
        if "USE TEMP B-TREE" in step or re.match(rf"SCAN (?!{_DERIVED})\w+$", step)
    }
    # Its rows are few, and it stops at the first ones that are free.
    assert faults == {"memory_flush_claim": "SCAN flushes"}


def test_postgres_does_not_read_what_waits(postgres: Server) -> None:
    address = postgres.database(postgres.template)
    with _store(address, MANY_ON_POSTGRES) as store:
        execute(store, "analyze")
        rows = {name: _rows_on_postgres(store, name) for name in _names("postgres")}
    postgres.drop(address)
    assert {name: count for name, count in rows.items() if count > MOST_ROWS} == {}


def _names(dialect: str) -> list[str]:
    names = (name for name in statements.load(dialect) if QUEUES.match(name))
    return sorted(name for name in names if name not in EXCEPT)


def _params(sql: str) -> dict[str, Any]:
    return {name: PARAMS[name] for name in re.findall(r"(?<![:\w]):(\w+)", sql)}


def _store(where: str | Path, count: int) -> Store:
    store = tertulia.open(where, settings=Settings(zone="UTC", durability="fast"))
    store._indexer.stop()
    for sql in _seeds(count, now_in(store)):
        execute(store, sql)
    return store


def _seeds(count: int, database_time: int) -> Iterator[str]:
    for number, (state, is_next, paused_at) in enumerate(_STATES):
        name = "'busy'" if (state, is_next) == ("waiting", 0) else f"'{number}-' || i"
        common = {
            "body": "'{{}}'",
            "state": f"'{state}'",
            "is_next": str(is_next),
            "paused_at": str(paused_at),
            "not_before": f"{NOW} + 1" if paused_at else "1",
        }
        inbox = {"key": name, "person": name, "source": "'{{}}'", "received_at": "1"}
        outbox = {
            "delivery": f"'{number}/' || i",
            "target": "'origin'",
            "platform": "'telegram'",
            "account": "''",
            "chat_id": name,
            "created_at": "1",
            "session_id": name,
        }
        yield _seed("inbox", {**common, **inbox}, count)
        yield _seed("outbox", {**common, **outbox}, count)
    yield "update inbox set is_next = 1 where id = 1"
    yield "update outbox set is_next = 1 where id = 1"
    schedule = dict.fromkeys(("origin", "task", "rule", "misfire", "target", "session"), "'x'")
    schedule |= {"owner": "'o' || i", "key": "'k' || i", "state": "'active'"}
    yield _seed("schedules", {**schedule, "next_at": f"{NOW} + i", "created_at": "1"}, count)
    run = {"schedule": "i", "planned_at": "i", "since_at": "i", "is_manual": "0", "not_before": "1"}
    yield _seed("occurrences", {**run, "state": "'waiting'", "paused_at": "0"}, count)
    done = {**run, "planned_at": f"{NOW} + i", "state": "'done'", "session_id": "'s' || i"}
    yield _seed("occurrences", done, count)
    yield _seed("flushes", {"session": "i"}, count)
    yield _seed("tickets", {"key": "'k' || i", "until": f"{database_time} + 60000000"}, count)


def _seed(table: str, columns: dict[str, str], count: int) -> str:
    values = ", ".join(columns.values())
    return _SEED.format(count=count, table=table, columns=", ".join(columns), values=values)


def _plan(store: Store, name: str) -> list[str]:
    sql = statements.load("sqlite")[name]

    def work(connection: apsw.Connection) -> list[str]:
        rows = connection.execute(f"explain query plan {sql}", _params(sql))
        return [str(row[3]) for row in rows]

    database: Any = store.context.db
    return list(database.run_on_own_connection(work))


def _steps_on_sqlite(path: Path, count: int) -> dict[str, int]:
    """Return how many instructions each statement takes."""
    sql = statements.load("sqlite")
    steps: dict[str, int] = {}

    def work(connection: apsw.Connection) -> None:
        for name in _names("sqlite"):
            profiles: list[dict[str, Any]] = []
            connection.execute("begin immediate")
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiles.append)
            connection.execute(sql[name], _params(sql[name])).fetchall()
            connection.trace_v2(0)
            connection.execute("rollback")
            counters = profiles[-1]["stmt_status"]
            steps[name] = counters["SQLITE_STMTSTATUS_VM_STEP"]

    with _store(path, count) as store:
        database: Any = store.context.db
        database.run_on_own_connection(work)
    return steps


class _RollBack(Exception):
    pass


def _rows_on_postgres(store: Store, name: str) -> int:
    """Return how many rows the largest node of the plan of a statement has read."""
    query = statements.load_numbered("postgres")[name]
    params = _params(statements.load("postgres")[name])
    plans: list[Any] = []

    def work(tx: Transaction) -> None:
        batch: Any = tx._batch  # type: ignore[attr-defined]
        text = b"explain (analyze, format json) " + query.text
        batch.put(query._replace(text=text), [params[name] for name in query.names])
        ((plan,),) = batch.rows(batch.run()[-1])
        plans.append(plan[0]["Plan"])
        raise _RollBack

    with pytest.raises(_RollBack):
        store.context.db.write(work)
    return max(map(_rows_read, _nodes(plans[0])))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> int:
    removed = sum(int(value) for name, value in node.items() if name.startswith("Rows Removed"))
    return round((float(node["Actual Rows"]) + removed) * int(node["Actual Loops"]))
