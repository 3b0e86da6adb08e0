"""Schedules at work: each run is a turn, and what it says goes to its target or nowhere else.

    claim → turn → agent → outbox         and the transcript of the conversation it arrives in
                         → a dated file   for `local`, and for what no chat would take

Who made a schedule is told where its result could not go; nobody else is told anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping

import msgspec

from tertulia.core.schedule import describe
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import Target
from tertulia.errors import ConfigError, Conflict, Error, SessionBusy
from tertulia.gateway import access
from tertulia.gateway.pipeline import Pipeline
from tertulia.gateway.request_reply import (
    AgentRequest,
    Responder,
)
from tertulia.platforms.base import Adapter, Incoming
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.schedules import TRIES, Schedule, ScheduleRun

log = logging.getLogger("tertulia.gateway")

AT_ONCE = 16

_CUT_OFF = Error("The gateway stopped before this was through.")
_BUG = Error("The gateway has a bug.", hint="Its log says where.")


class ScheduleRunner:
    """Runs what was claimed; what becomes of it is written down in any case."""

    def __init__(self, path: Pipeline, adapters: Mapping[str, Adapter], folder: str | None) -> None:
        self._path = path
        self._store = path.store
        self._adapters = adapters
        self._folder = folder
        self._direct = Responder(path, wait=self._store.settings.lease_seconds)

    async def run(self, occurrence: ScheduleRun) -> None:
        """Run one occurrence to its end."""
        try:
            await self._run(occurrence)
        except asyncio.CancelledError:
            # The gateway stops: whoever starts next goes on with it, and need not wait.
            await asyncio.shield(self._later(occurrence, _CUT_OFF, 0))
            raise
        except SessionBusy as problem:
            await self._later(occurrence, problem, 5)
        except Conflict as problem:
            log.info("run %s is no longer ours: %s", occurrence.id, problem.message)
        except Error as problem:
            log.warning("run %s did not come to its end: %s", occurrence.id, problem)
            is_hopeless = not problem.retryable or occurrence.attempts >= TRIES
            await self._later(occurrence, problem, 2.0**occurrence.attempts, gives_up=is_hopeless)
        except Exception:
            log.exception("run %s did not come to its end", occurrence.id)
            await self._later(occurrence, _BUG, 0, gives_up=True)

    async def _run(self, occurrence: ScheduleRun) -> None:
        if occurrence.came_back:
            reason = f"It was not taken ({occurrence.problem or 'no reason was given'})."
            await self._keep(occurrence, occurrence.result or "", reason)
            return
        if not await self._is_welcome(occurrence.schedule.origin):
            problem = "Whoever made this schedule may not write here any more."
            await self._store.schedules.failed(occurrence, problem, for_good=True)
            return
        answer = await self._direct.answer(_ask(occurrence))
        if answer.text and answer.text.strip():
            await self._deliver(occurrence, answer.text, answer.session_id)
        else:
            await self._store.schedules.done(occurrence, session_id=answer.session_id)

    async def _is_welcome(self, origin: Source) -> bool:
        """Asked anew for each run: what somebody was allowed once they may be denied now."""
        rules = self._path.rules.of(origin.platform)
        role = access.role_of(origin, await self._store.people.role_of(origin), rules)
        asked = Incoming(source=origin, text=None, is_addressed=True)
        return access.decide(asked, role, rules) == "welcome"

    async def _deliver(self, occurrence: ScheduleRun, text: str, session_id: str) -> None:
        schedule = occurrence.schedule
        try:
            target = Target.parse(schedule.target, schedule.origin, known=PLATFORMS)
            if target.platform == LOCAL and not target.is_origin:
                await self._write(occurrence, text)
                await self._store.schedules.done(occurrence, text, session_id=session_id)
                return
            self._require_adapter(target)
            await self._store.schedules.deliver(occurrence, text, session_id=session_id)
        except ConfigError as problem:
            await self._keep(occurrence, text, problem.message, session_id)

    def _require_adapter(self, target: Target) -> None:
        if target.platform not in self._adapters:
            raise ConfigError(f"{target.platform} is not connected.", field="target")

    async def _keep(
        self, occurrence: ScheduleRun, text: str, reason: str, session_id: str | None = None
    ) -> None:
        """Keep here what its target did not take, and tell whoever made the schedule."""
        where = await self._write(occurrence, text)
        kept = "kept in the history of its runs" if where is None else f"kept in {where}"
        log.warning("run %s: %s It is %s.", occurrence.id, reason, kept)
        if self._can_be_told(occurrence):
            await self._store.schedules.tell(occurrence, not_delivered(occurrence.schedule, reason))
        problem = f"{reason} It is {kept}."
        await self._store.schedules.done(occurrence, text, session_id=session_id, problem=problem)

    def _can_be_told(self, occurrence: ScheduleRun) -> bool:
        """Not in the very chat that did not take the result, and only where there is a chat."""
        schedule = occurrence.schedule
        origin = schedule.origin
        if origin.platform not in self._adapters:
            return False
        try:
            target = Target.parse(schedule.target, origin, known=PLATFORMS)
        except ConfigError:
            return True
        return (target.platform, target.chat_id) != (origin.platform, origin.chat_id)

    async def _write(self, occurrence: ScheduleRun, text: str) -> str | None:
        """Write a result into its file; None where that cannot be done."""
        if self._folder is None:
            return None
        try:
            return await asyncio.to_thread(_written, self._folder, occurrence, text)
        except OSError as problem:
            log.warning("run %s cannot be written down: %s", occurrence.id, problem)
            return None

    async def _later(
        self, occurrence: ScheduleRun, problem: Error, seconds: float, *, gives_up: bool = False
    ) -> None:
        schedules = self._store.schedules
        try:
            if gives_up and occurrence.schedule.origin.platform in self._adapters:
                await schedules.tell(occurrence, not_run(occurrence.schedule, problem))
            await schedules.failed(
                occurrence, problem.message, retry_after=min(seconds, 300), for_good=gives_up
            )
        except Error as again:
            # The claim runs out, and then some node tries again.
            log.warning("run %s could not be put back: %s", occurrence.id, again)


def _ask(occurrence: ScheduleRun) -> AgentRequest:
    schedule = occurrence.schedule
    return AgentRequest(
        source=schedule.origin if schedule.session == "origin" else _own(schedule),
        text=f"[Scheduled task {schedule.id}] {schedule.task}",
        message_id=f"schedule:{occurrence.id}",
        origin=schedule.origin,
        instructions=(
            f"This is run {occurrence.id} of the scheduled task {schedule.id}"
            f" ({describe(schedule.rule)}), planned for {occurrence.planned_at:%Y-%m-%d %H:%M} UTC."
            f" Nobody is waiting to answer questions. Your answer is delivered to:"
            f" {schedule.target}."
        ),
    )


def _own(schedule: Schedule) -> Source:
    """A conversation of its own, beside the one it was made in, and of the same person."""
    return msgspec.structs.replace(schedule.origin, thread_id=f"schedule-{schedule.id}")


def not_delivered(schedule: Schedule, reason: str) -> str:
    """For who made it. The result itself is not repeated: it was meant for another place."""
    return (
        f"The result of task {schedule.id} could not be delivered to {schedule.target}:"
        f" {reason} It is kept on the machine I run on."
    )


def not_run(schedule: Schedule, problem: Error) -> str:
    """What a provider said is for the logs, not for people in chats."""
    return f"Task {schedule.id} could not be run ({problem.code}). /schedule shows when it is next."


def _written(folder: str, occurrence: ScheduleRun, text: str) -> str:
    """The path of a result, by schedule and planned time; for this user only."""
    place = os.path.join(folder, str(occurrence.schedule.id))
    os.makedirs(place, mode=0o700, exist_ok=True)
    path = os.path.join(place, f"{occurrence.planned_at:%Y-%m-%dT%H-%M-%SZ}-{occurrence.id}.md")
    beside = f"{path}.new"
    with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    return path
