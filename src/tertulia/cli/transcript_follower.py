"""What other terminals do in the conversation of this one: found in the transcript, and shown."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tertulia.cli import local_conversation
from tertulia.core.message import ASSISTANT, USER, Message, text_of
from tertulia.errors import Error
from tertulia.platforms.terminal.incoming import OtherMessage
from tertulia.records.session_rows import current_view

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.platforms.terminal.adapter import TerminalAdapter
    from tertulia.store import Store

log = logging.getLogger("tertulia.gateway")

_POLL_SECONDS: Final = 0.5
_NEWEST: Final = 50  # messages that are looked at; more than a turn adds between two looks


class TranscriptFollower:
    """Reads the newest messages of the terminal's conversation whenever the store has changed.

    It starts after the messages that are there when it is made.
    """

    def __init__(self, store: aio.Store, terminal: TerminalAdapter) -> None:
        self._store = store
        self._terminal = terminal
        self._session_id: str | None = None
        self._last_seq = 0
        self._looked_at: datetime | None = None
        self._looking = asyncio.Lock()
        terminal.catch_up = self.look

    async def run(self) -> None:
        """Show what others write, until the person leaves."""
        changes = None
        while not self._terminal.finished.is_set():
            try:
                before, changes = changes, await self._store.count_changes()
                if changes != before:
                    await self.look()
            except Error as problem:
                log.debug("the transcript could not be read, retrying: %s", problem)
            await asyncio.sleep(_POLL_SECONDS)

    async def look(self) -> None:
        """Show what others have written since the last look."""
        async with self._looking:
            messages, is_busy = await asyncio.to_thread(self._look, self._store.sync)
            self._terminal.show_others(messages, is_busy=is_busy)

    def _look(self, store: Store) -> tuple[list[OtherMessage], bool]:
        """Return the new messages of turns that run elsewhere, and whether one runs now."""
        key = local_conversation.current_key(store)
        items = store.inbox.find(key=key, state="taken", limit=1).items
        is_busy = any(item.message_id not in self._terminal.answered_here for item in items)
        return self._new_messages(store, key), is_busy

    def _new_messages(self, store: Store, key: str) -> list[OtherMessage]:
        now = store.now()
        looked_at, self._looked_at = self._looked_at, now
        session = store.sessions.current(key)
        if session is None:
            return []
        # The last one of the log, also if /undo hides it: what /redo restores is no news.
        last_seq = store.context.read(lambda tx: current_view(tx, session.id).last_seq)
        newest = store.transcript(session.id).entries(newest=_NEWEST)
        if session.id == self._session_id:
            news = [message for message in newest if message.seq > self._last_seq]
        else:  # another session was begun or resumed: its older messages are no news
            news = [message for message in newest if looked_at and message.at >= looked_at]
        self._session_id = session.id
        self._last_seq = max([last_seq, *(message.seq for message in news)])
        others = (self._other_message(message, newest) for message in news)
        return [message for message in others if message is not None]

    def _other_message(self, message: Message, newest: list[Message]) -> OtherMessage | None:
        """Return a message of a turn that runs elsewhere; None if this terminal shows it itself."""
        text = text_of(message.body).strip()
        ids = {
            str(entry.body["message_id"])
            for entry in newest
            if entry.turn == message.turn and entry.role == USER and entry.body.get("message_id")
        }
        is_shown_here = not ids or ids & self._terminal.answered_here
        if not text or is_shown_here or message.role not in (USER, ASSISTANT):
            return None
        typed_id = message.body.get("message_id") if message.role == USER else None
        if typed_id in self._terminal.typed_ids:
            return None
        return OtherMessage(
            turn=f"{message.session}:{message.turn}",
            text=text,
            is_answer=message.role == ASSISTANT,
            is_to_typed=bool(ids & self._terminal.typed_ids),
        )
