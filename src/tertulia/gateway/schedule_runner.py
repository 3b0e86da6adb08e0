"""Runs of schedules: each run is a turn, and its result goes to the target of the schedule only.

    claim → turn → agent → outbox         and the transcript of the conversation it is sent to
                         → a dated file   for the target `local`, and for a result that no chat took

If a result cannot be delivered, the creator of the schedule is told, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from tertulia.core.schedule import Cron, describe_rule
from tertulia.core.settings import require_zone
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import ORIGIN, Target
from tertulia.core.text.time_head import format_local_time
from tertulia.errors import ConfigError, Error, ProcessCheckFailed
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.request_reply import AgentRequest, Responder
from tertulia.gateway.result_files import ResultFiles
from tertulia.gateway.retries import SCHEDULE_RUN_BACKOFF, Retries
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.schedules import MAX_ATTEMPTS, Schedule, ScheduleRun

if TYPE_CHECKING:
    from tertulia.gateway.pipeline import Pipeline

log = logging.getLogger("tertulia.gateway")

_WAITS = "It waits for an approval; its result follows when that is given."
MAX_RUNS = 16  # in progress at once on this node


class ScheduleRunner:
    """Runs the claimed occurrences of schedules, and stores the outcome whatever happens."""

    def __init__(self, pipeline: Pipeline, adapters: Adapters, folder: str | None) -> None:
        self._pipeline = pipeline
        self._store = pipeline.store
        self._adapters = adapters
        self._files = None if folder is None else ResultFiles(folder)
        self._retries = Retries(
            "run",
            self._store.schedules,
            gives_up=_gives_up,
            report=self._report_given_up,
            backoff=SCHEDULE_RUN_BACKOFF,
            busy_seconds=5,
        )
        self._responder = Responder(pipeline, wait=self._store.settings.lease_seconds)

    async def run(self, run: ScheduleRun) -> None:
        """Run one occurrence of a schedule to its end."""
        await self._retries.run(run, self._run)

    async def _run(self, run: ScheduleRun) -> None:
        if run.is_undelivered:
            reason = f"The target did not accept it ({run.problem or 'no reason was given'})."
            await self._keep_undelivered(run, run.result or "", reason, run.session_id)
            return
        refusal = await self._refusal(run.schedule)
        if refusal is not None:
            await self._store.schedules.failed(run, refusal, for_good=True)
            return
        reply = await self._responder.answer(_request(run, self._store.now(), self._zone(run)))
        if reply.is_waiting:
            await self._store.schedules.done(run, session_id=reply.session_id, problem=_WAITS)
        elif reply.text and reply.text.strip():
            await self._deliver(run, reply.text, reply.session_id)
        else:
            await self._store.schedules.done(run, session_id=reply.session_id)

    def _zone(self, run: ScheduleRun) -> tzinfo:
        """Return the zone that a run states its times in: that of its rule, else the store's."""
        rule = run.schedule.rule
        if isinstance(rule, Cron):
            return require_zone(rule.zone)
        return self._store.sync.context.zone

    async def _refusal(self, schedule: Schedule) -> str | None:
        """Return why a schedule may not run now, or None; its creator's role is asked each time."""
        role = await self._pipeline.role_of_creator(schedule.origin)
        if role is None:
            return "The creator of this schedule may no longer write here."
        if schedule.target != ORIGIN and role != "owner":
            return "Only an owner may have results sent to another chat; the creator is none now."
        return None

    async def _deliver(self, run: ScheduleRun, text: str, session_id: str) -> None:
        """Put the result into the outbox, or into a file for the target `local`."""
        schedule = run.schedule
        try:
            target = Target.parse(schedule.target, schedule.origin, known=PLATFORMS)
            if target.platform == LOCAL and not target.is_origin:
                await self._write(run, text, session_id)
                await self._store.schedules.done(run, text, session_id=session_id)
                return
            self._require_adapter(target)
            await self._store.schedules.deliver(run, text, session_id=session_id)
        except ConfigError as problem:
            await self._keep_undelivered(run, text, problem.message, session_id)
        except ProcessCheckFailed as problem:
            log.warning("run %s: %s", run.id, problem)
            # The message may name files; members read the reason in the history of runs.
            await self._keep_undelivered(run, text, str(ProcessCheckFailed()), session_id)

    def _require_adapter(self, target: Target) -> None:
        if not self._adapters.serves_platform(target.platform):
            raise ConfigError(f"{target.platform} is not connected.", field="target")

    async def _keep_undelivered(
        self, run: ScheduleRun, text: str, reason: str, session_id: str | None = None
    ) -> None:
        """Store a result that its target did not accept, and tell the creator of the schedule."""
        path = await self._write(run, text, session_id)
        location = "the history of its runs" if path is None else path
        log.warning("run %s was not delivered: %s It is kept in %s.", run.id, reason, location)
        if self._can_tell_creator(run):
            try:
                await self._store.schedules.report(run, not_delivered(run.schedule, reason))
            except ProcessCheckFailed as failure:
                log.warning("nobody is told that run %s was not delivered: %s", run.id, failure)
        problem = f"{reason} It is kept in {location}."
        await self._store.schedules.done(run, text, session_id=session_id, problem=problem)

    def _can_tell_creator(self, run: ScheduleRun) -> bool:
        """Return whether the creator has a chat here, other than the one that failed."""
        schedule = run.schedule
        origin = schedule.origin
        if not self._adapters.serves(origin):
            return False
        try:
            target = Target.parse(schedule.target, origin, known=PLATFORMS)
        except ConfigError:
            return True
        return (target.platform, target.chat_id) != (origin.platform, origin.chat_id)

    async def _write(self, run: ScheduleRun, text: str, session_id: str | None) -> str | None:
        """Write a result to its file; return the path, or None if it cannot be written."""
        if self._files is None:
            return None
        try:
            return await asyncio.to_thread(self._files.write, run, text, session_id)
        except OSError as problem:
            log.warning("result of run %s could not be written to a file: %s", run.id, problem)
            return None

    async def _report_given_up(self, run: ScheduleRun, problem: Error) -> None:
        if self._adapters.serves(run.schedule.origin):
            await self._store.schedules.report(run, not_run(run.schedule, problem))


