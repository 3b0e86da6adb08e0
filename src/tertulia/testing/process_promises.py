"""Promises of background processes: none is lost, each is reported once and keeps its session."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.source import Source
from tertulia.errors import IllegalMove, NotFound
from tertulia.records.processes import Identity, Process
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm, outcomes, run_in_threads, texts

IDLE = Policies(default=ResetPolicy(mode="idle", idle_minutes=60))
ANA = dm("ana")


def program(store: Store, name: str, who: Source = ANA, **details: Any) -> Process:
    """Return a process that a conversation is about to start."""
    session = store.sessions.open(who)
    return Process(
        **{
            "id": name, "key": session.key, "session_id": session.id, "origin": who,
            "node": "here", "folder": name, "command": "sleep 600", "cwd": "/", "is_pty": False,
            "state": "starting", "began_at": store.now(), "told_at": store.now(), **details,
        }
    )  # fmt: skip


class ProcessPromises:
    """Promises of background processes."""

    def test_a_program_is_known_to_every_handle(self, store: Store, other: Store) -> None:
        started = store.processes.begin(program(store, "p1", is_pty=True))
        who = Identity(keeper_pid=7, keeper_mark="a", pid=8, mark="b")
        runs = store.processes.began("p1", who)
        assert (started.state, runs.state, runs.pid, runs.mark) == ("starting", "running", 8, "b")
        assert other.processes.require("p1") == runs
        assert other.processes.find(key=runs.key) == other.processes.find() == [runs]
        assert (other.processes.of_node("here"), other.processes.of_node("there")) == ([runs], [])
        other.processes.delete("p1")
        assert store.processes.get("p1") is None
        with pytest.raises(NotFound, match="no process 'p1'"):
            store.processes.require("p1")

    def test_number_of_running_programs_is_limited(self, store: Store, other: Store) -> None:
        """It holds also if two are started at the same moment; each machine counts its own."""
        store.processes.begin(program(store, "p1"), at_most=2)
        begin = [
            partial(handle.processes.begin, program(store, name), at_most=2)
            for handle, name in ((store, "p2"), (other, "p3"))
        ]
        started, refused = outcomes(*begin, refusals=IllegalMove)
        assert (len(started), len(refused)) == (1, 1)
        assert "no more than 2" in str(refused[0])
        other.processes.begin(program(store, "p4", node="there"), at_most=2)
        store.processes.end(started[0], "exited", exit_code=0)
        store.processes.begin(program(store, "p5"), at_most=2)

    def test_end_of_a_program_is_reported_once(self, store: Store, other: Store) -> None:
        started = store.processes.begin(program(store, "p1"))
        ends = [
            partial(handle.processes.end, started, "exited", exit_code=3, news="It has ended.")
            for handle in (store, other)
        ]
        assert sorted(run_in_threads(*ends)) == [False, True]
        ended = other.processes.require("p1")
        assert (ended.state, ended.exit_code, ended.is_alive) == ("exited", 3, False)
        assert [delivery.body["text"] for delivery in store.outbox.find().items] == [
            "It has ended."
        ]
        assert started.session_id is not None
        assert texts(store.transcript(started.session_id)) == ["It has ended."]

    def test_new_output_of_a_program_is_reported_once(self, store: Store, other: Store) -> None:
        started = store.processes.begin(program(store, "p1"))
        reports = [
            partial(handle.processes.report, started, "one", told=3) for handle in (store, other)
        ]
        assert sorted(run_in_threads(*reports)) == [False, True]
        now = store.processes.require("p1")
        assert now.told == 3
        assert other.processes.report(now, "two", told=6)
        assert [delivery.body["text"] for delivery in store.outbox.find().items] == ["one", "two"]

    def test_news_without_a_chat_are_added_to_the_transcript(self, store: Store) -> None:
        started = store.processes.begin(program(store, "p1", origin=None))
        store.processes.end(started, "exited", exit_code=0, news="It has ended.")
        assert started.session_id is not None
        assert texts(store.transcript(started.session_id)) == ["It has ended."]
        assert store.outbox.find().items == ()

    def test_a_program_keeps_its_session_from_the_policy(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        started = store.processes.begin(program(store, "p1"))
        ben = store.sessions.open(dm("ben"))
        handles.clock.forward(hours=2)
        assert [session.id for session in store.sessions.expired().items] == [ben.id]
        assert started.session_id is not None
        assert store.sessions.expire(started.session_id) is None
        assert store.sessions.open(ANA).id == started.session_id
        handles.clock.forward(hours=2)
        with store.turn(ANA, "still there?") as turn:
            assert turn.session.id == started.session_id
            turn.add_assistant("yes")
        handles.clock.forward(hours=2)
        store.processes.end(started, "killed")
        assert [session.id for session in store.sessions.expired().items] == [
            ben.id,
            started.session_id,
        ]
        assert store.sessions.open(ANA).id != started.session_id

    def test_a_program_keeps_its_session_for_a_day_and_no_longer(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        started = store.processes.begin(program(store, "p1"))
        handles.clock.forward(hours=25)
        assert store.sessions.expired().items == ()
        handles.clock.forward(seconds=1)
        assert [session.id for session in store.sessions.expired().items] == [started.session_id]
        assert store.sessions.open(ANA).id != started.session_id

    def test_a_program_does_not_prevent_a_reset_by_its_person(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        started = store.processes.begin(program(store, "p1"))
        assert store.sessions.open(ANA, force_new=True).id != started.session_id

    def test_a_program_started_before_a_link_protects_the_linked_session(
        self, handles: Handles
    ) -> None:
        store = handles.open(policies=IDLE)
        signal_chat = dm("ana", "signal")
        shared = store.sessions.open(ANA)
        store.processes.begin(program(store, "p1", signal_chat))
        store.people.accept_link(signal_chat, store.people.offer_link(ANA))
        handles.clock.forward(hours=2)
        assert store.sessions.expire(shared.id) is None
        assert store.sessions.open(signal_chat).id == shared.id

    def test_a_program_of_a_deleted_conversation_keeps_only_its_end(
        self, store: Store, other: Store
    ) -> None:
        started = store.processes.begin(program(store, "p1"))
        assert started.session_id is not None
        store.sessions.delete(started.session_id)
        assert (other.processes.get("p1"), other.processes.find()) == (None, [])
        [left] = other.processes.of_node("here")
        assert (left.state, left.command, left.key, left.origin) == ("forgotten", "", "", None)
