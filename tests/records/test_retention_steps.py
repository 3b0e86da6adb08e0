"""What is no longer kept is removed in small steps, on both databases."""

from __future__ import annotations

import pytest

from tertulia import ConfigError, Source, Store
from tertulia.core.retention import Retention
from tertulia.records.retention_steps import RemovedRows
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import ANA, BEN, ask

GUEST = Source("telegram", "77", user_id="77", user_name="Somebody")


def settle_one_of_each(store: Store) -> None:
    store.inbox.put(ANA, "hola", message_id=1)
    (item,) = store.inbox.claim()
    store.inbox.done(item)
    store.outbox.put("hello", "telegram:42")
    (delivery,) = store.outbox.claim()
    store.outbox.done(delivery)
    run = store.schedules.run_now(store.schedules.create(ANA, "every 900 d", "look").id)
    (claimed,) = store.schedules.claim()
    assert claimed.id == run.id
    store.schedules.done(claimed)


def test_settled_entries_are_kept_for_thirty_days(store: Store, clock: FakeClock) -> None:
    settle_one_of_each(store)
    clock.forward(days=29)
    assert store.retention.remove_all() == RemovedRows()
    clock.forward(days=2)
    assert store.retention.remove_all() == RemovedRows(messages=1, deliveries=1, runs=1)
    assert store.retention.remove_some() == RemovedRows()
    for table in ("inbox", "outbox", "occurrences"):
        assert ask(store, f"select count(*) from {table}") == 0


def test_what_waits_or_is_in_progress_stays(store: Store, clock: FakeClock) -> None:
    store.inbox.put(ANA, "waits", message_id=1)
    store.inbox.put(BEN, "is taken", message_id=2)
    store.outbox.put("hello", "telegram:42")
    assert len(store.inbox.claim(1)) == 1
    schedule = store.schedules.create(ANA, "every 900 d", "look")
    store.schedules.run_now(schedule.id)
    clock.forward(days=400)
    assert store.retention.remove_all() == RemovedRows()


def test_a_repeated_message_is_recognised_after_its_entry_was_removed(
    store: Store, clock: FakeClock
) -> None:
    store.inbox.put(ANA, "hola", message_id=1)
    (item,) = store.inbox.claim()
    with store.turn_control(ANA, "hola", message_id=1, inbox_item=item) as turn:
        turn.add_assistant("hi")
    clock.forward(days=31)
    assert store.retention.remove_all().messages == 1
    with store.turn(ANA, "hola", message_id=1) as again:
        assert again.duplicate


def test_step_removes_at_most_its_limit(store: Store, clock: FakeClock) -> None:
    for number in range(7):
        store.inbox.put(ANA, "hola", message_id=number)
        (item,) = store.inbox.claim()
        store.inbox.done(item)
    clock.forward(days=31)
    assert [store.retention.remove_some(3).messages for _ in range(4)] == [3, 3, 1, 0]


def test_strangers_are_forgotten_and_others_are_not(store: Store, clock: FakeClock) -> None:
    store.people.request_pairing(GUEST)
    store.people.remember(BEN, role="member")
    with store.turn(ANA, text="hola") as turn:
        turn.add_assistant("hi")
    clock.forward(days=31)
    removed = store.retention.remove_all()
    assert (removed.people, removed.codes) == (1, 1)
    assert [person.user_id for person in store.people.find()] == ["42", "43"]


def test_sessions_are_kept_for_ever_unless_a_setting_says_otherwise(handles: Handles) -> None:
    store = handles.open()
    with store.turn(ANA, text="hola") as turn:
        turn.add_assistant("hi")
    session = store.sessions.end(turn.session.id, "done")
    with store.turn(BEN, text="hola") as turn:
        turn.add_assistant("hi")
    handles.clock.forward(days=4000)
    assert store.retention.remove_all().sessions == 0
    strict = handles.open(retention=Retention(sessions_days=365))
    assert strict.retention.remove_all().sessions == 1
    assert store.sessions.get(session.id) is None
    assert store.sessions.get(turn.session.id) is not None


def test_nothing_is_removed_if_everything_is_kept_for_ever(handles: Handles) -> None:
    for_ever = Retention(settled_days=None, stranger_days=None)
    store = handles.open(retention=for_ever)
    settle_one_of_each(store)
    handles.clock.forward(days=4000)
    assert store.retention.remove_all() == RemovedRows()


@pytest.mark.parametrize("days", [0, -1, float("nan"), 1e9])
def test_invalid_number_of_days_is_refused(days: float) -> None:
    with pytest.raises(ConfigError):
        Retention(settled_days=days)
