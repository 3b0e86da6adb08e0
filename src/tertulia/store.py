"""A store: one database with its records. This is what a library user holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from tertulia.core import validate
from tertulia.core.context_prompt import (
    PreviousSession,
    PromptContext,
    context_prompt,
)
from tertulia.core.session import Page, Session
from tertulia.core.settings import Settings, zone
from tertulia.core.source import Source
from tertulia.core.text.redact import Redactor
from tertulia.errors import ConfigError, NotAStore
from tertulia.platforms import registry
from tertulia.records.indexer import Indexer
from tertulia.records.people import People
from tertulia.records.person_view import PersonView
from tertulia.records.processes import Processes
from tertulia.records.queues.inbox import Inbox
from tertulia.records.queues.memory_flushes import MemoryFlushes
from tertulia.records.queues.outbox import Outbox
from tertulia.records.schedules import Schedules
from tertulia.records.search import CATCH_UP_STEPS, Hit, Search
from tertulia.records.sessions.sessions import Sessions
from tertulia.records.store_context import (
    Clock,
    StoreContext,
    SystemClock,
    UtcClock,
)
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.local_turns import local_turns_of
from tertulia.records.turns.turn import Turn
from tertulia.records.turns.user_message import UserMessage
from tertulia.records.usage import UsageLedger
from tertulia.storage.base import Database, Progress
from tertulia.storage.connect import open_database


def open(
    where: str | os.PathLike[str], *, settings: Settings | None = None, clock: Clock | None = None
) -> Store:
    """Open the store at a path, `sqlite:///path` or `postgresql://…`; a new one is made."""
    return Store(where, settings=settings, clock=clock)


class Store:
    """Conversations in one database."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._db: Database = open_database(where, self.settings)
        self.path = self._db.name
        try:
            self._refuse_moved()
        except BaseException:
            self._db.close()
            raise
        self._search = Search(self._db)
        self._indexer = Indexer(self._search)
        # The inner seam: records, importers and the APIs of other systems share it.
        self.context = StoreContext(
            self._db,
            replace(self.settings, policies=registry.policies(self.settings.policies)),
            SystemClock() if clock is None else UtcClock(clock),
            self._zone(),
            self._indexer.notify,
            lambda: self._search.catch_up(steps=CATCH_UP_STEPS),
            lambda: self.redactor if self.settings.redact_pii else None,
        )
        self._local_turns = local_turns_of(self._db.identity)
        self.sessions = Sessions(self.context)
        self.outbox = Outbox(self.context)
        self.inbox = Inbox(self.context)
        self.usage = UsageLedger(self.context)
        self.people = People(self.context)
        self.memory_flushes = MemoryFlushes(self.context)
        self.schedules = Schedules(self.context)
        self.processes = Processes(self.context)

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session."""
        return Transcript(self.context, session_id)

    def turn(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> Turn:
        """Return a turn: one exchange, as a context manager.

        Entering dedupes by the platform's message id, opens the session under its policy, takes
        the lease and stores the user's message. While another turn runs, later ones wait in order
        of arrival; `SessionBusy` is raised after `wait` seconds.
        """
        control = self.turn_control(source, text, message_id=message_id, media=media, wait=wait)
        return Turn(control)

    def turn_control(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> TurnControl:
        """Return the control of a turn, for gateways and integrations that drive it by steps."""
        validate.number("wait", wait)
        validate.many("media", media)
        return TurnControl(
            self.context,
            self.sessions,
            self._local_turns,
            UserMessage(
                source,
                text,
                None if message_id is None else str(message_id),
                tuple(media),
            ),
            wait=wait,
            prompt=lambda session, message: self.context_prompt(session, message.source),
        )

    def for_person(self, source: Source) -> PersonView:
        """The store through the eyes of who writes from a source: what they may see, no more."""
        return PersonView(self.context, self.sessions, self._search, source)

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
        """Messages that hold all words of the query, best first.

        Words are found in any case and without their accents. `"a phrase"` stands together,
        `begin*` stands for every word that begins so. With `person` only that person's sessions
        are looked at.
        """
        return self._search.find(
            query, person=person, platform=platform, key=key, limit=limit, cursor=cursor
        )

    def context_prompt(self, session: Session, source: Source | None = None) -> str:
        """What the agent is told about where it is, for a session and who writes in it now."""
        source = source or session.origin
        context = PromptContext(
            source=source,
            platform=registry.platform(source.platform),
            shared=self.sessions.is_shared(source),
            connected=tuple(map(registry.platform, self.settings.platforms)),
            homes=self.settings.homes,
            session_id=session.id,
            title=session.title,
            zone=str(self.context.zone),
            previous=self._previous(session),
        )
        return context_prompt(context, redactor=self.context.redactor())

    @cached_property
    def redactor(self) -> Redactor:
        """Pseudonyms keyed with this installation's secret, for prompts, logs and exports."""
        row = self._db.read(lambda tx: tx.one("installation_get", {"name": "secret"}))
        assert row is not None
        return Redactor(bytes.fromhex(row[0]), registry.needs_raw_ids)

    def expunge(self, *, ended_before: datetime) -> int:
        """Remove for good every session that ended before a moment; how many there were."""
        validate.moment("ended_before", ended_before)
        removed = 0
        while found := self.sessions.ended(before=ended_before):
            for session_id in found:
                self.sessions.delete(session_id)
            removed += len(found)
        return removed

    @property
    def one_writer(self) -> bool:
        """Whether the database has one writer at a time, so that calls may share its commits."""
        return self._db.one_writer

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Run calls of this store that share one commit; none is told its result before it."""
        self._db.in_one_commit(calls)

    def now(self) -> datetime:
        """The moment, by the store's clock."""
        return self.context.clock.now()

    def check(self) -> list[str]:
        """Every fault in the store, in words; an empty list if it is sound."""
        return self._db.check()

    def backup(self, target: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Copy the store to a new file while it is in use."""
        self._db.backup(os.fspath(target), progress=progress)

    def vacuum(self) -> tuple[int, int]:
        """Give unused space back; the size in bytes before and after."""
        return self._db.vacuum()

    def rebuild_search(self) -> None:
        """Make the search index anew from the messages."""
        self._search.rebuild()

    def settle(self) -> None:
        """Wait until the search index has caught up."""
        self._search.catch_up()

    def close(self) -> None:
        """Close the store; what was acknowledged is stored already."""
        self._indexer.stop()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _previous(self, session: Session) -> PreviousSession | None:
        if session.parent_id is None or session.parent_kind == "fork":
            return None  # a fork shows what came before it
        before = self.sessions.get(session.parent_id)
        if before is None or before.end_reason is None:
            return None
        return PreviousSession(before.id, before.end_reason, before.title)

    def _refuse_moved(self) -> None:
        """A store that was moved, or is on its way, is none to write to."""
        found = self._db.read(lambda tx: tx.one("installation_moves"))
        moved_to, moving = found or (None, None)
        if moved_to is not None:
            raise NotAStore(
                f"The conversations in {self.path} were moved to {moved_to}.",
                hint="Open that store instead.",
                where=self.path,
            )
        if moving is not None:
            raise NotAStore(
                f"A store is being moved to {self.path}, and is not whole yet.",
                hint="Wait for that move, or run it again: tertulia store move OLD NEW",
                where=self.path,
            )

    def _zone(self) -> tzinfo:
        if self.settings.zone is not None:
            return zone(self.settings.zone)
        return _machine_zone()


def _machine_zone() -> tzinfo:
    """The machine's zone by name. Where Unix keeps it in a link, that is read without tzlocal."""
    if not os.environ.get("TZ"):
        with contextlib.suppress(OSError, ConfigError):
            _, found, name = os.readlink("/etc/localtime").partition("/zoneinfo/")
            if found:
                return zone(name)
    import tzlocal

    try:
        return tzlocal.get_localzone()
    except (LookupError, ValueError, OSError) as problem:
        raise ConfigError(
            f"The machine's time zone cannot be told: {problem}.",
            hint="Set TZ to a name such as Europe/Madrid, or give Settings(zone=…).",
            field="zone",
        ) from problem
