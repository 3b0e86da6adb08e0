"""Schedules: tasks that run later or repeatedly, and deliver what comes of them to a target.

A schedule plans its next time. When that has come, a claim makes an *occurrence* of it, unique by
schedule and planned time, so that any number of nodes run each once:

waiting → taken → sending → done      it ran; what it said is in the outbox, then delivered
                          → taken     the platform did not take it: it is kept elsewhere
                → done                it ran, and there was nothing to deliver
                → waiting             it failed and will be tried again; or its taker was lost
                → failed              it could not be run
skipped                               it was missed, and its schedule wants it so
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core import keys
from tertulia.core.message import from_json, to_json
from tertulia.core.schedule import MISFIRES, Due, Misfire, Rule, decide, next_after, parse
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN, Target
from tertulia.errors import ConfigError, IllegalMove, NotFound, StaleWrite
from tertulia.platforms.registry import PLATFORMS
from tertulia.records import session_rows
from tertulia.records.cross_posts import (
    CrossPost,
    source_of,
)
from tertulia.records.people import linked_key
from tertulia.records.queues import base
from tertulia.records.queues.outbox import CHANNEL as OUTBOX_CHANNEL
from tertulia.records.queues.outbox import (
    Delivery,
    deliveries_to,
    put_in,
)
from tertulia.records.sessions.open import NeedsGuard
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "schedules"
# Whoever plans or takes does so one after the other.
CLAIMS: Final = "claims of schedules"
TRIES: Final = 5
LONGEST_TASK: Final = 4000
_FAR: Final = 2**63 - 1

ScheduleState = Literal["active", "paused", "over"]
RunsIn = Literal["own", "origin"]
RUNS_IN: tuple[RunsIn, ...] = ("own", "origin")
OccurrenceState = Literal["waiting", "taken", "sending", "done", "failed", "skipped"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its time. `next_at` is None where it will not run any more by itself."""

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
    """One run of a schedule. `since` is the first planned time that it stands for."""

    id: int
    schedule: Schedule
    planned_at: datetime
    since: datetime
    is_manual: bool
    state: OccurrenceState
    attempts: int
    ended_at: datetime | None
    session_id: str | None
    delivery: str | None
    result: str | None
    problem: str | None

    @property
    def came_back(self) -> bool:
        """Whether it ran, and what it said was not taken by the platform."""
        return self.delivery is not None