def _gives_up(run: ScheduleRun, problem: Error) -> bool:
    return not problem.retryable or run.attempts >= MAX_ATTEMPTS


def _request(run: ScheduleRun, now: datetime, zone: tzinfo) -> AgentRequest:
    schedule = run.schedule
    # The system prompt holds no time and no run: it is the same for every run of the task.
    times = (
        f"[Planned for {format_local_time(run.planned_at, zone)},"
        f" started at {format_local_time(now, zone)}]"
    )
    return AgentRequest(
        source=schedule.origin if schedule.session == "origin" else _own_source(schedule),
        text=f"[Scheduled task {schedule.id}] {schedule.task}\n{times}",
        message_id=f"schedule:{run.id}",
        origin=schedule.origin,
        target=_late_target(schedule),
        instructions=(
            f"This is the scheduled task {schedule.id} ({describe_rule(schedule.rule)})."
            f" Nobody is waiting to answer questions. Your answer is delivered to:"
            f" {schedule.target}."
        ),
    )


def _late_target(schedule: Schedule) -> str | None:
    """Return where the result goes if the run waits for an approval; files get none."""
    try:
        target = Target.parse(schedule.target, schedule.origin, known=PLATFORMS)
    except ConfigError:
        return None
    is_chat = target.platform != LOCAL and target.chat_id is not None
    explicit = Target(target.platform, target.chat_id, target.thread_id)
    return str(explicit) if is_chat else schedule.target if target.platform != LOCAL else None


def _own_source(schedule: Schedule) -> Source:
    """Return the source of the schedule's own conversation, of the same person as its origin."""
    return schedule.origin.with_fields(thread_id=f"schedule-{schedule.id}")


def not_delivered(schedule: Schedule, reason: str) -> str:
    """Tell the creator. The result itself is not repeated: it was meant for another chat."""
    return (
        f"The result of task {schedule.id} could not be delivered to {schedule.target}:"
        f" {reason} The result is kept on the machine I run on."
    )


def not_run(schedule: Schedule, problem: Error) -> str:
    """Tell the creator. The provider's own message goes only into the log."""
    return f"Task {schedule.id} could not be run ({problem.code}). /schedule shows its next run."
