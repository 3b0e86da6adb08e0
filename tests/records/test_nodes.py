"""Nodes: what was typed in the terminal of one is left to it while it lives; on both databases."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from tertulia import Source, Store
from tertulia.testing import Handles
from tests.records.store_inspection import execute

TERMINAL = Source.local()
ENDED = "host:3:c"
# A node in a process of its own: it claims a message and a delivery, and is killed.
_KILLED = """
import os, signal, sys, tertulia
from tertulia import Source
store = tertulia.open(sys.argv[1])
store.nodes.serve_terminal("host:3:c", version="1")
store.inbox.put(Source.local(), "hello", message_id="1")
store.outbox.put("hi", "origin", origin=Source.local())
assert len(store.inbox.claim(lease_seconds=3600, worker="host:3:c")) == 1
assert len(store.outbox.claim(lease_seconds=3600)) == 1
os.kill(os.getpid(), signal.SIGKILL)
"""
ANA = Source("telegram", "42", user_id="42")


@pytest.fixture
def first(handles: Handles) -> Store:
    store = handles.open()
    store.nodes.serve_terminal("host:1:a", version="1")
    return store


@pytest.fixture
def second(handles: Handles) -> Store:
    store = handles.open()
    store.nodes.serve_terminal("host:2:b", version="1")
    return store


def test_typed_message_is_claimed_by_its_node_alone(
    first: Store, second: Store, store: Store
) -> None:
    item = first.inbox.put(TERMINAL, "hello", message_id="1")
    assert item.node == "host:1:a"
    for other in (second, store):
        assert not other.inbox.wait(0)
        assert other.inbox.claim() == []
    assert first.inbox.wait(0)
    assert [claimed.id for claimed in first.inbox.claim()] == [item.id]


def test_messages_of_a_node_that_is_gone_are_free(first: Store, second: Store) -> None:
    first.inbox.put(TERMINAL, "hello", message_id="1")
    first.outbox.put("hi", "origin", origin=TERMINAL)
    first.nodes.forget("host:1:a")
    assert second.inbox.wait(0)
    assert len(second.inbox.claim()) == 1
    assert second.outbox.wait(0, platforms=["local"])
    assert len(second.outbox.claim()) == 1


@pytest.mark.parametrize("options", [{}, {"platforms": ["local"]}, {"accounts": [("local", "")]}])
def test_delivery_is_claimed_by_the_node_of_its_terminal(
    first: Store, second: Store, options: dict[str, Any]
) -> None:
    first.outbox.put("hi", "origin", origin=TERMINAL)
    assert not second.outbox.wait(0, **options)
    assert second.outbox.claim(**options) == []
    assert first.outbox.wait(0, **options)
    assert [delivery.node for delivery in first.outbox.claim(**options)] == ["host:1:a"]


def test_reply_can_be_for_the_terminal_of_another_node(first: Store, second: Store) -> None:
    first.outbox.put("Stopped.", "origin", origin=TERMINAL, node="host:2:b")
    assert first.outbox.claim() == []
    assert len(second.outbox.claim()) == 1


def test_answer_of_a_turn_goes_to_the_terminal_that_asked(first: Store, second: Store) -> None:
    first.inbox.put(TERMINAL, "hello", message_id="1")
    (item,) = first.inbox.claim()
    with first.turn_control(TERMINAL, "hello", message_id="1", inbox_item=item) as turn:
        turn.add_assistant("hi", deliver="origin")
    assert second.outbox.claim() == []
    assert [delivery.body["text"] for delivery in first.outbox.claim()] == ["hi"]


def test_other_platforms_have_no_node(first: Store, second: Store) -> None:
    assert first.inbox.put(ANA, "hello", message_id="1").node is None
    assert len(second.inbox.claim()) == 1
    first.outbox.put("hi", "origin", origin=ANA)
    assert len(second.outbox.claim()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a process has ended")
def test_work_of_a_killed_node_is_free_at_once(second: Store, where: str) -> None:
    process = subprocess.run([sys.executable, "-c", _KILLED, where], check=False)
    assert process.returncode == -signal.SIGKILL
    assert not second.inbox.wait(0)
    assert second.inbox.claim() == []
    assert second.nodes.forget_ended() == [ENDED]
    assert second.inbox.wait(0)
    assert [item.text for item in second.inbox.claim()] == ["hello"]
    assert second.outbox.claim() == []  # nobody knows whether it was shown
    assert [item.state for item in second.outbox.find().items] == ["unknown"]
    assert second.nodes.forget_ended() == []
    assert [node.name for node in second.nodes.find()] == ["host:2:b"]


@pytest.mark.parametrize("process", [None, "host:3:0123456789abcdef:1"], ids=["old", "elsewhere"])
def test_node_that_may_run_keeps_its_work(first: Store, second: Store, process: str | None) -> None:
    first.inbox.put(TERMINAL, "hello", message_id="1")
    assert len(first.inbox.claim(worker="host:1:a")) == 1
    execute(first, "update nodes set process = ? where name = 'host:1:a'", process)
    assert second.nodes.forget_ended() == []
    assert second.inbox.claim() == []
