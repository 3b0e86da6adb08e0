"""The records of a store, to be awaited.

Written by scripts/make_aio.py from the sync classes; change those, then run it again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from tertulia import store as sync_store
from tertulia.aio.executor import P, T, ThreadExecutor
from tertulia.aio.turn import Turn, TurnControl
from tertulia.core.history.formats import Format, Timestamps
from tertulia.core.history.summary import Compaction, Summariser
from tertulia.core.message import Message
from tertulia.core.schedule import Misfire
from tertulia.core.session import Page, Session, State
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.core.usage import Usage
from tertulia.records import people as sync_people
from tertulia.records import person_view as sync_person_view
from tertulia.records import processes as sync_processes
from tertulia.records import schedules as sync_schedules
from tertulia.records import usage as sync_usage
from tertulia.records.people import Pairing, Person, Role
from tertulia.records.processes import Identity, Process, ProcessState
from tertulia.records.queues import inbox as sync_inbox
from tertulia.records.queues import memory_flushes as sync_memory_flushes
from tertulia.records.queues import outbox as sync_outbox
from tertulia.records.queues.inbox import ArrivalState, InboxItem
from tertulia.records.queues.outbox import Delivery, DeliveryState
from tertulia.records.schedules import RunsIn, Schedule, ScheduleRun
from tertulia.records.search import Hit
from tertulia.records.sessions import sessions as sync_sessions
from tertulia.records.transcript import transcript as sync_transcript
from tertulia.records.transcript.revisions import Revision
from tertulia.records.usage import By
from tertulia.storage.base import Progress


class Sessions:
    """The sessions of a store."""

    def __init__(self, record: sync_sessions.Sessions, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def open(self, source: Source, *, force_new: bool = False) -> Session:
        """Return the current session of a source, or a new one.

        A new one begins if there is none, if the policy ends the current one, or if it is forced.
        Activity is touched in the same transaction. Two callers at once get the same session.
        """
        return await self._executor.run(self.sync.open, source, force_new=force_new)

    def key(self, source: Source) -> str:
        """Return the key of a source under this store's settings."""
        return self.sync.key(source)

    async def conversation(self, source: Source) -> str:
        """Return the key of a source, or the shared one if its chat is linked."""
        return await self._executor.run(self.sync.conversation, source)

    def is_shared(self, source: Source) -> bool:
        """Return whether several people write in the session of a source."""
        return self.sync.is_shared(source)

    async def get(self, session_id: str) -> Session | None:
        """Return that session, or None."""
        return await self._executor.run(self.sync.get, session_id)

    async def require(self, session_id: str) -> Session:
        """Return that session; raise `NotFound` if there is none."""
        return await self._executor.run(self.sync.require, session_id)

    async def current(self, key: str) -> Session | None:
        """Return the current session of a key as stored, or None; no policy is applied."""
        return await self._executor.run(self.sync.current, key)

    async def reset(self, key: str) -> Session | None:
        """End the current session of a key and begin a new one; None for an unknown key."""
        return await self._executor.run(self.sync.reset, key)

    async def switch(self, key: str, session_id: str) -> Session:
        """Make an earlier session of the same key current again, and return it.

        Raise `NotFound`, and `AccessDenied` if it belongs to another key.
        """
        return await self._executor.run(self.sync.switch, key, session_id)

    async def fork(self, session_id: str, at: int | None = None) -> Session:
        """Begin a new current session with the same past, up to and including message `at`.

        No message is copied: the fork shows the messages of the session it came from.
        """
        return await self._executor.run(self.sync.fork, session_id, at)

    async def end(self, session_id: str, reason: str) -> Session:
        """End a session and return it; one that has ended stays as it is. Raise `NotFound`."""
        return await self._executor.run(self.sync.end, session_id, reason)

    async def expire(self, session_id: str) -> Session | None:
        """End a session if its policy would now, and return it.

        Return None if not: a user wrote, a turn or a process runs in it, or it has ended.
        """
        return await self._executor.run(self.sync.expire, session_id)

    async def rename(self, session_id: str, title: str | None) -> Session:
        """Set the title of a session, unique among its owner's sessions; None removes it."""
        return await self._executor.run(self.sync.rename, session_id, title)

    async def suggest_title(self, session_id: str) -> str | None:
        """Return a free title made of the user's first words; None if there are no words."""
        return await self._executor.run(self.sync.suggest_title, session_id)

    async def set_metadata(
        self, session_id: str, metadata: Mapping[str, Any], *, version: int | None = None
    ) -> Session:
        """Replace the metadata and return the session.

        With a version, raise `StaleWrite` unless the session is still at it.
        """
        return await self._executor.run(
            self.sync.set_metadata, session_id, metadata, version=version
        )

    async def delete(self, session_id: str) -> None:
        """Delete a session with all its content; only its usage stays in the ledger."""
        await self._executor.run(self.sync.delete, session_id)

    async def count(self) -> int:
        """Return the number of sessions, ended ones included."""
        return await self._executor.run(self.sync.count)

    async def has_any(self) -> bool:
        """Return whether there is any session, ended ones included."""
        return await self._executor.run(self.sync.has_any)

    async def find(
        self,
        *,
        active_minutes: float | None = None,
        platform: str | None = None,
        key: str | None = None,
        person: str | None = None,
        state: State = "all",
        text: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Return a page by newest activity. `text` is searched in titles, names and messages."""
        return await self._executor.run(
            self.sync.find,
            active_minutes=active_minutes,
            platform=platform,
            key=key,
            person=person,
            state=state,
            text=text,
            limit=limit,
            cursor=cursor,
        )

    async def ended(self, *, before: datetime, limit: int = 100) -> list[str]:
        """Return the ids of sessions that ended before a time, the oldest first."""
        return await self._executor.run(self.sync.ended, before=before, limit=limit)

    async def expired(self, limit: int = 100, cursor: str | None = None) -> Page[Session]:
        """Return a page of the sessions that their policy would end now, longest inactive first."""
        return await self._executor.run(self.sync.expired, limit, cursor)

    async def explain(self, session_id: str) -> str:
        """Describe in lines for people why the session began, continued and ended."""
        return await self._executor.run(self.sync.explain, session_id)


class Transcript:
    """All messages a session ever had, and those that are visible now."""

    def __init__(self, record: sync_transcript.Transcript, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def append(self, message: Mapping[str, Any]) -> int:
        """Store a message; return its sequence number."""
        return await self._executor.run(self.sync.append, message)

    async def extend(
        self, messages: Iterable[Mapping[str, Any]], usage: Usage | None = None
    ) -> int:
        """Store messages and their usage in one transaction; return the last sequence number."""
        return await self._executor.run(self.sync.extend, messages, usage)

    async def load(self, *, newest: int | None = None) -> list[dict[str, Any]]:
        """Return the visible messages as they were given; with `newest` only that many."""
        return await self._executor.run(self.sync.load, newest=newest)

    async def entries(self, *, newest: int | None = None) -> list[Message]:
        """Return the visible messages with sequence number, turn, time and author."""
        return await self._executor.run(self.sync.entries, newest=newest)

    async def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
    ) -> list[dict[str, Any]]:
        """Return the messages for the model: the newest turns that fit, always legal.

        `max_tokens` is kept by estimate. `timestamps` puts the time before the text of the user
        ("user") or of both sides ("all"). Formats: openai, responses, anthropic, text.
        """
        return await self._executor.run(
            self.sync.history, max_messages, max_tokens, timestamps, format
        )

    async def count(self) -> int:
        """Return how many messages are visible."""
        return await self._executor.run(self.sync.count)

    async def rewrite(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Show these messages instead of the visible ones."""
        await self._executor.run(self.sync.rewrite, messages)

    async def clear(self) -> None:
        """Hide all messages."""
        await self._executor.run(self.sync.clear)

    async def undo(self, turns: int = 1) -> int:
        """Hide the newest turns, each from the user's message on; return how many there were."""
        return await self._executor.run(self.sync.undo, turns)

    async def redo(self) -> bool:
        """Show again the turns of the last undo; return whether that was possible.

        It is not if nothing was undone, or if a message was stored since.
        """
        return await self._executor.run(self.sync.redo)

    async def keep_recent(self, n: int) -> None:
        """Show only the newest `n` messages, and the ones before them in the same turn."""
        await self._executor.run(self.sync.keep_recent, n)

    async def edit(self, seq: int, message: Mapping[str, Any]) -> None:
        """Show another message instead of message `seq`, in the same turn; raise `NotFound`."""
        await self._executor.run(self.sync.edit, seq, message)

    async def remove(self, seq: int) -> None:
        """Hide message `seq`; raise `NotFound` if it is not visible."""
        await self._executor.run(self.sync.remove, seq)

    async def pop(self, *, skip: Sequence[str] = ()) -> Message | None:
        """Hide the newest message and return it; None if there is none.

        Rows of the kinds in `skip` that follow it are hidden with it.
        """
        return await self._executor.run(self.sync.pop, skip=skip)

    async def compact(
        self, summarise: Summariser | None = None, *, keep_turns: int = 4, within: float = 60.0
    ) -> Compaction | None:
        """Show all but the newest turns as a summary; None if there is nothing to summarise.

        Without a summariser, an extract of the messages is the summary. On any failure nothing
        changes. `restore` of the revision before undoes a compaction.
        """
        return await self._executor.run(
            self.sync.compact, summarise, keep_turns=keep_turns, within=within
        )

    async def revisions(self) -> list[Revision]:
        """Return every revision of the transcript, oldest first."""
        return await self._executor.run(self.sync.revisions)

    async def at(self, n: int) -> list[dict[str, Any]]:
        """Return the messages that revision `n` shows; raise `NotFound`."""
        return await self._executor.run(self.sync.at, n)

    async def restore(self, n: int) -> None:
        """Show what revision `n` shows, to undo a clear, a rewrite or any other change."""
        await self._executor.run(self.sync.restore, n)


class UsageLedger:
    """What the conversations of a store have used."""

    def __init__(self, record: sync_usage.UsageLedger, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def add(self, session_id: str, usage: Usage) -> None:
        """Enter one model call."""
        await self._executor.run(self.sync.add, session_id, usage)

    async def sum(
        self, by: By = "day", since: datetime | None = None, until: datetime | None = None
    ) -> dict[str, Usage]:
        """Usage by group, from `since` on and before `until`. Days are those of the store's zone.

        A sum whose `cost_status` is "unknown" holds calls without a price: its cost is what is
        known of it, or None.
        """
        return await self._executor.run(self.sync.sum, by, since, until)


class People:
    """The people of a store."""

    def __init__(self, record: sync_people.People, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    def person_of(self, source: Source) -> str | None:
        """The identity of who wrote, as `find(person=…)` and `search(person=…)` take it."""
        return self.sync.person_of(source)

    async def get(self, person: str) -> Person | None:
        """What is known of a person."""
        return await self._executor.run(self.sync.get, person)

    async def find(
        self, *, role: Role | None = None, limit: int = 100, after: str = ""
    ) -> list[Person]:
        """People by identity, from the one after `after` on."""
        return await self._executor.run(self.sync.find, role=role, limit=limit, after=after)

    async def set_zone(self, person: str, zone: str | None) -> None:
        """The time zone a person lives in: daily resets follow it."""
        await self._executor.run(self.sync.set_zone, person, zone)

    async def set_role(self, person: str, role: Role) -> None:
        """What a person may do."""
        await self._executor.run(self.sync.set_role, person, role)

    async def role_of(self, source: Source) -> Role:
        """What whoever wrote may do. The terminal is the owner's; a stranger is a guest."""
        return await self._executor.run_batched(self.sync.role_of, source)

    async def remember(self, source: Source, *, role: Role) -> None:
        """Know whoever wrote from now on, with a role."""
        await self._executor.run(self.sync.remember, source, role=role)

    async def require_role(self, source: Source, role: Role) -> None:
        """Raise `AccessDenied` unless whoever wrote has that role or a higher one."""
        await self._executor.run(self.sync.require_role, source, role)

    async def ask(self, source: Source) -> str | None:
        """A code for a stranger to show the owner; None where they asked too often or too many do.

        A code lives one hour, a person gets one every ten minutes, and at most three wait at a time
        on a platform: whoever asks beyond that learns nothing.
        """
        return await self._executor.run(self.sync.ask, source)

    async def waiting(self) -> list[Pairing]:
        """Strangers whose code is still good."""
        return await self._executor.run(self.sync.waiting)

    async def approve(self, code: str, *, role: Role = "member", by: str = "owner") -> Person:
        """Let the person with this code in. Five wrong codes lock `by` out for an hour."""
        return await self._executor.run(self.sync.approve, code, role=role, by=by)

    async def offer_link(self, source: Source) -> str:
        """A code that proves, typed elsewhere, that both places are the same person's."""
        return await self._executor.run(self.sync.offer_link, source)

    async def accept_link(self, source: Source, code: str) -> str:
        """Let this direct message share the conversation the code was made in; its key."""
        return await self._executor.run(self.sync.accept_link, source, code)

    async def unlink(self, source: Source) -> bool:
        """Give this direct message its own conversation again; whether it was linked."""
        return await self._executor.run(self.sync.unlink, source)

    async def linked(self, source: Source) -> list[str]:
        """The keys that share the conversation of this direct message, its own included."""
        return await self._executor.run(self.sync.linked, source)


class Inbox:
    """What a store has accepted."""

    def __init__(self, record: sync_inbox.Inbox, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def put(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        gather_seconds: float = 0,
    ) -> InboxItem:
        """Accept a message. One that came before changes nothing and is given back as it stands.

        With `gather_seconds` it waits that long for more: what the same person writes meanwhile is
        added to it, and answered together.
        """
        return await self._executor.run_batched(
            self.sync.put,
            source,
            text,
            message_id=message_id,
            media=media,
            gather_seconds=gather_seconds,
        )

    async def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[InboxItem]:
        """Take the oldest waiting message of each conversation that has none under way.

        Whoever takes longer than the lease renews it, or another taker gets the message.
        """
        return await self._executor.run_batched(self.sync.claim, limit, lease_seconds=lease_seconds)

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        return await self._executor.run(self.sync.wait, seconds)

    async def renew(self, arrival: InboxItem, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        await self._executor.run_batched(self.sync.renew, arrival, lease_seconds=lease_seconds)

    async def done(self, arrival: InboxItem) -> None:
        """It was answered."""
        await self._executor.run_batched(self.sync.done, arrival)

    async def dismiss(self, arrival: InboxItem) -> None:
        """Settle a message that still waits and needs no answer; `StaleWrite` if it was taken."""
        await self._executor.run_batched(self.sync.dismiss, arrival)

    async def failed(
        self,
        arrival: InboxItem,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """It was not answered: try again after some seconds, or give up."""
        await self._executor.run_batched(
            self.sync.failed, arrival, problem, retry_after=retry_after, for_good=for_good
        )

    async def find(
        self,
        *,
        state: ArrivalState | None = None,
        key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Accepted messages in the order they came."""
        return await self._executor.run(
            self.sync.find, state=state, key=key, limit=limit, cursor=cursor
        )


class Outbox:
    """What a store has to deliver."""

    def __init__(self, record: sync_outbox.Outbox, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def put(
        self,
        text: str,
        to: str,
        *,
        origin: Source | None = None,
        session_id: str | None = None,
        delivery: str | None = None,
    ) -> Delivery:
        """Put a message in. The same `delivery` twice is put in once.

        What is too long for its platform is put in as several parts; the first one is returned.
        """
        return await self._executor.run_batched(
            self.sync.put, text, to, origin=origin, session_id=session_id, delivery=delivery
        )

    async def claim(
        self,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        platforms: Collection[str] | None = None,
        idempotent: Collection[str] = (),
    ) -> list[Delivery]:
        """Take what is due for sending; nobody else gets it while the lease lasts.

        Of each chat that is the oldest, and only when nothing older is still under way. Whoever
        takes longer than the lease renews it, or the outcome becomes unknown. With `platforms`
        only what is for these is taken. `idempotent` are platforms that drop a delivery they have
        had: there, what a lost sender had is sent again.
        """
        return await self._executor.run_batched(
            self.sync.claim,
            limit,
            lease_seconds=lease_seconds,
            platforms=platforms,
            idempotent=idempotent,
        )

    async def wait(self, seconds: float, *, platforms: Collection[str] | None = None) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        return await self._executor.run(self.sync.wait, seconds, platforms=platforms)

    async def renew(self, parcel: Delivery, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        await self._executor.run_batched(self.sync.renew, parcel, lease_seconds=lease_seconds)

    async def done(self, parcel: Delivery) -> Delivery:
        """It was sent."""
        return await self._executor.run_batched(self.sync.done, parcel)

    async def failed(
        self,
        parcel: Delivery,
        problem: str,
        *,
        retry_after: float | None = None,
        outcome: Literal["retry", "unknown", "dead"] = "retry",
    ) -> Delivery:
        """It was not sent: try again after some seconds, give up, or say that nobody knows."""
        return await self._executor.run_batched(
            self.sync.failed, parcel, problem, retry_after=retry_after, outcome=outcome
        )

    async def find(
        self,
        *,
        state: DeliveryState | None = None,
        session_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Deliveries in the order they were put in."""
        return await self._executor.run(
            self.sync.find, state=state, session_id=session_id, limit=limit, cursor=cursor
        )


class MemoryFlushes:
    """Sessions whose memory is to be saved."""

    def __init__(self, record: sync_memory_flushes.MemoryFlushes, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def claim(self, limit: int = 10, *, lease_seconds: float = 300) -> list[Session]:
        """Take sessions whose memory is due; nobody else gets them while the lease lasts."""
        return await self._executor.run(self.sync.claim, limit, lease_seconds=lease_seconds)

    async def done(self, session_id: str) -> None:
        """What was to be remembered is saved."""
        await self._executor.run(self.sync.done, session_id)


class Schedules:
    """The schedules of a store. With `by`, what is not of that person is not found."""

    def __init__(self, record: sync_schedules.Schedules, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def create(
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
        return await self._executor.run(
            self.sync.create,
            source,
            when,
            task,
            zone=zone,
            target=target,
            session=session,
            misfire=misfire,
        )

    async def get(self, schedule_id: int, *, by: Source | None = None) -> Schedule | None:
        """That schedule, or None."""
        return await self._executor.run(self.sync.get, schedule_id, by=by)

    async def require(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """That schedule; `NotFound` if there is none."""
        return await self._executor.run(self.sync.require, schedule_id, by=by)

    async def find(
        self, *, by: Source | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Schedule]:
        """Schedules in the order they were made."""
        return await self._executor.run(self.sync.find, by=by, limit=limit, cursor=cursor)

    async def pause(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Let it run no more until it is resumed; what is under way goes on."""
        return await self._executor.run(self.sync.pause, schedule_id, by=by)

    async def resume(self, schedule_id: int, *, by: Source | None = None) -> Schedule:
        """Let it run again, from now on: what a pause left out is not made up for."""
        return await self._executor.run(self.sync.resume, schedule_id, by=by)

    async def remove(self, schedule_id: int, *, by: Source | None = None) -> None:
        """Delete it with the history of its runs; what it said stays where it was said."""
        await self._executor.run(self.sync.remove, schedule_id, by=by)

    async def run_now(self, schedule_id: int, *, by: Source | None = None) -> ScheduleRun:
        """Have it run as soon as somebody can, whatever its state; its plan stays as it is."""
        return await self._executor.run(self.sync.run_now, schedule_id, by=by)

    async def history(
        self,
        schedule_id: int,
        *,
        by: Source | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ScheduleRun]:
        """Its runs, the newest first."""
        return await self._executor.run(
            self.sync.history, schedule_id, by=by, limit=limit, cursor=cursor
        )

    async def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[ScheduleRun]:
        """Take what is due, one occurrence of a schedule at a time; nobody else gets it.

        Whoever takes longer than the lease renews it, or another taker gets the occurrence.
        """
        return await self._executor.run(self.sync.claim, limit, lease_seconds=lease_seconds)

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        return await self._executor.run(self.sync.wait, seconds)

    async def renew(self, occurrence: ScheduleRun, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        await self._executor.run(self.sync.renew, occurrence, lease_seconds=lease_seconds)

    async def deliver(
        self, occurrence: ScheduleRun, text: str, *, session_id: str | None = None
    ) -> None:
        """It ran in a session: put what it said into the outbox, for its target.

        In the same transaction that is recorded in the conversation where it arrives, unless it was
        said there. `ConfigError` if there is no such target.
        """
        await self._executor.run(self.sync.deliver, occurrence, text, session_id=session_id)

    async def tell(self, occurrence: ScheduleRun, text: str) -> None:
        """Say something about a run to whoever made its schedule, and to nobody else; once."""
        await self._executor.run(self.sync.tell, occurrence, text)

    async def done(
        self,
        occurrence: ScheduleRun,
        result: str | None = None,
        *,
        session_id: str | None = None,
        problem: str | None = None,
    ) -> None:
        """It ran, and nothing is to be delivered; `problem` says what was wrong all the same."""
        await self._executor.run(
            self.sync.done, occurrence, result, session_id=session_id, problem=problem
        )

    async def failed(
        self,
        occurrence: ScheduleRun,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """It could not be run: try again after some seconds, or give up."""
        await self._executor.run(
            self.sync.failed, occurrence, problem, retry_after=retry_after, for_good=for_good
        )


class Processes:
    """The background programs of a store."""

    def __init__(self, record: sync_processes.Processes, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def begin(self, process: Process, *, at_most: int = 64) -> Process:
        """Note a program that is about to be started; on one node there are so many at most."""
        return await self._executor.run(self.sync.begin, process, at_most=at_most)

    async def began(self, process_id: str, identity: Identity) -> Process:
        """A program runs now."""
        return await self._executor.run(self.sync.began, process_id, identity)

    async def end(
        self,
        process: Process,
        state: ProcessState,
        *,
        exit_code: int | None = None,
        news: str | None = None,
    ) -> bool:
        """Note that a program has ended, and tell its conversation; False if somebody has."""
        return await self._executor.run(
            self.sync.end, process, state, exit_code=exit_code, news=news
        )

    async def tell(self, process: Process, news: str | None, *, told: int) -> bool:
        """Tell the conversation how a program stands; False if another node was first.

        `told` is how much of the output it has been told of from now on.
        """
        return await self._executor.run(self.sync.tell, process, news, told=told)

    async def get(self, process_id: str) -> Process | None:
        """The program of that id, or None."""
        return await self._executor.run(self.sync.get, process_id)

    async def require(self, process_id: str) -> Process:
        """The program of that id."""
        return await self._executor.run(self.sync.require, process_id)

    async def find(self, *, key: str | None = None) -> list[Process]:
        """The programs of a conversation, or all, in the order they began."""
        return await self._executor.run(self.sync.find, key=key)

    async def of_node(self, node: str) -> list[Process]:
        """All of one machine, those whose conversation was deleted too."""
        return await self._executor.run(self.sync.of_node, node)

    async def delete(self, process_id: str) -> None:
        """Forget a program."""
        await self._executor.run(self.sync.delete, process_id)


class PersonView:
    """A store through the eyes of one person."""

    def __init__(self, record: sync_person_view.PersonView, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor

    async def transcript(self, session_id: str) -> Transcript:
        """The messages of a session this person may see."""
        return Transcript(
            await self._executor.run(self.sync.transcript, session_id), self._executor
        )

    async def find(self, **filters: Any) -> Page[Session]:
        """This person's sessions, newest activity first; filters as in `Sessions.find`."""
        return await self._executor.run(self.sync.find, **filters)

    async def search(self, query: str, *, limit: int = 20, cursor: str | None = None) -> Page[Hit]:
        """Messages this person may see."""
        return await self._executor.run(self.sync.search, query, limit=limit, cursor=cursor)

    async def get(self, session_id: str) -> Session | None:
        """That session, or None if there is none that this person may see."""
        return await self._executor.run(self.sync.get, session_id)

    async def require(self, session_id: str) -> Session:
        """That session; `NotFound` if there is none that this person may see."""
        return await self._executor.run(self.sync.require, session_id)


class Store:
    """Conversations in one database."""

    def __init__(self, store: sync_store.Store, executor: ThreadExecutor) -> None:
        self.sync = store
        self.settings = store.settings
        self.path = store.path
        self._executor = executor
        self.sessions = Sessions(store.sessions, executor)
        self.usage = UsageLedger(store.usage, executor)
        self.people = People(store.people, executor)
        self.inbox = Inbox(store.inbox, executor)
        self.outbox = Outbox(store.outbox, executor)
        self.memory_flushes = MemoryFlushes(store.memory_flushes, executor)
        self.schedules = Schedules(store.schedules, executor)
        self.processes = Processes(store.processes, executor)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store; what was acknowledged is stored already."""
        await self._executor.run(self.sync.close)
        self._executor.stop()

    def run_batched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a short function that calls the sync store, in one hop and one commit with others."""
        return self._executor.run_batched(call, *args, **kwargs)

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session."""
        return Transcript(self.sync.transcript(session_id), self._executor)

    def turn(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> Turn:
        """Return a turn, as an async context manager; see `tertulia.Store.turn`."""
        control = self.sync.turn_control(
            source, text, message_id=message_id, media=media, wait=wait
        )
        return Turn(control, self._executor)

    def turn_control(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> TurnControl:
        """Return a turn with the calls that gateways need; see `tertulia.Store.turn_control`."""
        control = self.sync.turn_control(
            source, text, message_id=message_id, media=media, wait=wait
        )
        return TurnControl(control, self._executor)

    def for_person(self, source: Source) -> PersonView:
        """The store through the eyes of who writes from a source."""
        return PersonView(self.sync.for_person(source), self._executor)

    async def search(
        self,
        query: str,
        *,
        person: str | None = None,
        platform: str | None = None,
        key: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Messages that hold all words of the query, best first.

        Words are found in any case and without their accents. `"a phrase"` stands together,
        `begin*` stands for every word that begins so. With `person` only that person's sessions
        are looked at.
        """
        return await self._executor.run(
            self.sync.search,
            query,
            person=person,
            platform=platform,
            key=key,
            limit=limit,
            cursor=cursor,
        )

    async def context_prompt(self, session: Session, source: Source | None = None) -> str:
        """What the agent is told about where it is, for a session and who writes in it now."""
        return await self._executor.run(self.sync.context_prompt, session, source)

    async def expunge(self, *, ended_before: datetime) -> int:
        """Remove for good every session that ended before a moment; how many there were."""
        return await self._executor.run(self.sync.expunge, ended_before=ended_before)

    def now(self) -> datetime:
        """The moment, by the store's clock."""
        return self.sync.now()

    async def check(self) -> list[str]:
        """Every fault in the store, in words; an empty list if it is sound."""
        return await self._executor.run(self.sync.check)

    async def backup(
        self, target: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> None:
        """Copy the store to a new file while it is in use."""
        await self._executor.run(self.sync.backup, target, progress=progress)

    async def vacuum(self) -> tuple[int, int]:
        """Give unused space back; the size in bytes before and after."""
        return await self._executor.run(self.sync.vacuum)

    async def rebuild_search(self) -> None:
        """Make the search index anew from the messages."""
        await self._executor.run(self.sync.rebuild_search)

    async def settle(self) -> None:
        """Wait until the search index has caught up."""
        await self._executor.run(self.sync.settle)
