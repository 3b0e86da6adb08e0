"""Deliveries are recorded in the conversation where they arrive, so that the agent there knows."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from tertulia.core.message import ASSISTANT, DELIVERY, draft
from tertulia.core.source import CHAT_TYPES, Source
from tertulia.records import session_rows
from tertulia.records.queues.outbox import Delivery
from tertulia.records.sessions.open import (
    NeedsGuard,
    OpenSession,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import append_messages
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros


def source_of(tx: Transaction, context: StoreContext, parcel: Delivery, origin: Source) -> Source:
    """The conversation where a delivery arrives, as somebody there would write from it."""
    if (parcel.platform, parcel.chat_id) == (origin.platform, origin.chat_id or None):
        return replace(origin, thread_id=parcel.thread_id)
    found = [
        Source(
            parcel.platform,
            parcel.chat_id or "",
            account=parcel.account,
            thread_id=parcel.thread_id,
            chat_type=chat_type,
        )
        for chat_type in CHAT_TYPES
    ]
    # Of a chat that only its id is known of, the type is that of the conversation there; where
    # there is none yet, a private one begins.
    current = (
        one
        for one in found
        if tx.one("session_current", {"key": session_rows.key_of(context, one)}) is not None
    )
    return next(current, found[0])


class CrossPost(NamedTuple):
    """A text that was put into the outbox, on its way to a conversation."""

    context: StoreContext
    source: Source
    text: str
    now: datetime
    has_processes: bool | None

    def record(self, tx: Transaction, *, said_in: str | None) -> NeedsGuard | None:
        """Write it down where it arrives, under the policy there, unless it was said in there."""
        key = session_rows.key_of(self.context, self.source)
        # Nobody is there to be told what the policy ended: whoever answers will be.
        attempt = OpenSession(
            self.context, self.source, key, self.now, False, self.has_processes, is_told=False
        )
        found = attempt.find(tx)
        if isinstance(found, NeedsGuard):
            return found
        if found[0].id != said_in:
            said = [draft({"role": ASSISTANT, "content": self.text})]
            append_messages(tx, found[0].id, said, None, to_micros(self.now), kinds=[DELIVERY])
        return None
