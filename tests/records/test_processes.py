"""Stored processes on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import IllegalMove, NotFound, Settings, Source, Store
from tertulia.records.processes import Identity, Process
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=FakeClock()) as store:
        yield store
        assert store.check() == []


def begin(store: Store, process_id: str, *, at_most: int = 64, **fields: Any) -> Process:
    session = store.sessions.open(ANA)
    defaults: dict[str, Any] = {
        "id": process_id,
        "key": session.key,
        "session_id": session.id,
        "origin": ANA,
        "node": "node1",
        "folder": "/tmp/p",
        "command": "sleep 600",
        "cwd": "/",
        "is_pty": False,
        "state": "starting",
        "began_at": store.now(),
        "told_at": store.now(),
    }
    return store.processes.begin(Process(**{**defaults, **fields}), at_most=at_most)


def reports(store: Store) -> list[str]:
    return [delivery.body["text"] for delivery in store.outbox.find().items]


def test_stored_process_has_every_field(store: Store) -> None:
    process = begin(store, "p1", is_pty=True, check_interval=timedelta(seconds=90))
    assert store.processes.require("p1") == process
    assert (process.is_alive, process.check_interval) == (True, timedelta(seconds=90))
    identity = Identity(keeper_pid=7, keeper_mark="a", pid=8, mark="b")
    running = store.processes.began("p1", identity)
    assert (running.state, running.keeper_pid, running.pid) == ("running", 7, 8)


def test_node_runs_no_more_processes_than_allowed(store: Store) -> None:
    begin(store, "p1", at_most=1)
    with pytest.raises(IllegalMove, match="no more than 1"):
        begin(store, "p2", at_most=1)
    begin(store, "p3", at_most=1, node="node2")


def test_end_is_reported_once(store: Store) -> None:
    process = begin(store, "p1")
    assert store.processes.end(process, "exited", exit_code=0, news="It ended.")
    assert not store.processes.end(process, "lost", news="It is lost.")
    assert reports(store) == ["It ended."]
    assert process.session_id is not None
    assert [m["content"] for m in store.transcript(process.session_id).load()] == ["It ended."]
    assert store.processes.require("p1").state == "exited"


def test_two_reports_in_one_clock_tick_are_both_delivered(store: Store) -> None:
    process = begin(store, "p1")
    assert store.processes.report(process, "1 line", told=10)
    assert not store.processes.report(process, "stale", told=10)  # another node was first
    assert store.processes.report(store.processes.require("p1"), "2 lines", told=20)
    assert reports(store) == ["1 line", "2 lines"]
    assert store.processes.require("p1").told == 20


def test_news_without_an_origin_is_only_in_the_transcript(store: Store) -> None:
    process = begin(store, "p1", origin=None)
    store.processes.end(process, "killed", news="It was killed.")
    assert reports(store) == []
    assert process.session_id is not None
    assert len(store.transcript(process.session_id).load()) == 1


def test_unknown_process_is_not_found(store: Store) -> None:
    assert store.processes.get("p1") is None
    with pytest.raises(NotFound, match="no process 'p1'"):
        store.processes.require("p1")
