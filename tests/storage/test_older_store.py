"""A store that an earlier version has filled is migrated with what waits in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

import tertulia
from tertulia import Source, Store
from tertulia.storage import statements
from tests.records.store_inspection import FAST, execute
from tests.servers.postgres import Server

ANA = Source("telegram", "42", user_id="42")


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The place of a database without any table."""
    if request.param == "sqlite":
        yield str(tmp_path / "talk.db")
        return
    running: Server = request.getfixturevalue("postgres")
    address = running.database()
    yield address
    running.drop(address)


def open_before(where: str, number: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Open a store that has only the migrations before one."""
    everything = statements.migrations
    with monkeypatch.context() as patch:
        patch.setattr(
            statements,
            "migrations",
            lambda dialect: [script for script in everything(dialect) if script[0] < number],
        )
        return tertulia.open(where, settings=FAST)


def test_what_waited_before_pauses_had_a_beginning(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_before(empty, "0009", monkeypatch) as old:
        old._indexer.stop()
        for key, attempts, not_before in (("a", 0, 5), ("b", 1, 6), ("c", 1, 2**52)):
            execute(
                old,
                "insert into inbox (key, source, body, state, attempts, not_before, received_at,"
                " is_next) values (?, ?, ?, 'waiting', ?, ?, 4, 1)",
                key,
                '{"platform": "telegram", "chat_id": "42"}',
                f'{{"text": "{key}", "message_id": null, "media": []}}',
                attempts,
                not_before,
            )
    with tertulia.open(empty, settings=FAST) as store:
        assert [item.text for item in store.inbox.claim()] == ["a", "b"]
        assert [item.text for item in store.inbox.find(state="waiting").items] == ["c"]
        assert store.check() == []


@pytest.mark.parametrize("number", ["0012", "0040"])
def test_usage_of_before_is_added_up(
    empty: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_before(empty, number, monkeypatch) as old:
        old._indexer.stop()
        for at, person, model, cost, certainty in (
            (0, "telegram:1", "m", 5, 2),
            (1, "telegram:1", "m", 7, 2),
            (900_000_000, "telegram:1", "m", None, 0),
            (5 * 86_400_000_000, None, None, 11, 1),
        ):
            execute(
                old,
                "insert into usage (session_id, at, platform, person, model, input, output,"
                " cache_read, cache_write, reasoning, cost, certainty)"
                " values ('s', ?, 'telegram', ?, ?, 3, 1, 0, 0, 0, ?, ?)",
                *(at, person, model, cost, certainty),
            )
        if number > "0012":
            fill = statements.load("sqlite")["usage_sums_fill"]
            execute(old, fill.replace("usage_kept", "usage"))
    with tertulia.open(empty, settings=FAST) as store:
        assert store.check() == []
        sums = {
            name: (used.input, used.cost_status) for name, used in store.usage.sum("person").items()
        }
        assert sums == {"telegram:1": (9, "unknown"), "shared": (3, "estimated")}
        assert {name: used.input for name, used in store.usage.sum("model").items()} == {
            "m": 9, "unknown": 3,
        }  # fmt: skip
        first_quarter = datetime.fromtimestamp(900, UTC)
        (early,) = store.usage.by_day("model", until=first_quarter, person="telegram:1")
        assert (early.calls, early.usage.cost_usd, early.usage.cost_status) == (2, 12e-9, "actual")
        assert store.usage.total().calls == 4


def test_queues_go_on_after_their_indexes_were_merged(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_before(empty, "0041", monkeypatch) as old:
        old._indexer.stop()
        outcomes: tuple[Literal["dead", "unknown"] | None, ...] = ("dead", "unknown", None)
        for number, outcome in enumerate(outcomes):
            old.outbox.put("hola", to=f"telegram:{number}", delivery=outcome or "waiting")
            if outcome is not None:
                (delivery,) = old.outbox.claim()
                old.outbox.failed(delivery, "blocked", outcome=outcome)
        old.outbox.put("hola", to="slack:C1", delivery="paused")
        execute(old, "update outbox set not_before = 5, paused_at = 4 where delivery = 'paused'")
        old.inbox.put(ANA, "hello", message_id="1")
    with tertulia.open(empty, settings=FAST) as store:
        for state in ("dead", "unknown"):
            for problem in (None, "blocked"):
                page = store.queues.deliveries(state=state, platform="telegram", problem=problem)
                assert [each.delivery for each in page.items] == [state]
        assert store.outbox.wait(0, platforms=["slack"])
        claimed = store.outbox.claim()
        assert sorted(each.delivery for each in claimed) == ["paused", "waiting"]
        assert [item.text for item in store.inbox.claim()] == ["hello"]
        assert store.check() == []


def test_messages_are_read_and_found_after_two_columns_were_dropped(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_before(empty, "0042", monkeypatch) as old:
        old._indexer.stop()
        with old.turn(ANA, "the harbour", message_id="1") as turn:
            turn.add_assistant("the lighthouse")
    with tertulia.open(empty, settings=FAST) as store:
        with store.turn(ANA, "the bridge", message_id="2") as turn:
            texts = [message["content"] for message in turn.history()]
            turn.add_assistant("the tower")
        assert texts == ["the harbour", "the lighthouse", "the bridge"]
        store.settle()
        assert [len(store.search(word).items) for word in ("harbour", "lighthouse", "tower")] == [
            1
        ] * 3
        assert store.check() == []
