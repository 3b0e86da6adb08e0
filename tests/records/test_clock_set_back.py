"""A clock that is set back by two hours holds nothing up, on both databases.

Times of entries and schedules are those of the store's clock; leases are measured by the database's
clock, which a test cannot set: it moves their ends instead.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tertulia import Source, Store
from tertulia.core.session import Session
from tertulia.errors import AccessDenied, NotFound, SessionBusy
from tertulia.records.listeners import Connection
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import ANA, execute, open_beside

TWO_HOURS = 2 * 3600 * 1_000_000


def set_back(clock: FakeClock) -> None:
    clock.forward(hours=-2)


def move_leases(store: Store, table: str, *, by: int = TWO_HOURS) -> None:
    """Move the ends of all leases, as if the database's clock had been set back."""
    column = "until" if table == "tickets" else "lease_until"
    execute(store, f"update {table} set {column} = {column} + {by} where {column} > 0")


class TestPauses:
    def test_accepted_message_is_due_at_once(self, store: Store, clock: FakeClock) -> None:
        store.inbox.put(ANA, "hola", message_id=1)
        set_back(clock)
        store.inbox.put(ANA, "and more", message_id=2)
        assert store.inbox.wait(0)
        (item,) = store.inbox.claim()
        store.inbox.done(item)
        assert [item.text for item in store.inbox.claim()] == ["and more"]

    @pytest.mark.parametrize("seconds", [1, 30])
    def test_a_small_change_delays_nothing(
        self, store: Store, clock: FakeClock, seconds: int
    ) -> None:
        """Clocks of two nodes differ as much, so that a pause would go on: there is none."""
        store.inbox.put(ANA, "hola", message_id=1)
        store.outbox.put("hello", "telegram:42")
        clock.forward(seconds=-seconds)
        assert len(store.inbox.claim()) == 1
        assert len(store.outbox.claim()) == 1

    def test_delivery_is_due_at_once(self, store: Store, clock: FakeClock) -> None:
        for text in ("one", "two"):
            store.outbox.put(text, "telegram:42")
        set_back(clock)
        assert store.outbox.wait(0)
        assert store.outbox.wait(0, platforms=["telegram"])
        store.outbox.done(*store.outbox.claim())
        assert [item.body["text"] for item in store.outbox.claim(platforms=["telegram"])] == ["two"]

    def test_run_of_a_schedule_is_due_at_once(self, store: Store, clock: FakeClock) -> None:
        run = store.schedules.run_now(store.schedules.create(ANA, "every 5h", "look").id)
        set_back(clock)
        assert store.schedules.wait(0)
        assert [item.id for item in store.schedules.claim()] == [run.id]

    @pytest.mark.parametrize("queue", ["inbox", "outbox", "schedules"])
    def test_pause_before_a_retry_is_over(self, store: Store, clock: FakeClock, queue: str) -> None:
        entries = self.claimed(store, queue)
        getattr(store, queue).failed(entries[0], "busy", retry_after=30)
        assert not getattr(store, queue).wait(0)
        assert getattr(store, queue).claim() == []
        set_back(clock)
        assert getattr(store, queue).wait(0)
        assert [item.id for item in getattr(store, queue).claim()] == [entries[0].id]

    @pytest.mark.parametrize("queue", ["inbox", "outbox", "schedules"])
    def test_pause_lasts_while_the_clocks_of_two_nodes_differ_by_seconds(
        self, store: Store, clock: FakeClock, queue: str
    ) -> None:
        entries = self.claimed(store, queue)
        getattr(store, queue).failed(entries[0], "busy", retry_after=30)
        clock.forward(seconds=-20)
        assert not getattr(store, queue).wait(0)
        assert getattr(store, queue).claim() == []
        clock.forward(seconds=51)
        assert [item.id for item in getattr(store, queue).claim()] == [entries[0].id]

    def test_retry_for_one_platform_is_over_too(self, store: Store, clock: FakeClock) -> None:
        store.outbox.put("hello", "telegram:42")
        (delivery,) = store.outbox.claim()
        store.outbox.failed(delivery, "busy", retry_after=30)
        set_back(clock)
        assert store.outbox.wait(0, platforms=["telegram"])
        assert not store.outbox.wait(0, platforms=["slack"])
        assert len(store.outbox.claim(platforms=["telegram"])) == 1

    def test_gathered_messages_do_not_wait_for_hours(self, store: Store, clock: FakeClock) -> None:
        store.inbox.put(ANA, "one", message_id=1, gather_seconds=2)
        set_back(clock)
        assert [item.text for item in store.inbox.claim()] == ["one"]

    def test_messages_are_gathered_after_the_change_as_before(
        self, store: Store, clock: FakeClock
    ) -> None:
        store.inbox.put(ANA, "one", message_id=1, gather_seconds=2)
        set_back(clock)
        store.inbox.put(ANA, "two", message_id=2, gather_seconds=2)
        assert store.inbox.claim() == []
        clock.forward(seconds=2)
        assert [item.text for item in store.inbox.claim()] == ["one\ntwo"]

    def test_what_was_retried_is_served_before_what_came_later(
        self, store: Store, clock: FakeClock
    ) -> None:
        store.outbox.put("first", "telegram:42")
        (delivery,) = store.outbox.claim()
        store.outbox.failed(delivery, "busy", retry_after=5)
        store.outbox.put("second", "telegram:43")
        clock.forward(seconds=5)
        assert [item.body["text"] for item in store.outbox.claim(1)] == ["first"]

    @staticmethod
    def claimed(store: Store, queue: str) -> list[Any]:
        if queue == "inbox":
            store.inbox.put(ANA, "hola")
        elif queue == "outbox":
            store.outbox.put("hello", "telegram:42")
        else:
            store.schedules.run_now(store.schedules.create(ANA, "every 5h", "look").id)
        entries: list[Any] = getattr(store, queue).claim()
        return entries


