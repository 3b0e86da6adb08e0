"""The records of one open store, built from its location, settings and clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from msgspec.structs import replace

from tertulia.core import validate
from tertulia.core.clock import Clock, SystemClock, UtcClock
from tertulia.core.context_prompt import PreviousSession, PromptContext, context_prompt
from tertulia.core.session import Session
from tertulia.core.settings import Settings, require_zone
from tertulia.core.source import Source
from tertulia.core.text.redact import Redactor
from tertulia.errors import NotAStore
from tertulia.platforms import registry
from tertulia.records.agent_choices import AgentChoices
from tertulia.records.approvals import Approvals
from tertulia.records.browsers import Browsers
from tertulia.records.chat_chains import ChatChains
from tertulia.records.indexer import Indexer
from tertulia.records.listeners import Listeners
from tertulia.records.machine_zone import machine_zone
from tertulia.records.mcp_pins import McpPins
from tertulia.records.media import MediaFiles
from tertulia.records.memories import Memories
from tertulia.records.nodes import Nodes
from tertulia.records.people import People
from tertulia.records.person_ids import PersonIds
from tertulia.records.person_view import PersonView
from tertulia.records.processes import Processes
from tertulia.records.queues.inbox import Inbox, InboxItem
from tertulia.records.queues.memory_flushes import MemoryFlushes
from tertulia.records.queues.outbox import Outbox
from tertulia.records.queues.review import QueueReview
from tertulia.records.queues.trace import MessageTraces
from tertulia.records.retention_steps import RetentionSteps
from tertulia.records.schedules import Schedules
from tertulia.records.search import CATCH_UP_STEPS, Search
from tertulia.records.sessions.sessions import Sessions
from tertulia.records.store_context import StoreContext, TerminalNode
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.local_turns import local_turns_of
from tertulia.records.turns.turn import Turn
from tertulia.records.turns.user_message import UserMessage
from tertulia.records.usage import UsageLedger
from tertulia.records.usage_running import RunningTotals
from tertulia.storage import installation
from tertulia.storage.base import Database
from tertulia.storage.connect import open_database

# With the types that the calls of a store return.
__all__ = ["PersonView", "StoreRecords", "Transcript", "Turn", "TurnControl"]


class StoreRecords:
    """The database of a store, the context that its records share, and the records."""

    def __init__(
        self, where: str | os.PathLike[str], settings: Settings, clock: Clock | None
    ) -> None:
        """Open the database; raise `NotAStore` if the store was moved away."""
        # Before the database is opened: a wrong argument leaves nothing open.
        validate.instance("settings", settings, Settings, "Settings(…), or None for the defaults")
        utc_clock = SystemClock() if clock is None else UtcClock.of(clock)
        zone = machine_zone() if settings.zone is None else require_zone(settings.zone)
        self.db: Database = open_database(where, settings)
        try:
            _check_not_moved(self.db)
        except BaseException:
            self.db.close()
            raise
        self.search = Search(self.db)
        self.running_totals = RunningTotals(self.db, utc_clock)
        # It knows nothing that knows it: a store that nobody uses is freed at once.
        self.indexer = Indexer(self.search, partial(self.running_totals.roll_up, steps=1))
        self.context = StoreContext(
            self.db,
            replace(settings, policies=registry.policies(settings.policies)),
            utc_clock,
            zone,
            self.indexer.notify,
            lambda: self.search.catch_up(steps=CATCH_UP_STEPS),
            lambda: self.redactor if settings.redact_pii else None,
            self._forget_secret,
            TerminalNode(),
        )
        self.local_turns = local_turns_of(self.db.identity)
        self.sessions = Sessions(self.context)
        self.outbox = Outbox(self.context)
        self.inbox = Inbox(self.context)
        self.usage = UsageLedger(self.context)
        self.people = People(self.context)
        self.memories = Memories(self.context)
        self.memory_flushes = MemoryFlushes(self.context)
        self.retention = RetentionSteps(self.context, self.sessions)
        self.schedules = Schedules(self.context)
        self.processes = Processes(self.context)
        self.listeners = Listeners(self.context)
        self.media = MediaFiles(self.context)
        self.browsers = Browsers(self.context)
        self.approvals = Approvals(self.context)
        self.nodes = Nodes(self.context)
        self.chat_chains = ChatChains(self.context)
        self.traces = MessageTraces(self.context)
        self.queues = QueueReview(self.context, self.inbox, self.outbox)
        self.mcp_pins = McpPins(self.context)
        self.person_ids = PersonIds(self.context)
        self.agent_choices = AgentChoices(self.context)

    @cached_property
    def redactor(self) -> Redactor:
        """The redactor of the store: pseudonyms keyed with its secret."""
        secret = self.db.read(lambda tx: installation.require(tx, "secret"))
        return Redactor(bytes.fromhex(secret), registry.needs_raw_ids)

    def _forget_secret(self) -> None:
        vars(self).pop("redactor", None)

    def turn_control(
        self,
        source: Source,
        text: str | None,
        *,
        message_id: str | int | None,
        media: Sequence[Any],
        wait: float,
        inbox_item: InboxItem | None = None,
        resumes: str | None = None,
        on_enter: Callable[[Session], None] | None = None,
    ) -> TurnControl:
        """Return the control of a turn; see `Store.turn_control`, which checks the types."""
        if message_id is not None:
            validate.identifier("message_id", message_id)
        platform_id = None if message_id is None else str(message_id)
        return TurnControl(
            self.context,
            self.local_turns,
            UserMessage(source, text, platform_id, tuple(media)),
            wait=wait,
            prompt=lambda session, message: self.context_prompt(session, message.source),
            inbox_item=inbox_item,
            resumes=resumes,
            on_enter=on_enter,
        )

    def context_prompt(self, session: Session, source: Source | None) -> str:
        """Return the part of the system prompt that describes the chat; see `Store`."""
        source = source or session.origin
        settings = self.context.settings
        context = PromptContext(
            source=source,
            platform=registry.platform(source.platform),
            shared=self.sessions.is_shared(source),
            connected=tuple(map(registry.platform, settings.platforms)),
            homes=settings.homes,
            session_id=session.id,
            title=session.title,
            zone=str(self.context.zone),
            previous=self._previous(session),
        )
        return context_prompt(context, redactor=self.context.redactor())

    def expunge(self, ended_before: datetime) -> int:
        """Delete every session that ended before a time; return how many."""
        validate.aware_datetime("ended_before", ended_before)
        deleted = 0
        while session_ids := self.sessions.ended(before=ended_before):
            for session_id in session_ids:
                self.sessions.delete(session_id)
            deleted += len(session_ids)
        return deleted

    def close(self) -> None:
        """Leave the turns that are still open, stop the indexer and close the database."""
        if not self.db.is_closed:
            self.local_turns.leave_all_of(self.db)
        self.indexer.stop()
        self.db.close()

    def _previous(self, session: Session) -> PreviousSession | None:
        if session.parent_id is None or session.parent_kind == "fork":
            return None  # the view of a fork contains the messages of its parent
        previous = self.sessions.get(session.parent_id)
        if previous is None or previous.end_reason is None:
            return None
        return PreviousSession(previous.id, previous.end_reason, previous.title)


def _check_not_moved(db: Database) -> None:
    """Raise `NotAStore` if the store was moved away, or is still being moved here."""
    row = db.read(lambda tx: tx.one("installation_moves"))
    moved_to, moving = row or (None, None)
    if moved_to is not None:
        raise NotAStore(
            f"The conversations in {db.name} were moved to {moved_to}.",
            hint="Open that store instead.",
            where=db.name,
        )
    if moving is not None:
        raise NotAStore(
            f"A store is being moved to {db.name}, and is not whole yet.",
            hint="Wait for that move, or run it again: tertulia store move OLD NEW",
            where=db.name,
        )
