"""Cross-posts: deliveries to another conversation, recorded in its transcript.

So the agent of that conversation knows what its users have read.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tertulia.core.message import ASSISTANT, DELIVERY, draft
from tertulia.core.source import CHAT_TYPES, Source
from tertulia.records import session_rows
from tertulia.records.agent_choices import resolve_agent
from tertulia.records.process_check import ProcessAnswers
from tertulia.records.queues.outbox import Delivery
from tertulia.records.sessions.open import OpenSession
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, append_messages
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros


def target_source(
    tx: Transaction, context: StoreContext, delivery: Delivery, origin: Source
) -> Source:
    """Return the source that a user in the chat of a delivery would write from."""
    if (delivery.platform, delivery.chat_id) == (origin.platform, origin.chat_id or None):
        return origin.with_fields(thread_id=delivery.thread_id)
    candidates = [
        resolve_agent(
            tx,
            context,
            Source(
                delivery.platform,
                delivery.chat_id or "",
                account=delivery.account,
                thread_id=delivery.thread_id,
                chat_type=chat_type,
            ),
        )
        for chat_type in CHAT_TYPES
    ]
    # The target has no chat type: use the one with a current session, else the first one, `dm`.
    with_session = (
        source
        for source in candidates
        if tx.one("session_is_current", {"key": session_rows.key_of(context, source)}) is not None
    )
    return next(with_session, candidates[0])


class CrossPost(NamedTuple):
    """A text that is delivered to a conversation and recorded there."""

    context: StoreContext
    source: Source
    text: str
    now: datetime
    answers: ProcessAnswers

    def record(self, tx: Transaction, *, except_session: str | None) -> None:
        """Append the text to the current session of the target, which its policy may end first.

        Do nothing if that session is `except_session`, whose transcript has the text already.
        Raise `NeedsProcessCheck` as `OpenSession.find` does.
        """
        key = session_rows.key_of(self.context, self.source)
        # The notice of a session that the policy ends here is kept for the next user message.
        opening = OpenSession(
            self.context, self.source, key, self.now, answers=self.answers, hands_out_notice=False
        )
        session_id = opening.find(tx)[0].id
        if session_id != except_session:
            entry = Entry(draft({"role": ASSISTANT, "content": self.text}), DELIVERY)
            append_messages(tx, session_id, [entry], to_micros(self.now))