class TestLeases:
    @pytest.mark.parametrize(
        ("queue", "table"),
        [("inbox", "inbox"), ("outbox", "outbox"), ("schedules", "occurrences")],
    )
    def test_claim_of_a_lost_worker_is_over(self, store: Store, queue: str, table: str) -> None:
        TestPauses.claimed(store, queue)
        assert not getattr(store, queue).wait(0)
        move_leases(store, table)
        assert getattr(store, queue).wait(0)
        if queue == "outbox":
            assert store.outbox.claim() == []  # it may have been sent
            assert [item.state for item in store.outbox.find().items] == ["unknown"]
        else:
            assert len(getattr(store, queue).claim()) == 1

    def test_claim_outlasts_a_small_change_of_the_clock(self, store: Store) -> None:
        TestPauses.claimed(store, "inbox")
        move_leases(store, "inbox", by=30_000_000)
        assert not store.inbox.wait(0)
        assert store.inbox.claim() == []

    def test_long_lease_is_not_over_for_a_worker_with_a_short_one(self, store: Store) -> None:
        store.inbox.put(ANA, "hola")
        assert len(store.inbox.claim(lease_seconds=3600)) == 1
        assert store.inbox.claim(lease_seconds=1) == []

    def test_renewed_claim_has_its_new_length(self, store: Store) -> None:
        store.inbox.put(ANA, "hola")
        (item,) = store.inbox.claim(lease_seconds=1)
        store.inbox.renew(item, lease_seconds=3600)
        assert store.inbox.claim() == []

    def test_memory_flush_of_a_lost_worker_is_over(self, handles: Handles) -> None:
        store = handles.open(remember=True)
        ended = end_by_policy(store, handles.clock)
        assert [item.id for item in store.memory_flushes.claim()] == [ended.id]
        assert store.memory_flushes.claim() == []
        move_leases(store, "flushes")
        assert [item.id for item in store.memory_flushes.claim()] == [ended.id]

    def test_session_of_a_dead_node_is_taken_over(self, store: Store, handles: Handles) -> None:
        begin_turn(handles)
        other = open_beside(handles)
        with pytest.raises(SessionBusy), other.turn(ANA, text="hm", wait=0):
            pass
        move_leases(store, "sessions")
        with other.turn(ANA, text="are you there?", wait=0) as taken:
            taken.add_assistant("yes")

    def test_session_of_a_dead_node_is_not_kept_from_its_policy(
        self, store: Store, handles: Handles
    ) -> None:
        turn = begin_turn(handles)
        other = open_beside(handles)
        handles.clock.forward(days=3)
        assert other.sessions.expired().items == ()
        move_leases(store, "sessions")
        assert [item.id for item in other.sessions.expired().items] == [turn.session.id]

    def test_duplicate_of_a_dead_turn_is_answered(self, store: Store, handles: Handles) -> None:
        begin_turn(handles, message_id="1")
        other = open_beside(handles)
        move_leases(store, "sessions")
        with other.turn(ANA, text="hola", message_id="1", wait=0) as turn:
            assert not turn.duplicate
            turn.add_assistant("here I am")

    def test_ticket_of_a_dead_node_lets_others_pass(self, store: Store) -> None:
        key = store.sessions.key(ANA)
        execute(store, "insert into tickets (key, until) values (?, ?)", key, 2**60)
        with store.turn(ANA, text="hola", wait=0) as turn:
            turn.add_assistant("hello")


