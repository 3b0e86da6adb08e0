"""Schedules: tasks for later. The owner sees everybody's, a member those that member has made."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tertulia.core.schedule import Misfire, describe
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.errors import ConfigError, NotFound
from tertulia.gateway import schedule_tool
from tertulia.http.auth import (
    API,
    WEB,
)
from tertulia.http.conversation_id import checked
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.http.sessions import Count, Cursor, Platform
from tertulia.records.schedules import (
    LONGEST_TASK,
    OccurrenceState,
    RunsIn,
    Schedule,
    ScheduleRun,
    ScheduleState,
)

# Where nobody names a conversation, schedules have one of their own.
_CONVERSATION: Final = "schedules"

Words = Annotated[str, Meta(min_length=1, max_length=400)]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its time, such as "every 2h", "at 09:00" or "cron 0 9 * * MON-FRI".

    It belongs to a `conversation` of the caller's on a `platform`: that is what the target
    "origin" means. Other targets are for the owner.
    """

    when: Words
    task: Annotated[str, Meta(min_length=1, max_length=LONGEST_TASK)]
    conversation: Words = _CONVERSATION
    platform: Platform = "api"
    zone: Words | None = None
    target: Words = ORIGIN
    session: RunsIn = "own"
    misfire: Misfire = "once"


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The owner sees everybody's; others see those they have made on `platform`."""

    platform: Platform = "api"
    limit: Count = 50
    cursor: Cursor | None = None


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Count = 50
    cursor: Cursor | None = None


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. `next_at` is null where it will not run any more by itself."""

    id: int
    owner: str
    when: str
    task: str
    target: str
    session: RunsIn
    misfire: Misfire
    state: ScheduleState
    next_at: datetime | None
    created_at: datetime


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Its `result` stands here wherever it was delivered to."""

    id: int
    schedule: int
    planned_at: datetime
    since: datetime
    is_manual: bool
    state: OccurrenceState
    attempts: int
    ended_at: datetime | None
    session_id: str | None
    result: str | None
    problem: str | None


async def list_schedules(call: ApiCall) -> Page[Planned]:
    given: ScheduleQuery = call.query
    by = None if call.caller.is_owner else call.caller.source(given.platform)
    found = await call.api.store.schedules.find(by=by, limit=given.limit, cursor=given.cursor)
    return Page(tuple(map(_planned, found.items)), found.next)


async def create_schedule(call: ApiCall) -> Planned:
    given: NewSchedule = call.body
    source = call.caller.source(given.platform, checked("conversation", given.conversation))
    await call.api.remember(call.caller)
    made = await asyncio.to_thread(
        schedule_tool.add, call.api.store.sync, source, call.caller.role, given.when, given.task,
        target=given.target, session=given.session, zone=given.zone, misfire=given.misfire,
    )  # fmt: skip
    return _planned(made)


async def get_schedule(call: ApiCall) -> Planned:
    return _planned(await _seen(call))


async def remove_schedule(call: ApiCall) -> None:
    await call.api.store.schedules.remove((await _seen(call)).id)


async def pause_schedule(call: ApiCall) -> Planned:
    return _planned(await call.api.store.schedules.pause((await _seen(call)).id))


async def resume_schedule(call: ApiCall) -> Planned:
    return _planned(await call.api.store.schedules.resume((await _seen(call)).id))


async def run_schedule(call: ApiCall) -> Run:
    made = await call.api.store.schedules.run_now((await _seen(call)).id)
    return _run(made, is_owner=call.caller.is_owner)


async def list_runs(call: ApiCall) -> Page[Run]:
    given: RunQuery = call.query
    seen = await _seen(call)
    found = await call.api.store.schedules.history(seen.id, limit=given.limit, cursor=given.cursor)
    runs = tuple(_run(one, is_owner=call.caller.is_owner) for one in found.items)
    return Page(runs, found.next)


async def _seen(call: ApiCall) -> Schedule:
    """The schedule that is named, if the caller may see it."""
    given = call.path["id"]
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise ConfigError("A schedule is named by its number.", hint="See GET /schedules.")
    caller = call.caller
    eyes: list[Source | None] = [None] if caller.is_owner else [
        caller.source(API), caller.source(WEB),
    ]  # fmt: skip
    for by in eyes:
        found: Schedule | None = await call.api.store.schedules.get(int(given), by=by)
        if found is not None:
            return found
    raise NotFound(f"There is no schedule {int(given)}.", hint="See GET /schedules.")


def _planned(one: Schedule) -> Planned:
    return Planned(
        id=one.id,
        owner=one.owner,
        when=describe(one.rule),
        task=one.task,
        target=one.target,
        session=one.session,
        misfire=one.misfire,
        state=one.state,
        next_at=one.next_at,
        created_at=one.created_at,
    )


def _run(one: ScheduleRun, *, is_owner: bool) -> Run:
    # Where a result is kept that no chat took is a path of this machine: for the owner.
    is_told = is_owner or one.state != "done"
    return Run(
        id=one.id,
        schedule=one.schedule.id,
        planned_at=one.planned_at,
        since=one.since,
        is_manual=one.is_manual,
        state=one.state,
        attempts=one.attempts,
        ended_at=one.ended_at,
        session_id=one.session_id,
        result=one.result,
        problem=one.problem if is_told else None,
    )


_ONE = "/schedules/{id}"

TABLE = (
    Operation(
        method="GET", path="/schedules", summary="Schedules in the order they were made.",
        act=list_schedules, query=ScheduleQuery, answer=Page[Planned],
    ),
    Operation(
        method="POST", path="/schedules", summary="Plan a task.",
        act=create_schedule, body=NewSchedule, answer=Planned,
    ),
    Operation(
        method="GET", path=_ONE, summary="One schedule.", act=get_schedule, answer=Planned,
    ),
    Operation(
        method="DELETE", path=_ONE, summary="Remove a schedule with the history of its runs.",
        act=remove_schedule,
    ),
    Operation(
        method="POST", path=_ONE + "/pause", answer=Planned, act=pause_schedule,
        summary="Let it run no more until it is resumed.",
    ),
    Operation(
        method="POST", path=_ONE + "/resume", answer=Planned, act=resume_schedule,
        summary="Let it run again, from now on.",
    ),
    Operation(
        method="POST", path=_ONE + "/run", answer=Run, act=run_schedule,
        summary="Have it run now; its plan stays as it is.",
    ),
    Operation(
        method="GET", path=_ONE + "/runs", summary="Its runs, the newest first.",
        act=list_runs, query=RunQuery, answer=Page[Run],
    ),
)  # fmt: skip