class Schedules:
    """The schedules of a store. With `by`, what is not of that person is not found."""

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
        """Plan a task for whoever writes from a source; `when` is as in "every 2h".

        Times are those of `zone`, else of the person's zone, else of the store's.
        """
        base.check_word("session", session, RUNS_IN)
        base.check_word("misfire", misfire, MISFIRES)
        now = self._context.clock.now()
        rule = parse(when, now=now, zone=zone or self._zone_of(source))
        first = next_after(rule, now)
        assert first is not None  # else it was refused
        params = {
            "owner": self._owner(source),
            "origin": to_json(source.to_dict()),
            "task": _task(task),
            "rule": msgspec.json.encode(rule).decode(),
            "misfire": misfire,
            "target": session_rows.storable(str(Target.parse(target, source, known=PLATFORMS))),
            "session": session,
            "next_at": to_micros(first),
            "now": to_micros(now),
        }

        def work(tx: Transaction) -> Schedule:
            key = linked_key(tx, source, self._key(source))
            row = tx.one("schedule_put", {**params, "key": key})
            assert row is not None
            return _schedule(row)

        made = self._db.write(work, lane=CLAIMS)
        self._db.notify(CHANNEL)
        return made

    def get(self, schedule_id: int, *, by: Source | None = None) -> Schedule | None:
        """That schedule, or None."""
        return self._db.read(lambda tx: self._seen(tx, schedule_id, by))

    def require(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """That schedule; `NotFound` if there is none."""
        return self._db.read(lambda tx: self._require(tx, schedule_id, by))

    def find(
        self, *, by: Source | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Schedule]:
        """Schedules in the order they were made."""
        base.check_limit(limit)
        params: dict[str, Any] = {"after": base.after(cursor), "limit": limit + 1}
        if by is None:
            rows = self._db.read(lambda tx: tx.all("schedules_find", params))
        else:
            rows = self._db.read(lambda tx: tx.all("schedules_of", params | self._scope(tx, by)))
        return base.page([_schedule(row) for row in rows], limit)

    def pause(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Let it run no more until it is resumed; what is under way goes on."""

        def change(schedule: Schedule) -> tuple[ScheduleState, datetime | None]:
            if schedule.state == "over":
                raise IllegalMove(f"Schedule {schedule.id} is over.", hint="It will not run again.")
            return "paused", schedule.next_at

        return self._change(schedule_id, by, change)

    def resume(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Let it run again, from now on: what a pause left out is not made up for."""
        now = self._context.clock.now()

        def change(schedule: Schedule) -> tuple[ScheduleState, datetime | None]:
            after = next_after(schedule.rule, now)
            if after is None:
                raise IllegalMove(
                    f"The time of schedule {schedule.id} has passed.",
                    hint="Run it now, or make a new one.",
                )
            return "active", after

        return self._change(schedule_id, by, change)

    def remove(self, schedule_id: int, *, by: Source | None = None) -> None:
        """Delete it with the history of its runs; what it said stays where it was said."""

        def work(tx: Transaction) -> None:
            found = {"id": self._require(tx, schedule_id, by).id}
            tx.run("occurrences_delete", found)
            tx.run("schedule_delete", found)

        self._db.write(work, lane=CLAIMS)

    def run_now(self, schedule_id: int, *, by: Source | None = None) -> ScheduleRun:
        """Have it run as soon as somebody can, whatever its state; its plan stays as it is."""
        now = self._context.clock.now()

        def work(tx: Transaction) -> ScheduleRun:
            schedule = self._require(tx, schedule_id, by)
            planned = now
            while not _put(tx, schedule, planned, planned, now, is_manual=True):
                planned += timedelta(microseconds=1)
            key = {"schedule": schedule.id, "planned_at": to_micros(planned)}
            row = tx.one("occurrence_planned", key)
            assert row is not None
            return _occurrence(row, schedule)

        made = self._db.write(work, lane=CLAIMS)
        self._db.notify(CHANNEL)
        return made

    def history(
        self,
        schedule_id: int,
        *,
        by: Source | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ScheduleRun]:
        """Its runs, the newest first."""
        base.check_limit(limit)
        before = cursors.read(cursor, 1)[0] if cursor else _FAR

        def work(tx: Transaction) -> list[ScheduleRun]:
            schedule = self._require(tx, schedule_id, by)
            params = {"schedule": schedule.id, "before": before, "limit": limit + 1}
            return [_occurrence(row, schedule) for row in tx.all("occurrences_of", params)]

        return base.page(self._db.read(work), limit)

    # -- running

    def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[ScheduleRun]:
        """Take what is due, one occurrence of a schedule at a time; nobody else gets it.

        Whoever takes longer than the lease renews it, or another taker gets the occurrence.
        """
        base.check_limit(limit)
        now = self._context.clock.now()
        params = {
            "now": to_micros(now),
            "lease": base.lease_micros(lease_seconds),
            "limit": limit,
            "tries": TRIES,
            "problem": "Every node that took it was lost.",
        }

        def work(tx: Transaction) -> list[ScheduleRun]:
            for row in tx.all("schedules_due", params):
                _plan(tx, _schedule(row), now)
            tx.run("occurrences_lost", params)
            tx.run("occurrences_sent")
            rows = tx.all("occurrences_take_back", params)
            if len(rows) < limit:
                rows += tx.all("occurrences_claim", {**params, "limit": limit - len(rows)})
            found = sorted(rows, key=lambda row: (row[2], row[0]))
            return [_occurrence(row, self._require(tx, row[1], None)) for row in found]

        return self._db.write(work, lane=CLAIMS)

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        return base.wait(self._context, CHANNEL, [("occurrences_are_due", {})], seconds)

    def renew(self, occurrence: ScheduleRun, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        lease = base.lease_micros(lease_seconds)
        params = {"id": occurrence.id, "attempts": occurrence.attempts, "lease": lease}
        lane = _lane(occurrence)
        if self._db.write(lambda tx: tx.changed("occurrence_renew", params), lane=lane) == 0:
            raise _taken_over()

    def deliver(self, occurrence: ScheduleRun, text: str, *, session_id: str | None = None) -> None:
        """It ran in a session: put what it said into the outbox, for its target.

        In the same transaction that is recorded in the conversation where it arrives, unless it was
        said there. `ConfigError` if there is no such target.
        """
        made = self._parcels(occurrence.schedule, text, occurrence.schedule.target, occurrence.id)
        made = [msgspec.structs.replace(part, session_id=session_id) for part in made]
        settled = self._settled(
            occurrence, "sending", result=text, session_id=session_id, delivery=made[0].delivery
        )

        def first(tx: Transaction) -> None:
            _settle(tx, settled)

        self._announce(occurrence.schedule, made, text, said_in=session_id, first=first)
        self._db.notify(CHANNEL)

    def tell(self, occurrence: ScheduleRun, text: str) -> None:
        """Say something about a run to whoever made its schedule, and to nobody else; once."""
        schedule = occurrence.schedule
        made = self._parcels(schedule, text, ORIGIN, f"{occurrence.id}:told")
        self._announce(schedule, made, text, said_in=None)

    def done(
        self,
        occurrence: ScheduleRun,
        result: str | None = None,
        *,
        session_id: str | None = None,
        problem: str | None = None,
    ) -> None:
        """It ran, and nothing is to be delivered; `problem` says what was wrong all the same."""
        delivery = occurrence.delivery
        params = self._settled(
            occurrence, "done", result=result, session_id=session_id, problem=problem,
            delivery=delivery,
        )  # fmt: skip
        self._db.write(lambda tx: _settle(tx, params), lane=_lane(occurrence))
        self._db.notify(CHANNEL)

    def failed(
        self,
        occurrence: ScheduleRun,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """It could not be run: try again after some seconds, or give up."""
        state: OccurrenceState = "failed" if for_good else "waiting"
        params = self._settled(
            occurrence, state, problem=problem, retry_after=retry_after,
            delivery=occurrence.delivery,
        )  # fmt: skip
        self._db.write(lambda tx: _settle(tx, params), lane=_lane(occurrence))
        self._db.notify(CHANNEL)

    # -- within

    def _change(
        self,
        schedule_id: int,
        by: Source | None,
        change: Callable[[Schedule], tuple[ScheduleState, datetime | None]],
    ) -> Schedule:
        def work(tx: Transaction) -> Schedule:
            schedule = self._require(tx, schedule_id, by)
            return _set(tx, schedule, *change(schedule))

        changed = self._db.write(work, lane=CLAIMS)
        self._db.notify(CHANNEL)
        return changed

    def _settled(
        self,
        occurrence: ScheduleRun,
        state: OccurrenceState,
        *,
        result: str | None = None,
        session_id: str | None = None,
        problem: str | None = None,
        delivery: str | None = None,
        retry_after: float | None = None,
    ) -> dict[str, Any]:
        now = self._context.clock.now()
        return {
            "id": occurrence.id,
            "attempts": occurrence.attempts,
            "state": state,
            "not_before": to_micros(base.later(now, retry_after)),
            "ended_at": None if state == "waiting" else to_micros(now),
            "session_id": session_id,
            "result": session_rows.storable(result),
            "problem": session_rows.storable(problem),
            "delivery": delivery,
        }

    def _parcels(self, schedule: Schedule, text: str, to: str, name: int | str) -> list[Delivery]:
        return deliveries_to(self._context, text, to, schedule.origin, delivery=f"schedule:{name}")

    def _announce(
        self,
        schedule: Schedule,
        made: list[Delivery],
        text: str,
        *,
        said_in: str | None,
        first: Callable[[Transaction], None] | None = None,
    ) -> None:
        """Put a delivery in and record it where it arrives, all in one transaction."""
        now = self._context.clock.now()
        source = self._db.read(lambda tx: source_of(tx, self._context, made[0], schedule.origin))
        has_processes: bool | None = None

        def work(tx: Transaction) -> NeedsGuard | None:
            if first is not None:
                first(tx)
            if tx.one("outbox_get", {"delivery": made[0].delivery}) is not None:
                return None  # a node was lost after it had been put in
            arriving = CrossPost(self._context, source, text, now, has_processes)
            if (asked := arriving.record(tx, said_in=said_in)) is not None:
                return asked
            put_in(tx, made, to_micros(now))
            return None

        while (
            asked := self._db.write(work, lane=session_rows.lane_of(self._key(source)))
        ) is not None:
            # The guard is foreign code: it is asked outside the transaction, which then runs anew.
            has_processes = self._context.has_processes(asked.key)
        self._db.notify(OUTBOX_CHANNEL)
        self._context.notify()

    def _require(self, tx: Transaction, schedule_id: int, by: Source | None) -> Schedule:
        found = self._seen(tx, schedule_id, by)
        if found is None:
            raise NotFound(
                f"There is no schedule {schedule_id}.",
                hint="List them with /schedule, or: tertulia schedules list",
            )
        return found

    def _seen(self, tx: Transaction, schedule_id: int, by: Source | None) -> Schedule | None:
        if not 0 < schedule_id <= _FAR:
            return None
        row = tx.one("schedule_get", {"id": schedule_id})
        if row is None:
            return None
        found = _schedule(row)
        if by is not None:
            scope = self._scope(tx, by)
            if found.owner != scope["owner"] and found.key != scope["key"]:
                return None  # whether it exists is not told either
        return found

    def _scope(self, tx: Transaction, source: Source) -> dict[str, str]:
        """Whose schedules somebody sees: their own, and those of a chat linked to theirs."""
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
    """Make occurrences of what is due, and plan the next one."""
    assert schedule.next_at is not None
    due: Due = decide(schedule.rule, schedule.next_at, now, schedule.misfire)
    if due.skipped is not None:
        _put(tx, schedule, due.skipped, due.since, now, is_skipped=True)
    for planned in due.runs:
        since = due.since if schedule.misfire == "once" else planned
        _put(tx, schedule, planned, since, now)
    _set(tx, schedule, "over" if due.next is None else "active", due.next)


def _put(
    tx: Transaction,
    schedule: Schedule,
    planned: datetime,
    since: datetime,
    now: datetime,
    *,
    is_manual: bool = False,
    is_skipped: bool = False,
) -> bool:
    """Enter an occurrence; False if there is one for that time."""
    params = {
        "schedule": schedule.id,
        "planned_at": to_micros(planned),
        "since_at": to_micros(since),
        "is_manual": int(is_manual),
        "state": "skipped" if is_skipped else "waiting",
        "now": to_micros(now),
        "ended_at": to_micros(now) if is_skipped else None,
        "problem": "It was missed." if is_skipped else None,
    }
    return tx.changed("occurrence_put", params) > 0


def _set(
    tx: Transaction, schedule: Schedule, state: ScheduleState, next_at: datetime | None
) -> Schedule:
    at = None if next_at is None else to_micros(next_at)
    row = tx.one("schedule_set", {"id": schedule.id, "state": state, "next_at": at})
    assert row is not None
    return _schedule(row)


def _settle(tx: Transaction, params: dict[str, Any]) -> None:
    if tx.changed("occurrence_settle", params) == 0:
        raise _taken_over()


def _lane(occurrence: ScheduleRun) -> str:
    return f"schedule {occurrence.schedule.id}"


def _task(text: str) -> str:
    task = (session_rows.storable(text) or "").strip()
    if not 1 <= len(task) <= LONGEST_TASK:
        raise ConfigError(
            f"The task has {len(task)} characters.",
            hint=f"Say what is to be done, in 1 to {LONGEST_TASK} characters.",
            field="task",
        )
    return task


def _taken_over() -> StaleWrite:
    return StaleWrite(
        "The run is no longer yours.",
        hint="Its schedule was removed, or another node took it after the lease had run out.",
    )


_read_rule = msgspec.json.Decoder(Rule).decode


def _schedule(row: Row) -> Schedule:
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


def _occurrence(row: Row, schedule: Schedule) -> ScheduleRun:
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
