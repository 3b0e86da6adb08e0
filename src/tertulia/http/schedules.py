"""Schedules: tasks for later. The owner sees all of them, a member sees their own."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tertulia.core.schedule import Misfire, describe_rule
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.errors import NotFound
from tertulia.gateway import schedule_tool
from tertulia.http.auth import API, WEB
from tertulia.http.conversation_id import check_name
from tertulia.http.parameters import Count, Cursor, Platform
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.schedules import (
    MAX_TASK_CHARS,
    RunsIn,
    RunState,
    Schedule,
    ScheduleRun,
    ScheduleState,
)

# The conversation of schedules whose creator does not name one.
_CONVERSATION: Final = "schedules"

ShortText = Annotated[str, Meta(min_length=1, max_length=400)]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its time, such as "every 2h", "at 09:00" or "cron 0 9 * * MON-FRI".

    It belongs to a `conversation` of the caller on a `platform`, which the target "origin" stands
    for. Only the owner may set another target.
    """

    when: ShortText
    task: Annotated[str, Meta(min_length=1, max_length=MAX_TASK_CHARS)]
    conversation: ShortText = _CONVERSATION
    platform: Platform = "api"
    zone: ShortText | None = None
    target: ShortText = ORIGIN
    session: RunsIn = "own"
    misfire: Misfire = "once"


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The owner sees all schedules; others see those they created on `platform`."""

    platform: Platform = "api"
    limit: Count = 50
    cursor: Cursor | None = None


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Count = 50
    cursor: Cursor | None = None


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. `next_at` is null if it has no further run planned."""

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


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a schedule. `result` is set wherever the result was delivered to."""

    id: int
    schedule: int
    planned_at: datetime
    since: datetime
    is_manual: bool
    state: RunState
    attempts: int
    ended_at: datetime | None
    session_id: str | None
    result: str | None
    problem: str | None


async def list_schedules(call: ApiCall) -> Page[ScheduleInfo]:
    query: ScheduleQuery = call.query
    creator = None if call.caller.is_owner else call.caller.source(query.platform)
    page = await call.api.store.schedules.find(by=creator, limit=query.limit, cursor=query.cursor)
    return Page(tuple(map(_schedule_info, page.items)), page.next)


async def create_schedule(call: ApiCall) -> ScheduleInfo:
    body: NewSchedule = call.body
    source = call.caller.source(body.platform, check_name("conversation", body.conversation))
    schedule = await asyncio.to_thread(
        schedule_tool.add, call.api.store.sync, source, call.caller.role, body.when, body.task,
        target=body.target, session=body.session, zone=body.zone, misfire=body.misfire,
    )  # fmt: skip
    return _schedule_info(schedule)


async def get_schedule(call: ApiCall) -> ScheduleInfo:
    return _schedule_info(await _require_schedule(call))


async def remove_schedule(call: ApiCall) -> None:
    await call.api.store.schedules.remove((await _require_schedule(call)).id)


async def pause_schedule(call: ApiCall) -> ScheduleInfo:
    schedule = await _require_schedule(call)
    return _schedule_info(await call.api.store.schedules.pause(schedule.id))


async def resume_schedule(call: ApiCall) -> ScheduleInfo:
    schedule = await _require_schedule(call)
    return _schedule_info(await call.api.store.schedules.resume(schedule.id))


async def run_schedule(call: ApiCall) -> RunInfo:
    run = await call.api.store.schedules.run_now((await _require_schedule(call)).id)
    return _run_info(run, is_owner=call.caller.is_owner)


async def list_runs(call: ApiCall) -> Page[RunInfo]:
    query: RunQuery = call.query
    schedule = await _require_schedule(call)
    page = await call.api.store.schedules.history(
        schedule.id, limit=query.limit, cursor=query.cursor
    )
    runs = tuple(_run_info(run, is_owner=call.caller.is_owner) for run in page.items)
    return Page(runs, page.next)


async def _require_schedule(call: ApiCall) -> Schedule:
    """Return the schedule in the path; raise `NotFound` if the caller may not see it."""
    number = call.number("schedule", "GET /schedules")
    caller = call.caller
    creators: list[Source | None] = [None] if caller.is_owner else [
        caller.source(API), caller.source(WEB),
    ]  # fmt: skip
    for creator in creators:
        schedule = await call.api.store.schedules.get(number, by=creator)
        if schedule is not None:
            return schedule
    raise NotFound(f"There is no schedule {number}.", hint="See GET /schedules.")


def _schedule_info(schedule: Schedule) -> ScheduleInfo:
    return ScheduleInfo(
        id=schedule.id,
        owner=schedule.owner,
        when=describe_rule(schedule.rule),
        task=schedule.task,
        target=schedule.target,
        session=schedule.session,
        misfire=schedule.misfire,
        state=schedule.state,
        next_at=schedule.next_at,
        created_at=schedule.created_at,
    )


def _run_info(run: ScheduleRun, *, is_owner: bool) -> RunInfo:
    # The problem of a run that is done names the file on this machine where an undelivered result
    # is stored; only the owner may see that path.
    is_problem_public = is_owner or run.state != "done"
    return RunInfo(
        id=run.id,
        schedule=run.schedule.id,
        planned_at=run.planned_at,
        since=run.since,
        is_manual=run.is_manual,
        state=run.state,
        attempts=run.attempts,
        ended_at=run.ended_at,
        session_id=run.session_id,
        result=run.result,
        problem=run.problem if is_problem_public else None,
    )


_SCHEDULE_PATH = "/schedules/{id}"

TABLE = (
    Operation(
        method="GET", path="/schedules", summary="List schedules, oldest first.",
        act=list_schedules, query=ScheduleQuery, answer=Page[ScheduleInfo],
    ),
    Operation(
        method="POST", path="/schedules", summary="Create a schedule.",
        act=create_schedule, body=NewSchedule, answer=ScheduleInfo,
    ),
    Operation(
        method="GET", path=_SCHEDULE_PATH,
        has_number=True, summary="Get one schedule.",
        act=get_schedule, answer=ScheduleInfo,
    ),
    Operation(
        method="DELETE", path=_SCHEDULE_PATH,
        has_number=True, summary="Remove a schedule and its runs.",
        act=remove_schedule,
    ),
    Operation(
        method="POST", path=_SCHEDULE_PATH + "/pause",
        has_number=True, answer=ScheduleInfo, act=pause_schedule,
        summary="Pause a schedule until it is resumed.",
    ),
    Operation(
        method="POST", path=_SCHEDULE_PATH + "/resume",
        has_number=True, answer=ScheduleInfo, act=resume_schedule,
        summary="Resume a schedule, from now on.",
    ),
    Operation(
        method="POST", path=_SCHEDULE_PATH + "/run",
        has_number=True, answer=RunInfo, act=run_schedule,
        summary="Run a schedule now; its planned runs stay as they are.",
    ),
    Operation(
        method="GET", path=_SCHEDULE_PATH + "/runs",
        has_number=True, summary="List the runs, newest first.",
        act=list_runs, query=RunQuery, answer=Page[RunInfo],
    ),
)  # fmt: skip
