"""The store: one database with its records. `tertulia.open` returns one."""

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
from tertulia.core.clock import Clock, SystemClock, UtcClock
from tertulia.core.context_prompt import PreviousSession, PromptContext, context_prompt
from tertulia.core.session import Page, Session
from tertulia.core.settings import Settings, require_zone
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
from tertulia.records.store_context import StoreContext
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
    """Open the store at a path, `sqlite:///path` or `postgresql://…`; create a missing one."""
    return Store(where, settings=settings, clock=clock)


class Store:
    """The conversations in one database."""

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
            self._check_not_moved()
        except BaseException:
            self._db.close()
            raise
        self._search = Search(self._db)
        self._indexer = Indexer(self._search)
        # The inner interface: records, importers and the APIs of other systems use it.
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
        """Return the transcript of a session."""
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
        """Return one turn, as a context manager.

        Entering it dedupes by the platform's message id, opens the session under its policy, takes
        the lease and stores the user's message. While another turn is running in the session,
        entering waits, first come first served, and raises `SessionBusy` after `wait` seconds.
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
        validate.collection("media", media)
        platform_id = None if message_id is None else str(message_id)
        return TurnControl(
            self.context,
            self.sessions,
            self._local_turns,
            UserMessage(
                source,
                text,
                platform_id,
                tuple(media),
            ),
            wait=wait,
            prompt=lambda session, message: self.context_prompt(session, message.source),
        )

    def for_person(self, source: Source) -> PersonView:
        """Return a view of the store with only the sessions that a source's user may see."""
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
        """Return a page of messages that contain all words of the query, best match first.

        Case and accents are ignored. `"a phrase"` matches these words next to each other, `begin*`
        matches every word that begins so. With `person` only that person's sessions are searched.
        """
        return self._search.find(
            query, person=person, platform=platform, key=key, limit=limit, cursor=cursor
        )

    def context_prompt(self, session: Session, source: Source | None = None) -> str:
        """Return the part of the system prompt that tells the agent where it is and who writes.

        `source` is where the current message came from; without it, the origin of the session.
        """
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
        """The redactor of this store: pseudonyms keyed with its secret, for prompts and exports."""
        row = self._db.read(lambda tx: tx.one("installation_get", {"name": "secret"}))
        assert row is not None
        return Redactor(bytes.fromhex(row[0]), registry.needs_raw_ids)

    def expunge(self, *, ended_before: datetime) -> int:
        """Delete every session that ended before a time, permanently; return how many."""
        validate.aware_datetime("ended_before", ended_before)
        deleted = 0
        while session_ids := self.sessions.ended(before=ended_before):
            for session_id in session_ids:
                self.sessions.delete(session_id)
            deleted += len(session_ids)
        return deleted

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
        self._search.rebuild()

    def settle(self) -> None:
        """Index all messages that are not indexed yet, and return when that is done."""
        self._search.catch_up()

    def close(self) -> None:
        """Close the store. Every call that returned is stored already."""
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
            return None  # the view of a fork contains the messages of its parent
        previous = self.sessions.get(session.parent_id)
        if previous is None or previous.end_reason is None:
            return None
        return PreviousSession(previous.id, previous.end_reason, previous.title)

    def _check_not_moved(self) -> None:
        """Raise `NotAStore` if the store was moved away, or is still being moved here."""
        row = self._db.read(lambda tx: tx.one("installation_moves"))
        moved_to, moving = row or (None, None)
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
            return require_zone(self.settings.zone)
        return machine_zone()


def machine_zone() -> tzinfo:
    """Return the machine's time zone by its name; raise `ConfigError` if it is unknown.

    On most Unix systems /etc/localtime is a link that names it; reading that needs no tzlocal.
    """
    if not os.environ.get("TZ"):
        with contextlib.suppress(OSError, ConfigError):
            _, separator, name = os.readlink("/etc/localtime").partition("/zoneinfo/")
            if separator:
                return require_zone(name)
    import tzlocal

    try:
        return tzlocal.get_localzone()
    except (LookupError, ValueError, OSError) as problem:
        raise ConfigError(
            f"The machine's time zone cannot be determined: {problem}.",
            hint="Set TZ to a name such as Europe/Madrid, or give Settings(zone=…).",
            field="zone",
        ) from problem
