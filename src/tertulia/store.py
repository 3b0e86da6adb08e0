"""The store: one database with its records. `tertulia.open` returns one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from tertulia.core.arguments import checks_arguments
from tertulia.core.clock import Clock
from tertulia.core.session import Page, Session
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.text.redact import Redactor
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.search import Hit
from tertulia.records.store_records import (
    PersonView,
    StoreRecords,
    Transcript,
    Turn,
    TurnControl,
)
from tertulia.storage.base import Progress


def open(
    where: str | os.PathLike[str], *, settings: Settings | None = None, clock: Clock | None = None
) -> Store:
    """Open the store at a path, `sqlite:///path` or `postgresql://…`; create a missing one."""
    return Store(where, settings=settings, clock=clock)


@checks_arguments
class Store:
    """The conversations in one database."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = Settings() if settings is None else settings
        records = StoreRecords(where, self.settings, clock)
        self._records, self._db, self._indexer = records, records.db, records.indexer
        self.path = records.db.name
        # The inner interface: records, importers and the APIs of other systems use it.
        self.context = records.context
        self.sessions = records.sessions
        self.outbox = records.outbox
        self.inbox = records.inbox
        self.usage = records.usage
        self.people = records.people
        self.memories = records.memories
        self.memory_flushes = records.memory_flushes
        self.retention = records.retention
        self.schedules = records.schedules
        self.processes = records.processes
        self.listeners = records.listeners
        self.media = records.media
        self.chat_chains = records.chat_chains
        self.browsers = records.browsers
        self.approvals = records.approvals
        self.queues = records.queues
        self.nodes = records.nodes
        self.traces = records.traces
        self.mcp_pins = records.mcp_pins
        self.person_ids = records.person_ids
        self.agent_choices = records.agent_choices

    def transcript(self, session_id: str, *, by: str | None = None) -> Transcript:
        """Return the transcript of a session; `by` is who changes it, for its events."""
        return Transcript(self.context, session_id, by=by)

    def turn(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> Turn:
        """Return one turn, as a context manager.

        Entering it dedupes by the platform's message id, opens the session under its policy, takes
        the lease and stores the user's message. While another turn is running in the session,
        entering waits, first come first served, and raises `SessionBusy` after `wait` seconds.
        """
        # Not `self.turn_control`, which would check the arguments again.
        control = self._records.turn_control(
            source, text, message_id=message_id, media=media, wait=wait
        )
        return Turn(control)

    def turn_control(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
        inbox_item: InboxItem | None = None,
        resumes: str | None = None,
        on_enter: Callable[[Session], None] | None = None,
    ) -> TurnControl:
        """Return the control of a turn, for gateways and integrations that drive it by steps.

        The answer settles `inbox_item`, a claimed item, in the same transaction. With `resumes`,
        a batch of approvals, it enters the turn of that message which waited for them. `on_enter`
        is called once the turn has begun, in the same thread, to read what else it needs; if it
        raises, the turn is left.
        """
        return self._records.turn_control(
            source,
            text,
            message_id=message_id,
            media=media,
            wait=wait,
            inbox_item=inbox_item,
            resumes=resumes,
            on_enter=on_enter,
        )

    def for_person(self, source: Source) -> PersonView:
        """Return a view of the store with only the sessions that a source's user may see."""
        return PersonView(self.context, self.sessions, self._records.search, source)

    def search(
        self,
        query: str,
        *,
        person: str | None = None,
        platform: str | None = None,
        key: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Return a page of messages that contain all words of the query, best match first.

        Case and accents are ignored. `"a phrase"` matches these words next to each other, `begin*`
        matches every word that begins so. With `person` only that person's sessions are searched.
        """
        return self._records.search.find(
            query, person=person, platform=platform, key=key, limit=limit, cursor=cursor
        )

    def context_prompt(self, session: Session, source: Source | None = None) -> str:
        """Return the part of the system prompt that tells the agent where it is and who writes.

        `source` is where the current message came from; without it, the origin of the session.
        """
        return self._records.context_prompt(session, source)

    @property
    def redactor(self) -> Redactor:
        """The redactor of this store: pseudonyms keyed with its secret, for prompts and exports."""
        return self._records.redactor

    def expunge(self, *, ended_before: datetime) -> int:
        """Delete every session that ended before a time, permanently; return how many."""
        return self._records.expunge(ended_before)

    @property
    def has_one_writer(self) -> bool:
        """True if the database has one writer at a time: then calls can share a commit."""
        return self._db.has_one_writer

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Run a function whose calls of this store share one commit.

        Hand out no result of these calls before this returns: until then nothing is stored.
        """
        self._db.in_one_commit(calls)

    def now(self) -> datetime:
        """Return the current time of the store's clock."""
        return self.context.clock.now()

    def has_space(self, size: int) -> bool:
        """Return whether there is space for so many bytes; True if that cannot be known."""
        return self._db.has_space(size)

    def check(self) -> list[str]:
        """Return a description of every fault in the store; an empty list if there is none."""
        return self._db.check()

    def backup(self, target: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Copy the store to a new file; it can be in use meanwhile."""
        self._db.backup(os.fspath(target), progress=progress)

    def vacuum(self) -> tuple[int, int]:
        """Free unused disk space; return the size in bytes before and after."""
        return self._db.vacuum()

    def rebuild_search(self) -> None:
        """Clear the search index and build it again from the messages."""
        self._records.search.rebuild()

    def count_unindexed(self) -> int:
        """Return about how many messages the search index is behind."""
        return self._records.search.count_unindexed()

    def count_changes(self) -> int:
        """Return a number that has risen when anything was stored since the last call.

        It costs next to nothing. A program that shows the store asks it every moment, and reads
        again what it shows when it has risen.
        """
        return self._db.count_changes()

    def settle(self) -> None:
        """Index all messages and add up all usage of the past, and return when that is done."""
        self._records.search.catch_up()
        self._records.running_totals.roll_up()

    def close(self) -> None:
        """Close the store. Every call that returned is stored already."""
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