class TestNodes:
    """Signs of life and leases of listeners, by the clock of the database."""

    @staticmethod
    def move(store: Store, table: str, column: str, *, by: int = TWO_HOURS) -> None:
        execute(store, f"update {table} set {column} = {column} + {by}")

    def test_account_of_a_dead_node_is_listened_for(self, store: Store) -> None:
        assert store.listeners.claim("telegram", "", "dead") is not None
        assert not store.listeners.wait("telegram", "", 0)
        self.move(store, "listeners", "until", by=10_000_000)
        assert store.listeners.claim("telegram", "", "b") is None, "a small change ends no lease"
        assert [lease.is_held for lease in store.nodes.leases()] == [True]
        self.move(store, "listeners", "until")
        assert store.listeners.wait("telegram", "", 0)
        assert [lease.is_held for lease in store.nodes.leases()] == [False]
        assert store.listeners.claim("telegram", "", "b") is not None

    def test_what_was_typed_at_a_dead_node_is_answered(self, handles: Handles) -> None:
        dead, other = handles.open(), handles.open()
        dead.nodes.serve_terminal("host:1:a", version="1")
        dead.inbox.put(Source.local(), "hello", message_id="1")
        assert other.inbox.claim() == []
        self.move(other, "nodes", "seen_at", by=10_000_000)
        assert other.inbox.claim() == []
        self.move(other, "nodes", "seen_at")
        assert [node.is_fresh for node in other.nodes.find()] == [False]
        assert other.inbox.wait(0)
        assert len(other.inbox.claim()) == 1

    def test_report_of_a_dead_node_is_old(self, store: Store) -> None:
        store.listeners.report(
            Connection(platform="telegram", account="", node="a", listening=True, problem="oh")
        )
        assert [each.is_fresh for each in store.listeners.connections()] == [True]
        self.move(store, "connections", "reported_at")
        assert [each.is_fresh for each in store.listeners.connections()] == [False]

    def test_bots_are_answered_again_after_a_minute(self, store: Store) -> None:
        assert [store.listeners.admit_bot(ANA, str(n), limit=2) for n in range(3)][-1] is False
        self.move(store, "bot_messages", "at")
        assert store.listeners.admit_bot(ANA, "4", limit=2)


class TestSchedules:
    @pytest.mark.parametrize("when", ["every 10 min", "cron */10 * * * *"])
    def test_next_time_is_decided_again(self, store: Store, clock: FakeClock, when: str) -> None:
        store.schedules.create(ANA, when, "look")
        clock.forward(minutes=10)
        (run,) = store.schedules.claim()
        store.schedules.done(run)
        set_back(clock)
        assert store.schedules.wait(0)
        store.schedules.claim()
        clock.forward(minutes=10)
        assert len(store.schedules.claim()) == 1

    def test_single_time_stays_what_it_is(self, store: Store, clock: FakeClock) -> None:
        schedule = store.schedules.create(ANA, "at 13:00", "look")
        set_back(clock)
        store.schedules.claim()
        assert store.schedules.require(schedule.id).next_at == schedule.next_at

    def test_no_planned_time_runs_twice_and_an_interval_goes_on(
        self, store: Store, clock: FakeClock
    ) -> None:
        schedule = store.schedules.create(ANA, "every 1h", "look")
        planned = []
        for hour in range(12):
            clock.forward(hours=1)
            planned += [run.planned_at for run in self.run_all(store)]
            if hour == 3:
                clock.forward(hours=-2, seconds=-7)
                assert self.run_all(store) == []
        assert len(planned) == len(set(planned)) == 12
        assert store.schedules.require(schedule.id).next_at == clock.now() + timedelta(hours=1)

    @staticmethod
    def run_all(store: Store) -> list[Any]:
        runs = store.schedules.claim()
        for run in runs:
            store.schedules.done(run)
        return runs


class TestCodes:
    def test_code_of_a_time_to_come_is_void(self, store: Store, clock: FakeClock) -> None:
        """It would be valid for three hours instead of one."""
        code = store.people.request_pairing(ANA)
        assert code is not None
        set_back(clock)
        with pytest.raises(NotFound):
            store.people.approve(code)
        assert store.people.request_pairing(ANA) is not None

    def test_wrong_codes_lock_nobody_out_for_longer(self, store: Store, clock: FakeClock) -> None:
        for _ in range(5):
            clock.forward(seconds=1)
            with pytest.raises(NotFound):
                store.people.approve("ABCD2345")
        with pytest.raises(AccessDenied):
            store.people.approve("ABCD2345")
        set_back(clock)
        with pytest.raises(NotFound):
            store.people.approve("ABCD2345")


def begin_turn(handles: Handles, message_id: str | None = None) -> TurnControl:
    """Begin a turn whose lease nobody renews meanwhile: its node is dead."""
    store = handles.open(lease_seconds=600)
    store._records.local_turns = LocalTurns()
    turn = store.turn_control(ANA, text="hola", message_id=message_id)
    turn.enter()
    return turn


def end_by_policy(store: Store, clock: FakeClock) -> Session:
    with store.turn(Source("telegram", "7", user_id="7"), text="hola") as turn:
        turn.add_assistant("hello")
    clock.forward(days=3)
    (session,) = store.sessions.expired().items
    store.sessions.expire(session.id)
    return session
