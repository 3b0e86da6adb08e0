"""Every statement of a turn touches one conversation, so the schema can be sharded by key.

The statements of whole turns are recorded on a real store, from the inbox to the delivery, with
tools, usage and a notice. Then each statement is checked: it names one conversation (by its key,
its number, its id, its dedupe key or its chat), or it reads nothing but the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, ToolCall, Usage
from tertulia.storage import statements
from tertulia.storage.sqlite.transaction import SqliteTransaction
from tertulia.testing import FakeClock
from tests.storage.store_internals import sqlite_of

SQL = statements.load("sqlite")
ANA = Source("telegram", "42", user_id="42", user_name="Ana")

# Names of parameters that identify one conversation, one message of it, or one chat.
IDENTIFIER = "key|ref|id|session|session_id|arrival|delivery|hash|place|parent_id|person|to|number"
EQUAL = re.compile(rf"= (?:cast\()?:(?:{IDENTIFIER})\b")
RANGE = re.compile(rf"place between \(cast\(:(?:{IDENTIFIER}) as bigint\) << 32\)")
CHAT = re.compile(r"platform = :platform and account = :account")
# A claim takes the heads of several queues; each row belongs to one conversation.
CLAIMS = {
    *("inbox_claim", "inbox_expire", "inbox_wake"),
    *("outbox_claim", "outbox_find_lost", "outbox_wake"),
}
# SQLite has no sequences: the number of a model call is the one after the highest.
NUMBERED = {"usage_insert"}
# Tables that every shard has a copy of: small, and read far more than written.
REPLICATED = {"installation", "links"}


@pytest.fixture
def statements_of_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all statements that whole turns run."""
    names: set[str] = set()

    def watch(method: str) -> None:
        inner = getattr(SqliteTransaction, method)

        def run(self: SqliteTransaction, statement: str, *rest: object) -> object:
            names.add(statement)
            return inner(self, statement, *rest)

        monkeypatch.setattr(SqliteTransaction, method, run)

    clock = FakeClock()
    idle = Policies(default=ResetPolicy(mode="idle", idle_minutes=60))
    settings = Settings(zone="UTC", policies=idle, remember=True)
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        store._indexer.stop()  # the search index is updated after the turn
        for method in ("run", "one", "all", "many"):
            watch(method)
        for number in range(3):
            store.inbox.put(ANA, "hello", message_id=number)
            (item,) = store.inbox.claim()
            with store.turn_control(ANA, "hello", message_id=number) as turn:
                _ = turn.context_prompt, turn.history(max_tokens=4000)
                turn.add_assistant(None, tool_calls=[ToolCall("c", "look")])
                turn.renew()
                turn.add_tool_result("c", "x" * 100_000)
                turn.deliver("on it")
                turn.add_assistant("hi", usage=Usage(1, 1, model="m"), deliver="origin")
            store.inbox.done(item)
            while deliveries := store.outbox.claim():
                store.outbox.done(deliveries[0])
            clock.forward(**{"minutes": 90} if number else {"minutes": 1})
    return names


def test_each_statement_names_one_conversation(statements_of_turns: set[str]) -> None:
    assert len(statements_of_turns) > 25
    wrong = {name: fault for name in sorted(statements_of_turns) for fault in faults(name)}
    assert wrong == {}


def faults(name: str) -> Iterator[str]:
    if name in CLAIMS | NUMBERED:
        return
    sql = " ".join(re.sub(r"--[^\n]*", "", SQL[name]).split())
    tables = set(re.findall(r"(?:from|into|update|join) ([a-z_]+)", sql)) - REPLICATED
    if not tables:
        return
    if sql.startswith("insert"):
        columns = re.search(r"\(([^)]*)\)", sql)
        assert columns is not None
        column_names = {column.strip() for column in columns[1].split(",")}
        if not column_names & {"session", "session_id", "key", "place", "ref", "person", "hash"}:
            yield "a row without a conversation"
    if (not sql.startswith("insert") or "select" in sql) and not (
        EQUAL.search(sql) or RANGE.search(sql) or CHAT.search(sql)
    ):
        yield f"{sorted(tables)} without a conversation"


def test_statements_over_many_conversations_are_detected() -> None:
    """The check itself works: these statements touch many conversations."""
    for name in ("sessions_inactive", "search_backlog", "unindexed_put_all"):
        assert list(faults(name)), name


def test_turn_takes_seven_statements(tmp_path: Path) -> None:
    """And the first turn of a session, which takes the general path, takes thirteen."""
    ran: list[str] = []
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        store._indexer.stop()
        store.sessions.open(ANA)
        sqlite_of(store)._writer.set_profile(lambda sql, nanoseconds: ran.append(sql))
        counts = []
        for number in (1, 2):
            ran.clear()
            with store.turn(ANA, "hello", message_id=number) as turn:
                counts.append(count_statements(ran))
                ran.clear()
                turn.add_assistant("hi", usage=Usage(1, 1, model="m"))
                counts.append(count_statements(ran))
    assert counts == [9, 4, 3, 4]


def count_statements(ran: Sequence[str]) -> int:
    """Return how many of the statements that SQLite ran neither begin nor end a transaction."""
    return sum(sql not in ("begin immediate", "commit") for sql in ran)
