"""One write of a turn: messages, usage and deliveries in one transaction under its lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.history.repair import UNNAMED_TOOL, tool_name
from tertulia.core.message import ToolCall
from tertulia.core.source import LOCAL, Source
from tertulia.errors import IllegalMove
from tertulia.records import budgets, cross_posts, session_rows, usage_rows
from tertulia.records.links import linked_key
from tertulia.records.process_check import ProcessAnswers
from tertulia.records.queues import inbox, outbox
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, append_with
from tertulia.records.turns.lease import TurnRef, append_params, close_turn_row, lease_lost
from tertulia.records.usage import Charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros


class WriteStep(NamedTuple):
    """One write of a turn, prepared before its transaction."""

    context: StoreContext
    turn: TurnRef
    source: Source
    session_key: str
    now: datetime
    entries: Sequence[Entry]
    cost: Charge | None
    deliveries: Sequence[outbox.Delivery]
    delivered_text: str
    also: Callable[[Transaction], None] | None
    inbox_item: InboxItem | None  # settled together with the answer
    is_last: bool
    is_after: bool
    token: int
    answer_seq: int | None  # of the answer before, if the turn went on after it
    is_waiting: bool = False  # the last step, after which the turn waits for an approval

    @property
    def is_delivered_here(self) -> bool:
        """True if no other conversation has to record the deliveries."""
        first, origin = self.deliveries[0], self.source
        here = (origin.platform, origin.chat_id or None, origin.thread_id)
        return first.platform == LOCAL or (first.platform, first.chat_id, first.thread_id) == here

    def was_stored(self, tx: Transaction) -> int | None:
        """Return the number of the answer if this step was stored, though nobody could tell so."""
        row = tx.one("turn_by_number", {"ref": self.turn.ref, "number": self.turn.number})
        if row is None:
            return None
        state, token, answer_seq = row
        is_own = state == "answered" and token == self.token
        is_new = answer_seq is not None and answer_seq > (self.answer_seq or 0)
        return int(answer_seq) if is_own and is_new else None

    def write(self, tx: Transaction, answers: ProcessAnswers) -> int:
        """Store the step; return the last sequence number.

        Raise `LeaseLost` if another turn took over, `NotFound` if the session was deleted, and
        `NeedsProcessCheck` if a delivery may end a session that a process may protect.
        """
        turn, now = self.turn, to_micros(self.now)
        params = append_params(
            self.context,
            turn,
            is_last=self.is_last,
            is_after=self.is_after,
            is_waiting=self.is_waiting,
        )
        statement = "turn_append" if self.cost is None else "turn_append_with_usage"
        if self.cost is not None:
            params |= self.cost
        row = append_with(tx, statement, params, self.entries, now)
        if row is None:
            raise lease_lost(tx, turn.session_id)
        _, last_seq, _, _, platform, owner = row
        if self.also is not None:
            self.also(tx)
        if self.deliveries:
            self._put_deliveries(tx, answers)
        if self.is_last:
            if self.is_waiting:
                close_turn_row(tx, turn, "waiting", now, None)
            else:
                close_turn_row(tx, turn, "answered", now, last_seq)
            if self.inbox_item is not None:
                inbox.settle_answered(tx, self.inbox_item)
        if self.cost is not None:
            self._insert_usage(tx, self.cost, platform, owner, now)
        return int(last_seq)

    def _insert_usage(
        self, tx: Transaction, cost: Charge, platform: str, owner: str | None, now: int
    ) -> None:
        """Enter a model call; in a chat that several people share, for the person who wrote."""
        budgets.share_ledger_lock(tx, self.context)
        params = {
            **cost,
            "id": self.turn.session_id,
            "turn": self.turn.number,
            "platform": platform,
            "person": keys.person_of(self.source) or owner,
            "now": now,
        }
        usage_rows.insert_call(tx, params)

    def _put_deliveries(self, tx: Transaction, answers: ProcessAnswers) -> None:
        """Put the deliveries into the outbox, and record them in the conversation they go to."""
        first = self.deliveries[0]
        # The outbox is read last: most deliveries go back to their origin and do not need it.
        if not self.is_delivered_here and _is_new(tx, first):
            source = cross_posts.target_source(tx, self.context, first, self.source)
            key = linked_key(tx, source, session_rows.key_of(self.context, source))
            if key != self.session_key:
                tx.lock(session_rows.lane_of(key))
                cross_post = cross_posts.CrossPost(
                    self.context, source, self.delivered_text, self.now, answers
                )
                cross_post.record(tx, except_session=self.turn.session_id)
        outbox.put_in(tx, self.deliveries, to_micros(self.now))


def check_assistant_text(text: object) -> None:
    """Raise `IllegalMove` unless it is content as providers have it, or None beside calls."""
    if text is not None and not is_content(text):
        raise IllegalMove(
            f"The text of the assistant is a {type(text).__name__}.",
            hint="Give a str, a list of content parts, or None beside tool calls.",
        )


def is_content(content: object) -> bool:
    """Return whether it is content as providers have it: text, or parts that name their type."""
    return isinstance(content, str) or (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, Mapping) and "type" in part for part in content)
    )


def call_to_dict(call: ToolCall | Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call in the OpenAI form; raise `IllegalMove` if it has no id."""
    fields: object = call.to_dict() if isinstance(call, ToolCall) else call
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str) or not fields["id"]:
        raise IllegalMove(
            "A tool call needs an id.", hint="Give ToolCall(id=…, name=…, arguments=…)."
        )
    return dict(fields)


def call_name(call: Mapping[str, Any]) -> str:
    """Return the name of the tool that a call asks for."""
    function = call.get("function")
    name = (function if isinstance(function, Mapping) else call).get("name")
    return tool_name(name) if isinstance(name, str) else UNNAMED_TOOL


def _is_new(tx: Transaction, delivery: outbox.Delivery) -> bool:
    return tx.one("outbox_get", {"delivery": delivery.delivery}) is None
