"""The inbox on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

from typing import Any

import pytest

import tertulia
from tertulia import Source, StaleWrite, Store
from tertulia.records.queues import inbox
from tertulia.records.queues.inbox import InboxItem
from tertulia.testing import FakeClock
from tests.servers.postgres import Server

ANA = Source("telegram", "42", user_id="42")
BEN = Source("telegram", "43", user_id="43")


def test_answered_message_stays_stored(store: Store) -> None:
    store.inbox.put(ANA, "hola")
    store.inbox.done(*store.inbox.claim())
    assert [item.state for item in store.inbox.find().items] == ["done"]


def test_duplicate_message_returns_the_stored_item(store: Store) -> None:
    first = store.inbox.put(ANA, "hola", message_id=7)
    again = store.inbox.put(ANA, "changed", message_id="7")
    assert (first.is_new, again.is_new) == (True, False)
    assert (again.id, again.text) == (first.id, "hola")


def test_claim_takes_only_the_head_of_each_conversation(store: Store) -> None:
    for source, text in ((ANA, "a1"), (ANA, "a2"), (BEN, "b1")):
        store.inbox.put(source, text)
    claimed = store.inbox.claim()
    assert [item.text for item in claimed] == ["a1", "b1"]
    assert store.inbox.claim() == []
    store.inbox.done(claimed[0])
    assert [item.text for item in store.inbox.claim()] == ["a2"]


def test_gathered_messages_are_one_item(store: Store, clock: FakeClock) -> None:
    first = store.inbox.put(ANA, "one", message_id=1, gather_seconds=2)
    second = store.inbox.put(ANA, "two", message_id=2, gather_seconds=2)
    assert (second.state, second.gathered_into) == ("gathered", first.id)
    assert store.inbox.claim() == []
    clock.forward(seconds=3)
    (item,) = store.inbox.claim()
    assert (item.id, item.text) == (first.id, "one\ntwo")


def test_claimed_message_cannot_be_dismissed(store: Store) -> None:
    waiting = store.inbox.put(ANA, "hola")
    (claimed,) = store.inbox.claim()
    with pytest.raises(StaleWrite, match="claimed or settled"):
        store.inbox.dismiss(waiting)
    store.inbox.done(claimed)
    with pytest.raises(StaleWrite):
        store.inbox.done(claimed)


def test_failed_message_is_tried_again_or_given_up(store: Store, clock: FakeClock) -> None:
    store.inbox.put(ANA, "hola")
    store.inbox.failed(store.inbox.claim()[0], "no model", retry_after=10)
    assert store.inbox.claim() == []
    clock.forward(seconds=10)
    (item,) = store.inbox.claim()
    assert (item.attempts, item.problem) == (2, "no model")
    store.inbox.failed(item, "no model", for_good=True)
    assert [item.state for item in store.inbox.find().items] == ["dead"]


def test_withdrawing_a_message_that_is_claimed_at_that_moment_changes_nothing(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node claims the message after it was read, and before it is settled."""
    address = postgres.database(postgres.template)
    with tertulia.open(address) as store, tertulia.open(address) as other:
        store.inbox.put(ANA, "hola", message_id=7)
        claimed: list[InboxItem] = []
        read_waiting = inbox._waiting_row

        def read_then_lose(*args: Any) -> Any:
            row = read_waiting(*args)
            claimed.extend(other.inbox.claim())
            return row

        monkeypatch.setattr(inbox, "_waiting_row", read_then_lose)
        assert store.inbox.withdraw(ANA, 7) is None
        (item,) = claimed
        other.inbox.done(item)
    postgres.drop(address)
