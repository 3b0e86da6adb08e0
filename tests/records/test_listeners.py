"""Leases of listeners, connections of nodes, and messages of bots, on both databases."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

import tertulia
from tertulia import LeaseLost, Source
from tertulia.records.listeners import Connection

GROUP = Source("telegram", "-100", chat_type="group", user_id="7")


def test_one_node_listens_until_it_gives_the_lease_back(where: str) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:
        lease = store.listeners.claim("telegram", "", "a")
        assert lease is not None
        assert lease.cursor is None
        assert other.listeners.claim("telegram", "", "b") is None
        assert other.listeners.claim("telegram", "work", "b") is not None  # another account
        store.listeners.advance(lease, "17")
        store.listeners.release(lease)
        assert other.listeners.wait("telegram", "", 30)
        second = other.listeners.claim("telegram", "", "b")
        assert second is not None
        assert (second.epoch, second.cursor) == (lease.epoch + 1, "17")


def test_lease_that_ran_out_is_taken_over_and_its_cursor_is_refused(where: str) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:
        lost = store.listeners.claim("telegram", "", "a", lease_seconds=0.01)
        assert lost is not None
        store.listeners.advance(lost, "1")
        assert other.listeners.wait("telegram", "", 30)
        lease = other.listeners.claim("telegram", "", "b")
        assert lease is not None
        with pytest.raises(LeaseLost):
            store.listeners.renew(lost)
        with pytest.raises(LeaseLost):
            store.listeners.advance(lost, "999")
        store.listeners.release(lost)  # it is not this node's any more: nothing changes
        assert not store.listeners.wait("telegram", "", 0)
        other.listeners.release(lease)
        again = store.listeners.claim("telegram", "", "a")
        assert again is not None
        assert again.cursor == "1"


def test_renewed_lease_is_not_taken_over(where: str) -> None:
    with tertulia.open(where) as store:
        lease = store.listeners.claim("telegram", "", "a", lease_seconds=0.01)
        assert lease is not None
        store.listeners.renew(lease, lease_seconds=600)
        time.sleep(0.02)
        assert store.listeners.claim("telegram", "", "b", lease_seconds=600) is None


def test_connections_of_nodes_are_reported_and_forgotten(where: str) -> None:
    heard_at = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
    with tertulia.open(where) as store:
        for node, problem in (("a", None), ("b", "The token is wrong.")):
            store.listeners.report(
                Connection(
                    platform="telegram", account="", node=node, listening=problem is None,
                    since=heard_at, heard_at=heard_at, problem=problem,
                )
            )  # fmt: skip
        first, second = store.listeners.connections()
        assert (first.node, first.listening, first.heard_at) == ("a", True, heard_at)
        assert (second.problem, second.is_fresh) == ("The token is wrong.", True)
        store.listeners.forget("b")
        assert [connection.node for connection in store.listeners.connections()] == ["a"]


def test_bots_have_twenty_messages_a_minute_in_a_chat(where: str) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:
        nodes = (store, other)
        admitted = [nodes[n % 2].listeners.admit_bot(GROUP, str(n)) for n in range(25)]
        assert admitted == [True] * 20 + [False] * 5
        assert store.listeners.admit_bot(GROUP, "3")  # again: it was counted already
        elsewhere = Source("telegram", "-200", chat_type="group", user_id="7")
        assert store.listeners.admit_bot(elsewhere, "1")
        # A time has passed as soon as the clock of the database moves on.
        assert any(store.listeners.admit_bot(GROUP, f"later {n}", seconds=0) for n in range(10_000))
