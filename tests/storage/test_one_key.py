"""Every statement of a turn's way touches one conversation, so the schema can be spread by key.

What a turn runs is watched on a real store, from the inbox to the delivery, with tools, usage and a
notice. Then each statement is looked at: it names one conversation (by its key, its number, its id,
its arrival or its chat), or it asks for nothing but the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, ToolCall, Usage
from tertulia.storage import statements
from tertulia.storage.sqlite.database import SqliteTransaction
from tertulia.testing import FakeClock

SQL = statements.load("sqlite")
ANA = Source("telegram", "42", user_id="42", user_name="Ana")

# Names of parameters that stand for one conversation, one message of it, or one chat.
ONE = "key|ref|id|session|session_id|arrival|delivery|hash|place|parent_id|person|to|number"
EQUAL = re.compile(rf"= (?:cast\()?:(?:{ONE})\b")
RANGE = re.compile(rf"place between \(cast\(:(?:{ONE}) as bigint\) << 32\)")
CHAT = re.compile(r"platform = :platform and account = :account")
# What is taken from a box is the head of some lane; each row of it is one conversation's.
LANES = {"inbox_claim", "inbox_expire", "outbox_claim", "outbox_lost"}
# Tables that are the same on every part: small, and read far more than written.
EVERYWHERE = {"installation", "links"}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all statements that whole turns ran."""
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
        store._indexer.stop()  # search is maintained behind the turn
        for method in ("run", "one", "all", "many"):
            watch(method)
        for number in range(3):
            store.inbox.put(ANA, "hello", message_id=number)
            (arrival,) = store.inbox.claim()
            with store.turn_control(ANA, "hello", message_id=number) as turn:
                _ = turn.context_prompt, turn.history(max_tokens=4000)
                turn.add_assistant(None, tool_calls=[ToolCall("c", "look")])
                turn.renew()
                turn.add_tool_result("c", "x" * 100_000)
                turn.deliver("on it")
                turn.add_assistant("hi", usage=Usage(1, 1, model="m"), deliver="origin")
            store.inbox.done(arrival)
            while parcels := store.outbox.claim():
                store.outbox.done(parcels[0])
            clock.forward(**{"minutes": 90} if number else {"minutes": 1})
    return names


def test_each_statement_names_one_conversation(ran: set[str]) -> None:
    assert len(ran) > 25
    wrong = {name: fault for name in sorted(ran) for fault in faults(name)}
    assert wrong == {}


def faults(name: str) -> Iterator[str]:
    if name in LANES:
        return
    sql = " ".join(re.sub(r"--[^\n]*", "", SQL[name]).split())
    tables = set(re.findall(r"(?:from|into|update|join) ([a-z_]+)", sql)) - EVERYWHERE
    if not tables:
        return
    if sql.startswith("insert"):
        columns = re.search(r"\(([^)]*)\)", sql)
        assert columns is not None
        named = {column.strip() for column in columns[1].split(",")}
        if not named & {"session", "session_id", "key", "place", "ref", "person", "hash"}:
            yield "a row that does not say whose it is"
    if (not sql.startswith("insert") or "select" in sql) and not (
        EQUAL.search(sql) or RANGE.search(sql) or CHAT.search(sql)
    ):
        yield f"{sorted(tables)} without a conversation"


def test_a_statement_over_all_would_be_noticed() -> None:
    """The test itself: these do touch many conversations."""
    for name in ("sessions_quiet", "search_backlog", "unindexed_fill"):
        assert list(faults(name)), name


def test_a_turn_is_a_few_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server is far away each is a round trip, beside the begin and the commit."""
    count = 0
    for method in ("run", "one", "all", "many"):
        inner = getattr(SqliteTransaction, method)

        def run(self: SqliteTransaction, *rest: object, inner: Any = inner) -> object:
            nonlocal count
            count += 1
            return inner(self, *rest)

        monkeypatch.setattr(SqliteTransaction, method, run)
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        store._indexer.stop()
        store.sessions.open(ANA)
        counts = []
        count = 0
        with store.turn(ANA, "hello", message_id=1) as turn:
            counts.append(count)
            count = 0
            turn.add_assistant("hi", usage=Usage(1, 1, model="m"))
            counts.append(count)
    assert counts == [8, 4]
