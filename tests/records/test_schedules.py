"""Schedules on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import ConfigError, IllegalMove, NotFound, Settings, Source, StaleWrite, Store
from tertulia.records.schedules import MAX_TASK_CHARS
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")
BEN = Source("telegram", "43", user_id="43")
GROUP = Source("telegram", "-7", chat_type="group", user_id="42")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store
        assert store.check() == []


def test_due_run_is_claimed_once_and_delivered(store: Store, clock: FakeClock) -> None:
    schedule = store.schedules.create(ANA, "every 2h", "look")
    assert store.schedules.claim() == []
    clock.forward(hours=2)
    (run,) = store.schedules.claim()
    assert store.schedules.claim() == []
    store.schedules.deliver(run, "all is well")
    assert [delivery.body["text"] for delivery in store.outbox.find().items] == ["all is well"]
    (entry,) = store.schedules.history(schedule.id).items
    assert (entry.state, entry.result) == ("sending", "all is well")
    store.outbox.done(*store.outbox.claim())
    store.schedules.claim()
    assert store.schedules.history(schedule.id).items[0].state == "done"


def test_remark_about_a_run_is_delivered_once(store: Store) -> None:
    schedule = store.schedules.create(ANA, "every 2h", "look")
    run = store.schedules.run_now(schedule.id)
    store.schedules.report(run, "it failed")
    store.schedules.report(run, "it failed again")
    assert [delivery.body["text"] for delivery in store.outbox.find().items] == ["it failed"]


def test_schedule_of_another_person_is_not_found(store: Store) -> None:
    schedule = store.schedules.create(ANA, "every 2h", "look")
    assert store.schedules.get(schedule.id, by=BEN) is None
    with pytest.raises(NotFound, match=f"no schedule {schedule.id}"):
        store.schedules.remove(schedule.id, by=BEN)
    assert store.schedules.find(by=BEN).items == ()
    assert store.schedules.find(by=GROUP).items == (schedule,)  # the same person in a group
    assert store.schedules.get(-1) is None
    assert store.schedules.get(2**80) is None


def test_schedule_that_is_over_cannot_be_paused_or_resumed(store: Store, clock: FakeClock) -> None:
    schedule = store.schedules.create(ANA, "in 1h", "look")
    clock.forward(hours=1)
    (run,) = store.schedules.claim()
    store.schedules.done(run)
    assert store.schedules.require(schedule.id).state == "over"
    with pytest.raises(IllegalMove, match="is over"):
        store.schedules.pause(schedule.id)
    with pytest.raises(IllegalMove, match="has passed"):
        store.schedules.resume(schedule.id)


def test_missed_times_of_a_skipping_schedule_are_noted(store: Store, clock: FakeClock) -> None:
    schedule = store.schedules.create(ANA, "every 1h", "look", misfire="skip")
    clock.forward(hours=5, minutes=30)
    assert store.schedules.claim() == []
    (skipped,) = store.schedules.history(schedule.id).items
    assert (skipped.state, skipped.problem) == ("skipped", "The planned time was missed.")


def test_run_of_a_removed_schedule_cannot_be_settled(store: Store) -> None:
    schedule = store.schedules.create(ANA, "every 2h", "look")
    store.schedules.run_now(schedule.id)
    (run,) = store.schedules.claim()
    store.schedules.remove(schedule.id)
    with pytest.raises(StaleWrite, match="no longer has the run"):
        store.schedules.done(run)


@pytest.mark.parametrize("task", ["", "  ", "x" * (MAX_TASK_CHARS + 1)])
def test_task_of_a_wrong_length_is_refused(store: Store, task: str) -> None:
    with pytest.raises(ConfigError, match=f"1 to {MAX_TASK_CHARS}"):
        store.schedules.create(ANA, "every 2h", task)
