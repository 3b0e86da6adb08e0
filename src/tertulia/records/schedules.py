"""Schedules: tasks that run later or repeatedly, and deliver their result to a target.

A schedule stores its next planned time. Once that has come, a claim creates a run of it (an
*occurrence*), unique by schedule and planned time, so that any number of nodes run each time once:

waiting → taken → sending → done      it ran; its result is in the outbox, then delivered
                          → taken     the platform refused the result: a worker claims it again
                → done                it ran, and there was nothing to deliver
                → waiting             it failed and is tried again, or its lease ran out
                → failed              it could not be run
skipped                               its time was missed, and the schedule's misfire rule skips it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from tertulia.core import keys
from tertulia.core.arguments import checks_arguments
from tertulia.core.message import from_json, to_json
from tertulia.core.schedule import (
    Misfire,
    Rule,
    decide,
    next_after,
    parse_rule,
    restart,
)
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN, Target
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, IllegalMove, NotFound, StaleWrite
from tertulia.platforms.registry import PLATFORMS
from tertulia.records import session_rows
from tertulia.records.cross_posts import CrossPost, target_source
from tertulia.records.links import linked_key
from tertulia.records.process_check import ProcessAnswers, write_with_process_check
from tertulia.records.queues import base
from tertulia.records.queues.outbox import CHANNEL as OUTBOX_CHANNEL
from tertulia.records.queues.outbox import Delivery, build_deliveries, put_in
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "schedules"
MAX_ATTEMPTS: Final = 5
MAX_TASK_CHARS: Final = 4000
_MAX_ID: Final = 2**63 - 1

ScheduleState = Literal["active", "paused", "over"]
RunsIn = Literal["own", "origin"]
RunState = Literal["waiting", "taken", "sending", "done", "failed", "skipped"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its times. `next_at` is None if it is not going to run again by itself."""

    id: int
    owner: str
    key: str
    origin: Source
    task: str
    rule: Rule
    misfire: Misfire
    target: str
    session: RunsIn
    state: ScheduleState
    next_at: datetime | None
    created_at: datetime


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a schedule. `since` is the first of the planned times that it stands for."""

    id: int
    schedule: Schedule
    planned_at: datetime
    since: datetime
    is_manual: bool
    state: RunState
    attempts: int
    ended_at: datetime | None
    session_id: str | None
    delivery: str | None
    result: str | None
    problem: str | None

    @property
    def is_undelivered(self) -> bool:
        """True if it has run before, and the platform did not accept its result."""
        return self.delivery is not None


@checks_arguments
class Schedules:
    """The schedules of a store.

    With `by`, calls find only the schedules that the user of that source may see.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def create(
        self,
        source: Source,
        when: str,
        task: str,
        *,
        zone: str | None = None,
        target: str = ORIGIN,
        session: RunsIn = "own",
        misfire: Misfire = "once",
    ) -> Schedule:
        """Create a schedule for the user of a source; `when` is a text such as "every 2h".

        Times are in `zone`, else in the user's zone, else in the store's. Raise `ConfigError` for
        a time, target or task that is not valid.
        """
        now = self._context.clock.now()
        rule = parse_rule(when, now=now, zone=zone or self._zone_of(source))
        first = next_after(rule, now)
        assert first is not None  # `parse_rule` refuses times that have passed
        params = {
            "owner": self._owner(source),
            "origin": to_json(source.to_dict()),
            "task": _valid_task(task),
            "rule": msgspec.json.encode(rule).decode(),
            "misfire": misfire,
            "target": storable(str(Target.parse(target, source, known=PLATFORMS))),
            "session": session,
            "next_at": to_micros(first),
            "now": to_micros(now),
        }

        def work(tx: Transaction) -> Schedule:
            key = linked_key(tx, source, self._key(source))
            row = tx.one("schedule_put", {**params, "key": key})
            assert row is not None
            return _to_schedule(row)

        schedule = self._db.write(work, lane=_RUNS.claim_lane)
        self._db.notify(CHANNEL)
        return schedule

    def get(self, schedule_id: int, *, by: Source | None = None) -> Schedule | None:
        """Return a schedule, or None."""
        return self._db.read(lambda tx: self._get(tx, schedule_id, by))

    def require(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Return a schedule; raise `NotFound` if there is none."""
        return self._db.read(lambda tx: self._require(tx, schedule_id, by))

    def find(
        self, *, by: Source | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Schedule]:
        """Return a page of schedules in the order they were created.

        With `by`, only those that this user may see.
        """

        def read(tx: Transaction, page: Params) -> Iterable[Schedule]:
            if by is None:
                return map(_to_schedule, tx.all("schedules_find", page))
            return map(_to_schedule, tx.all("schedules_of", {**page, **self._scope(tx, by)}))

        return base.find(self._context, limit, cursor, read)

    def pause(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Pause a schedule until it is resumed, and return it; a run in progress continues.

        Raise `NotFound` if there is none, `IllegalMove` if it is over.
        """

        def change(schedule: Schedule) -> tuple[ScheduleState, datetime | None]:
            if schedule.state == "over":
                raise IllegalMove(f"Schedule {schedule.id} is over.", hint="It will not run again.")
            return "paused", schedule.next_at

        return self._change(schedule_id, by, change)

    def resume(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Resume a schedule from now on, and return it; times missed during the pause are not run.

        Raise `NotFound` if there is none, `IllegalMove` if no planned time is left.
        """
        now = self._context.clock.now()

        def change(schedule: Schedule) -> tuple[ScheduleState, datetime | None]:
            next_at = next_after(schedule.rule, now)
            if next_at is None:
                raise IllegalMove(
                    f"The time of schedule {schedule.id} has passed.",
                    hint="Run it now, or make a new one.",
                )
            return "active", next_at

        return self._change(schedule_id, by, change)

    def remove(self, schedule_id: int, *, by: Source | None = None) -> None:
        """Delete a schedule and the history of its runs; delivered results stay in their chats.

        Raise `NotFound` if there is no such schedule.
        """

        def work(tx: Transaction) -> None:
            params = {"id": self._require(tx, schedule_id, by).id}
            tx.run("occurrences_delete", params)
            tx.run("schedule_delete", params)

        self._db.write(work, lane=_RUNS.claim_lane)

    def run_now(self, schedule_id: int, *, by: Source | None = None) -> ScheduleRun:
        """Put in a run that is due at once, whatever the schedule's state, and return it.

        The planned times do not change. Raise `NotFound` if there is no such schedule.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> ScheduleRun:
            schedule = self._require(tx, schedule_id, by)
            planned = now
            while not _put_run(tx, schedule, planned, planned, now, is_manual=True):
                planned += timedelta(microseconds=1)
            key = {"schedule": schedule.id, "planned_at": to_micros(planned)}
            row = tx.one("occurrence_by_time", key)
            assert row is not None
            return _to_run(row, schedule)

        run = self._db.write(work, lane=_RUNS.claim_lane)
        self._db.notify(CHANNEL)
        return run

    def history(
        self,
        schedule_id: int,
        *,
        by: Source | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ScheduleRun]:
        """Return a page of a schedule's runs, newest first; raise `NotFound` if there is none."""

        def read(tx: Transaction, page: Params) -> Iterable[ScheduleRun]:
            schedule = self._require(tx, schedule_id, by)
            rows = tx.all("occurrences_of", {**page, "schedule": schedule.id})
            return [_to_run(row, schedule) for row in rows]

        return base.find(self._context, limit, cursor, read, first=_MAX_ID)

    def failures(
        self, since: datetime, *, limit: int = 50
    ) -> list[tuple[int, str | None, datetime]]:
        """Return the runs that failed since a time, newest first: schedule, problem, end."""
        base.check_limit(limit)
        params = {"since": to_micros(since), "limit": limit}
        rows = self._db.read(lambda tx: tx.all("occurrences_failed", params))
        return [(schedule, problem, from_micros(at)) for schedule, problem, at in rows]

    # -- running

    def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[ScheduleRun]:
        """Claim runs that are due, at most one of each schedule; no other worker gets them.

        Renew a claim that takes longer than the lease, or another worker gets the run.
        """

        def take(tx: Transaction, params: Params) -> list[ScheduleRun]:
            now = from_micros(params["now"])
            for row in tx.all("schedules_decided_later", params):
                _restart(tx, _to_schedule(row), now)
            for row in tx.all("schedules_due", params):
                _plan(tx, _to_schedule(row), now)
            given_up = {
                "tries": MAX_ATTEMPTS,
                "problem": "Every node that claimed the run was lost.",
            }
            tx.run("occurrences_expire", {**params, **given_up})
            tx.run("occurrences_finish_sent")
            tx.run("occurrences_wake", params)
            rows = tx.all("occurrences_claim_undelivered", params)
            if len(rows) < limit:
                rows += tx.all("occurrences_claim", {**params, "limit": limit - len(rows)})
            rows = sorted(rows, key=lambda row: (row[2], row[0]))  # by planned time
            return [_to_run(row, self._require(tx, row[1], None)) for row in rows]

        return _RUNS.claim(self._context, limit, lease_seconds, take)

    def wait(self, seconds: float) -> bool:
        """Wait until something can be claimed; return False if nothing can after `seconds`."""
        return _RUNS.wait(self._context, seconds)

    def renew(self, occurrence: ScheduleRun, *, lease_seconds: float = 60) -> None:
        """Extend the lease of a claim; raise `StaleWrite` if the claim was lost."""
        _RUNS.renew(self._context, occurrence, lease_seconds)

    def deliver(self, occurrence: ScheduleRun, text: str, *, session_id: str | None = None) -> None:
        """Settle a run with a result, and put that into the outbox for the schedule's target.

        `session_id` is the session it ran in. The same transaction records the result in the
        conversation of the target, unless the run was in that conversation. Raise `ConfigError` if
        there is no such target, `StaleWrite` if the claim was lost.
        """
        parts = self._build_deliveries(
            occurrence.schedule,
            text,
            occurrence.schedule.target,
            occurrence.id,
            session_id=session_id,
        )
        params = base.settle_params(
            self._context, "sending", result=storable(text), session_id=session_id,
            delivery=parts[0].delivery,
        )  # fmt: skip

        def settle(tx: Transaction) -> None:
            _RUNS.settle_in(tx, occurrence, params)

        self._put_and_record(
            occurrence.schedule, parts, text, except_session=session_id, settle=settle
        )
        self._db.notify(CHANNEL)

    def report(self, occurrence: ScheduleRun, text: str) -> None:
        """Deliver a remark about a run to the chat where its schedule was created.

        Each run can have one remark: a second one is not delivered. The claim is not checked.
        """
        schedule = occurrence.schedule
        parts = self._build_deliveries(schedule, text, ORIGIN, f"{occurrence.id}:told")
        self._put_and_record(schedule, parts, text, except_session=None)

    def done(
        self,
        occurrence: ScheduleRun,
        result: str | None = None,
        *,
        session_id: str | None = None,
        problem: str | None = None,
    ) -> None:
        """Settle a run that has nothing to deliver; `problem` describes what went wrong in it.

        Raise `StaleWrite` if the claim was lost.
        """
        params = base.settle_params(
            self._context, "done", problem=problem, result=storable(result),
            session_id=session_id, delivery=None,
        )  # fmt: skip
        _RUNS.settle(self._context, occurrence, params)

    def failed(
        self,
        occurrence: ScheduleRun,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """Settle a run that failed; raise `StaleWrite` if the claim was lost.

        It is tried again after `retry_after` seconds, or never with `for_good`.
        """
        state: RunState = "failed" if for_good else "waiting"
        params = base.settle_params(
            self._context, state, problem=problem, retry_after=retry_after,
            result=None, session_id=None, delivery=None,
        )  # fmt: skip
        _RUNS.settle(self._context, occurrence, params)

    # -- internals

    def _change(
        self,
        schedule_id: int,
        by: Source | None,
        change: Callable[[Schedule], tuple[ScheduleState, datetime | None]],
    ) -> Schedule:
        """Set the state and the next time that `change` returns; return the schedule."""

        def work(tx: Transaction) -> Schedule:
            schedule = self._require(tx, schedule_id, by)
            return _set_state(tx, schedule, *change(schedule), self._context.clock.now())

        changed = self._db.write(work, lane=_RUNS.claim_lane)
        self._db.notify(CHANNEL)
        return changed

    def _build_deliveries(
        self,
        schedule: Schedule,
        text: str,
        to: str,
        name: int | str,
        *,
        session_id: str | None = None,
    ) -> list[Delivery]:
        """Return the deliveries of a text about a run; `name` identifies them."""
        return build_deliveries(
            self._context, text, to, schedule.origin, session_id=session_id,
            delivery=f"schedule:{name}",
        )  # fmt: skip

    def _put_and_record(
        self,
        schedule: Schedule,
        parts: list[Delivery],
        text: str,
        *,
        except_session: str | None,
        settle: Callable[[Transaction], None] | None = None,
    ) -> None:
        """Put a delivery in and record it in its target's conversation, in one transaction.

        `settle` runs first in that transaction.
        """
        now = self._context.clock.now()
        source = self._db.read(
            lambda tx: target_source(tx, self._context, parts[0], schedule.origin)
        )

        def work(tx: Transaction, answers: ProcessAnswers) -> None:
            if settle is not None:
                settle(tx)
            if tx.one("outbox_get", {"delivery": parts[0].delivery}) is not None:
                return  # a node put it in before, and was lost then
            post = CrossPost(self._context, source, text, now, answers)
            post.record(tx, except_session=except_session)
            put_in(tx, parts, to_micros(now))

        lane = session_rows.lane_of(self._key(source))
        write_with_process_check(self._context, work, lane=lane)
        self._db.notify(OUTBOX_CHANNEL)
        self._context.notify_indexer()

    def _require(self, tx: Transaction, schedule_id: int, by: Source | None) -> Schedule:
        schedule = self._get(tx, schedule_id, by)
        if schedule is None:
            raise NotFound(
                f"There is no schedule {schedule_id}.",
                hint="List them with /schedule, or: tertulia schedules list",
            )
        return schedule

    def _get(self, tx: Transaction, schedule_id: int, by: Source | None) -> Schedule | None:
        if not 0 < schedule_id <= _MAX_ID:
            return None
        row = tx.one("schedule_get", {"id": schedule_id})
        if row is None:
            return None
        schedule = _to_schedule(row)
        if by is not None:
            scope = self._scope(tx, by)
            if schedule.owner != scope["owner"] and schedule.key != scope["key"]:
                return None  # as if it did not exist
        return schedule

    def _scope(self, tx: Transaction, source: Source) -> dict[str, str]:
        """Return the owner and the key whose schedules a user sees.

        A user sees their own schedules and, in a direct message, those of linked chats.
        """
        is_private = source.chat_type == "dm"
        key = linked_key(tx, source, self._key(source)) if is_private else ""
        return {"owner": self._owner(source), "key": key}

    def _owner(self, source: Source) -> str:
        return keys.person_of(source) or self._key(source)

    def _key(self, source: Source) -> str:
        return session_rows.key_of(self._context, source)

    def _zone_of(self, source: Source) -> str:
        person = keys.person_of(source)
        row = self._db.read(lambda tx: tx.one("person_get", {"person": person}))
        return str(self._context.zone_of(None if row is None else row[6]))


def _plan(tx: Transaction, schedule: Schedule, now: datetime) -> None:
    """Put in the runs of a schedule that are due, and set its next planned time."""
    assert schedule.next_at is not None
    due = decide(schedule.rule, schedule.next_at, now, schedule.misfire)
    if due.skipped is not None:
        _put_run(tx, schedule, due.skipped, due.since, now, is_skipped=True)
    for planned in due.runs:
        since = due.since if schedule.misfire == "once" else planned
        _put_run(tx, schedule, planned, since, now)
    _set_state(tx, schedule, "over" if due.next is None else "active", due.next, now)


def _restart(tx: Transaction, schedule: Schedule, now: datetime) -> None:
    """Decide the next time of a schedule again: it was decided before the clock was set back."""
    rule = restart(schedule.rule, now)
    params = {
        "id": schedule.id,
        "rule": msgspec.json.encode(rule).decode(),
        "next_at": to_micros(next_after(rule, now) or now),
        "now": to_micros(now),
    }
    tx.run("schedule_restart", params)


def _put_run(
    tx: Transaction,
    schedule: Schedule,
    planned: datetime,
    since: datetime,
    now: datetime,
    *,
    is_manual: bool = False,
    is_skipped: bool = False,
) -> bool:
    """Put in a run; return False if the schedule has one for that time already."""
    params = {
        "schedule": schedule.id,
        "planned_at": to_micros(planned),
        "since_at": to_micros(since),
        "is_manual": int(is_manual),
        "state": "skipped" if is_skipped else "waiting",
        "now": to_micros(now),
        "ended_at": to_micros(now) if is_skipped else None,
        "problem": "The planned time was missed." if is_skipped else None,
    }
    return tx.changed("occurrence_put", params) > 0


def _set_state(
    tx: Transaction,
    schedule: Schedule,
    state: ScheduleState,
    next_at: datetime | None,
    now: datetime,
) -> Schedule:
    """Store the state and the next time of a schedule, decided at `now`; return it."""
    at = None if next_at is None else to_micros(next_at)
    params = {"id": schedule.id, "state": state, "next_at": at, "now": to_micros(now)}
    row = tx.one("schedule_set", params)
    assert row is not None
    return _to_schedule(row)


def _lane(occurrence: ScheduleRun) -> str:
    """Return the lane of a run: its schedule."""
    return f"schedule {occurrence.schedule.id}"


def _valid_task(text: str) -> str:
    task = storable(text).strip()
    if not 1 <= len(task) <= MAX_TASK_CHARS:
        raise ConfigError(
            f"The task has {len(task)} characters.",
            hint=f"Describe the task in 1 to {MAX_TASK_CHARS} characters.",
            field="task",
        )
    return task


def _stale(tx: Transaction, occurrence: ScheduleRun) -> StaleWrite:
    return StaleWrite(
        "This worker no longer has the run.",
        hint="Its schedule was removed, or its lease ran out and another node claimed it.",
    )


_read_rule = msgspec.json.Decoder(Rule).decode


def _to_schedule(row: Row) -> Schedule:
    (id_, owner, key, origin, task, rule, misfire, target, session, state, next_at,
     created_at) = row  # fmt: skip
    return Schedule(
        id=id_,
        owner=owner,
        key=key,
        origin=Source.from_dict(from_json(origin)),
        task=task,
        rule=_read_rule(rule),
        misfire=misfire,
        target=target,
        session=session,
        state=state,
        next_at=None if next_at is None else from_micros(next_at),
        created_at=from_micros(created_at),
    )


def _to_run(row: Row, schedule: Schedule) -> ScheduleRun:
    (id_, _, planned_at, since_at, is_manual, state, attempts, ended_at, session_id, delivery,
     result, problem) = row  # fmt: skip
    return ScheduleRun(
        id=id_,
        schedule=schedule,
        planned_at=from_micros(planned_at),
        since=from_micros(since_at),
        is_manual=bool(is_manual),
        state=state,
        attempts=attempts,
        ended_at=None if ended_at is None else from_micros(ended_at),
        session_id=session_id,
        delivery=delivery,
        result=result,
        problem=problem,
    )


_RUNS: Final = base.ClaimQueue(
    table="occurrences",
    channel=CHANNEL,
    argument="occurrence",
    entry_type=ScheduleRun,
    lane_name=_lane,
    lane=None,
    stale=_stale,
)
