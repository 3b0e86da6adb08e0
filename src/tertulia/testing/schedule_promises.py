"""Promises of schedules: each occurrence runs once, only for its owner, even if nodes die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tertulia.core.schedule import Misfire
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.errors import ConfigError, IllegalMove, NotFound, StaleWrite
from tertulia.records.schedules import MAX_ATTEMPTS, Schedule, ScheduleRun
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import Handles, dm, run_in_threads, run_out, texts

ANA, BEN = dm("42"), dm("43")


def states(page: Page[ScheduleRun]) -> list[str]:
    return [run.state for run in page.items]


class SchedulePromises:
    """Promises of schedules."""

    def test_a_schedule_is_made_found_and_run(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
        created = store.schedules.create(ANA, "every 2h", "  look at the mail ")
        assert (created.task, created.state, created.target, created.session) == (
            "look at the mail", "active", "origin", "own",
        )  # fmt: skip
        assert other.schedules.get(created.id) == created
        assert other.schedules.claim() == []
        due = clock.forward(hours=2)
        assert created.next_at == due
        (run,) = other.schedules.claim()
        assert (run.schedule.id, run.planned_at, run.attempts) == (created.id, due, 1)
        assert (run.state, run.is_manual, run.is_undelivered) == ("taken", False, False)
        other.schedules.done(run, "no mail")
        (past,) = store.schedules.history(created.id).items
        assert (past.state, past.result, past.ended_at) == ("done", "no mail", due)
        assert store.schedules.require(created.id).next_at == clock.forward(hours=2)

    def test_an_invalid_schedule_is_refused(self, store: Store) -> None:
        right: dict[str, Any] = {"when": "every 2h", "task": "look"}
        for wrong in (
            {"when": "whenever"},
            {"task": " "},
            {"task": "x" * 4001},
            {"zone": "Mars/Olympus"},
            {"target": "telegrm:42"},
            {"misfire": "maybe"},
            {"session": "other"},
        ):
            with pytest.raises(ConfigError):
                store.schedules.create(ANA, **{**right, **wrong})
        assert store.schedules.find().items == ()

    def test_a_time_of_day_is_in_the_zone_of_the_person(self, store: Store) -> None:
        store.sessions.open(ANA)
        store.people.set_zone("telegram:42", "Asia/Tokyo")
        created = store.schedules.create(ANA, "cron 0 9 * * *", "look")
        assert created.next_at is not None
        assert created.next_at.hour == 0

    def test_schedules_of_others_are_invisible_and_unchangeable(
        self, store: Store, other: Store
    ) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        group = Source("telegram", "-100", chat_type="group", user_id="43")
        for stranger in (BEN, group, Source("signal", "42", user_id="42")):
            assert other.schedules.get(created.id, by=stranger) is None
            assert other.schedules.find(by=stranger).items == ()
            for act in (
                other.schedules.require,
                other.schedules.pause,
                other.schedules.resume,
                other.schedules.remove,
                other.schedules.run_now,
                other.schedules.history,
            ):
                with pytest.raises(NotFound):
                    act(created.id, by=stranger)
        assert other.schedules.find(by=ANA).items == (created,)

    def test_a_linked_chat_is_the_same_person(self, store: Store) -> None:
        elsewhere = dm("9", "discord")
        store.people.accept_link(elsewhere, store.people.offer_link(ANA))
        here = store.schedules.create(ANA, "every 2h", "look")
        there = store.schedules.create(elsewhere, "every 2h", "look")
        for source in (ANA, elsewhere):
            assert store.schedules.find(by=source).items == (here, there)

    def test_pages_continue_at_the_cursor(self, store: Store) -> None:
        created = [store.schedules.create(ANA, "every 2h", f"task {n}") for n in range(5)]
        first = store.schedules.find(limit=3)
        assert [*first.items, *store.schedules.find(limit=3, cursor=first.next).items] == created
        for _ in range(3):
            store.schedules.run_now(created[0].id)
        newest = store.schedules.history(created[0].id, limit=2)
        oldest = store.schedules.history(created[0].id, limit=2, cursor=newest.next)
        ids = [run.id for run in (*newest.items, *oldest.items)]
        assert ids == sorted(ids, reverse=True)
        assert (len(ids), oldest.next) == (3, None)

    def test_runs_missed_during_a_pause_are_not_made_up(
        self, store: Store, clock: FakeClock
    ) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        assert store.schedules.pause(created.id).state == "paused"
        clock.forward(hours=5)
        assert store.schedules.claim() == []
        resumed = store.schedules.resume(created.id)
        assert resumed.state == "active"
        assert store.schedules.claim() == []
        assert resumed.next_at == clock.forward(hours=1)
        assert len(store.schedules.claim()) == 1

    def test_a_pause_holds_runs_that_wait_already(self, store: Store, clock: FakeClock) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        clock.forward(hours=2)
        (run,) = store.schedules.claim()
        store.schedules.failed(run, "no network")
        store.schedules.pause(created.id)
        assert store.schedules.claim() == []
        store.schedules.resume(created.id)
        assert [again.id for again in store.schedules.claim()] == [run.id]

    def test_a_paused_schedule_runs_on_request(self, store: Store, other: Store) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        store.schedules.pause(created.id)
        requested = store.schedules.run_now(created.id)
        (run,) = other.schedules.claim()
        assert (run.id, run.is_manual) == (requested.id, True)
        assert store.schedules.require(created.id).state == "paused"

    def test_the_run_of_a_removed_schedule_delivers_nothing(self, store: Store) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        store.schedules.run_now(created.id)
        (run,) = store.schedules.claim()
        store.schedules.remove(created.id)
        assert store.schedules.find().items == ()
        with pytest.raises(StaleWrite):
            store.schedules.deliver(run, "there is mail")
        assert store.outbox.find().items == ()
        with pytest.raises(NotFound):
            store.schedules.remove(created.id)

    def test_a_one_time_schedule_ends_after_its_run(self, store: Store, clock: FakeClock) -> None:
        created = store.schedules.create(ANA, "in 10 min", "look")
        clock.forward(minutes=10)
        (run,) = store.schedules.claim()
        store.schedules.done(run)
        over = store.schedules.require(created.id)
        assert (over.state, over.next_at) == ("over", None)
        for act in (store.schedules.pause, store.schedules.resume):
            with pytest.raises(IllegalMove):
                act(created.id)

    @pytest.mark.parametrize(
        ("misfire", "expected"), [("once", ["taken"]), ("skip", ["skipped"]), ("all", 7)]
    )
    def test_a_week_of_downtime_follows_the_misfire_policy(
        self, store: Store, clock: FakeClock, misfire: Misfire, expected: list[str] | int
    ) -> None:
        created = store.schedules.create(ANA, "cron 0 9 * * *", "look", misfire=misfire)
        clock.forward(days=7)
        ran = []
        while runs := store.schedules.claim():
            assert len(runs) == 1  # a schedule has one run at a time
            ran.append(runs[0].planned_at)
            if misfire == "all":
                store.schedules.done(runs[0])
        past = store.schedules.history(created.id)
        if expected == 7:
            assert ran == sorted(set(ran))
            assert states(past) == ["done"] * 7
        else:
            assert states(past) == expected
            assert past.items[0].since == created.next_at
        following = store.schedules.require(created.id).next_at
        assert following is not None
        assert following > clock.now()

    @pytest.mark.parametrize("when", ["every 2h", "cron 0 */2 * * *"])
    def test_a_clock_that_jumps_back_runs_nothing_twice(
        self, store: Store, clock: FakeClock, when: str
    ) -> None:
        created = store.schedules.create(ANA, when, "look")

        def run_for_a_day() -> None:
            for _ in range(12):
                clock.forward(hours=2)
                for run in store.schedules.claim():
                    store.schedules.done(run)

        run_for_a_day()
        clock.forward(hours=-13)
        store.schedules.claim()
        run_for_a_day()
        planned = [run.planned_at for run in store.schedules.history(created.id).items]
        assert len(planned) == len(set(planned))
        # An interval goes on. Of the hours of the day, those that have run do not run again.
        assert len(planned) == (24 if when.startswith("every") else 17)

    def test_the_run_of_a_dead_node_is_claimed_by_another(self, store: Store, other: Store) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        store.schedules.run_now(created.id)
        (lost,) = store.schedules.claim()
        assert other.schedules.claim() == []
        run_out(store.schedules, lost)
        (claimed,) = other.schedules.claim()
        assert (claimed.id, claimed.attempts) == (lost.id, 2)
        late: list[Callable[[], None]] = [
            lambda: store.schedules.done(lost),
            lambda: store.schedules.failed(lost, "late"),
            lambda: store.schedules.renew(lost),
            lambda: store.schedules.deliver(lost, "late"),
        ]
        for act in late:
            with pytest.raises(StaleWrite):
                act()
        other.schedules.done(claimed)

    def test_a_run_that_kills_every_node_is_given_up(self, store: Store) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        store.schedules.run_now(created.id)
        for _ in range(MAX_ATTEMPTS):
            (run,) = store.schedules.claim()
            run_out(store.schedules, run)
        assert store.schedules.claim() == []
        assert states(store.schedules.history(created.id)) == ["failed"]

    def test_a_failed_run_is_retried_later_or_given_up(
        self, store: Store, clock: FakeClock
    ) -> None:
        created = store.schedules.create(ANA, "every 2h", "look")
        store.schedules.run_now(created.id)
        (run,) = store.schedules.claim()
        store.schedules.failed(run, "no network", retry_after=30)
        assert store.schedules.claim() == []
        clock.forward(seconds=30)
        (again,) = store.schedules.claim()
        store.schedules.failed(again, "no network", for_good=True)
        (past,) = store.schedules.history(created.id).items
        assert (past.state, past.problem, past.attempts) == ("failed", "no network", 2)

    def test_concurrent_claims_run_each_occurrence_once(
        self, handles: Handles, store: Store
    ) -> None:
        created = [store.schedules.create(dm(str(n)), "every 2h", "look") for n in range(20)]
        handles.clock.forward(hours=2)
        stores = [handles.open() for _ in range(4)]

        def take(handle: Store) -> list[ScheduleRun]:
            return handle.schedules.claim(7)

        parts = run_in_threads(*(lambda h=h: take(h) for h in stores))
        claimed_runs = [run for runs in parts for run in runs]
        while runs := store.schedules.claim(7):
            claimed_runs += runs
        assert sorted(run.schedule.id for run in claimed_runs) == [
            schedule.id for schedule in created
        ]

    def test_the_result_is_recorded_in_the_conversation_of_its_target(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        run = self._claimed_run(store)
        store.schedules.deliver(run, "there is mail", session_id=None)
        (delivery,) = store.outbox.find().items
        assert (delivery.chat_id, delivery.body["text"]) == ("42", "there is mail")
        (entry,) = store.transcript(session.id).entries()
        assert (entry.role, entry.kind) == ("assistant", "delivery")

    def test_a_result_is_no_activity_of_the_person(self, store: Store, clock: FakeClock) -> None:
        session = store.sessions.open(ANA)
        clock.forward(hours=1)
        store.schedules.deliver(self._claimed_run(store), "there is mail")
        after = store.sessions.require(session.id)
        assert after.updated_at == session.updated_at

    def test_a_result_in_its_own_session_is_recorded_once(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.schedules.deliver(self._claimed_run(store), "mail", session_id=session.id)
        assert texts(store.transcript(session.id)) == []

    def test_a_delivery_that_arrives_ends_the_run(self, store: Store) -> None:
        run = self._claimed_run(store)
        store.schedules.deliver(run, "mail")
        assert store.schedules.claim() == []
        assert states(store.schedules.history(run.schedule.id)) == ["sending"]
        store.outbox.done(store.outbox.claim()[0])
        assert store.schedules.claim() == []
        assert states(store.schedules.history(run.schedule.id)) == ["done"]

    @pytest.mark.parametrize("outcome", ["dead", "unknown"])
    def test_a_refused_delivery_is_returned_to_the_run_once(
        self, store: Store, other: Store, outcome: str
    ) -> None:
        run = self._claimed_run(store)
        store.schedules.deliver(run, "mail")
        (delivery,) = store.outbox.claim()
        store.outbox.failed(delivery, "blocked", outcome=outcome)  # type: ignore[arg-type]
        (back,) = other.schedules.claim()
        assert (back.id, back.is_undelivered) == (run.id, True)
        assert (back.result, back.problem) == ("mail", "blocked")
        other.schedules.done(back, problem="kept here: blocked")
        assert store.schedules.claim() == []
        (past,) = store.schedules.history(run.schedule.id).items
        assert (past.state, past.problem) == ("done", "kept here: blocked")

    def test_a_deleted_session_leaves_no_text_in_its_runs(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        run = self._claimed_run(store)
        store.schedules.done(run, "secret", session_id=session.id)
        store.sessions.delete(session.id)
        (past,) = store.schedules.history(run.schedule.id).items
        assert (past.result, past.session_id) == (None, None)

    def test_a_waiting_worker_is_notified(self, store: Store, other: Store) -> None:
        assert not store.schedules.wait(0)
        created = self._created(other)
        assert not store.schedules.wait(0)
        other.schedules.run_now(created.id)
        assert store.schedules.wait(30)

    def _created(self, store: Store) -> Schedule:
        return store.schedules.create(ANA, "every 2h", "look at the mail")

    def _claimed_run(self, store: Store) -> ScheduleRun:
        store.schedules.run_now(self._created(store).id)
        (run,) = store.schedules.claim()
        return run
