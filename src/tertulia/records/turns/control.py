"""The control of a turn: everything behind `Turn`, for the async twin, gateways and integrations.

`Store.turn_control(…)` returns one; `control_of(turn)` in `turn.py` returns the one behind a turn.
Entering is one transaction (`enter.py`), each write is one (`write.py`), and leaving writes only
if the answer has not closed the turn (decision 0006). No lock and no transaction is held between
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Self

from tertulia.core import validate
from tertulia.core.history.content import has_content
from tertulia.core.history.formats import Format, Timestamps
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import (
    ASSISTANT,
    DELIVERY,
    TOOL,
    USER,
    Draft,
    ToolCall,
    draft,
    text_of,
    to_json,
)
from tertulia.core.session import Notice, Session
from tertulia.core.text.excerpt import short_repr
from tertulia.core.tool_result import WHOLE
from tertulia.core.usage import Usage
from tertulia.errors import BudgetExceeded, Error, IllegalMove, SessionBusy
from tertulia.records import approval_questions, budgets, session_rows
from tertulia.records.links import linked_key
from tertulia.records.queues import inbox, outbox
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns import fast_path
from tertulia.records.turns.enter import (
    AlreadyAnswered,
    EnterTurn,
    OpenedTurn,
    SessionHeld,
    author_of,
)
from tertulia.records.turns.interrupted import interrupted_result
from tertulia.records.turns.lease import CloseTurn, TurnRef, turn_lease
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.records.turns.ticket import Ticket
from tertulia.records.turns.user_message import UserMessage
from tertulia.records.turns.waiting import AnsweredCall, SuspendTurn, Suspension
from tertulia.records.turns.write import (
    WriteStep,
    call_name,
    call_to_dict,
    check_assistant_text,
    is_content,
)
from tertulia.records.usage import charge
from tertulia.storage.base import Database, Transaction
from tertulia.storage.handle import closed_error
from tertulia.storage.rows import to_micros

# Seconds to wait before the next try to enter; the last value repeats.
_RETRY_DELAYS: Final = (0.002, 0.005, 0.01, 0.02, 0.05)


class TurnState(NamedTuple):
    """Everything that a write changes in a control, to be put back if its commit fails."""

    is_open: bool
    answer: str | None
    answer_seq: int | None
    inbox_item: InboxItem | None
    has_settled_item: bool
    calls: dict[str, str]
    unanswered: list[str]


class TurnControl:
    """One exchange, with the calls that drive it step by step; also a context manager."""

    def __init__(
        self,
        context: StoreContext,
        local_turns: LocalTurns,
        message: UserMessage,
        *,
        wait: float,
        prompt: Callable[[Session, UserMessage], str],
        inbox_item: InboxItem | None = None,
        resumes: str | None = None,
        on_enter: Callable[[Session], None] | None = None,
    ) -> None:
        self._context = context
        self._db = context.db
        self._local_turns = local_turns
        self._message = message
        self.wait = wait
        self._prompt = prompt
        self._key = session_rows.key_of(context, message.source)
        # Linked chats have different keys and share a conversation; then the lanes differ, and the
        # row of their session is the lock that they share.
        self._lane = session_rows.lane_of(self._key)
        self._ticket = Ticket(context.db, self._lane)
        self._tries = 0
        # Both are made in the thread that enters, which may not be the one that made this: a large
        # message and a system call would hold up an event loop.
        self._drafts: list[Draft] | None = None
        self._token = 0
        self._turn: TurnRef | None = None
        self._is_open = False
        self._calls: dict[str, str] = {}
        self._unanswered: list[str] = []
        self._answer_seq: int | None = None
        # Nobody has written in this turn: the text of the agent is a delivery, not an answer.
        self._is_unprompted = message.is_silent
        self._entry: OpenedTurn | AlreadyAnswered | None = None
        self.notice: Notice | None = None
        self.duplicate = False
        # With `duplicate`: the message was never answered, and it is too late to resume its turn.
        self.is_interrupted = False
        # With `duplicate`: its turn waits for an approval.
        self.is_waiting = False
        self.answer: str | None = None
        # The claimed inbox item that the answer settles, in the same transaction.
        self._inbox_item = inbox_item
        self.has_settled_item = False
        # The turn waited for an approval: its calls with their answers, to be run or declined.
        self._resumes = resumes
        self.answered_calls: tuple[AnsweredCall, ...] = ()
        self._on_enter = on_enter
        # Called by the thread that renews leases, for a turn that no `with` block holds.
        self.is_abandoned: Callable[[], bool] | None = None

    # -- reading

    @cached_property
    def session(self) -> Session:
        """The session as it was when the turn began; `IllegalMove` before that."""
        if self._entry is None:
            raise IllegalMove("The turn has not begun.", hint="Use it in a `with` block.")
        return self._entry.row.session(self.notice)

    @cached_property
    def context_prompt(self) -> str:
        """The part of the system prompt that tells the agent which chat it is in."""
        return self._prompt(self.session, self._message)

    def transcript(self) -> Transcript:
        """Return the transcript of the session."""
        return Transcript(self._context, self.session.id)

    def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
        *,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages for the model, the user's last; see `Transcript.history`."""
        return self.transcript().history(max_messages, max_tokens, timestamps, format, model=model)

    # -- writing

    def add_assistant(self, text: str | None, **options: Any) -> None:
        """Store a message of the model; see `prepare_assistant` and `Turn.add_assistant`."""
        self.prepare_assistant(text, **options)()

    def prepare_assistant(
        self,
        text: str | None,
        *,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        reasoning: str | None = None,
        usage: Usage | None = None,
        deliver: str | None = None,
        deliver_as: Mapping[str, str | None] = MappingProxyType({}),
        more: bool = False,
        **fields: Any,
    ) -> Callable[[], None]:
        """Return the call that stores a message of the model, and does nothing else.

        Its delivery is formatted before: that must not hold a transaction up. A blank text is not
        delivered. `deliver_as` are `reply_to` and `replaces` of the delivery; see `Outbox.put`.
        """
        validate.collection("tool_calls", tool_calls)
        calls = [call_to_dict(call) for call in tool_calls]
        check_assistant_text(text)
        message: dict[str, Any] = {**fields, "role": ASSISTANT, "content": text}
        if calls:
            message["tool_calls"] = calls
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        drafts = [draft(message)]
        deliveries: Sequence[outbox.Delivery] = ()
        if deliver is not None and text is not None and has_content(text):
            deliveries = self._deliveries(text, deliver, None, deliver_as)
        return partial(self._store_assistant, text, drafts, calls, usage, deliveries, more)

    def _store_assistant(
        self,
        text: str | None,
        drafts: Sequence[Draft],
        calls: Sequence[Mapping[str, Any]],
        usage: Usage | None,
        deliveries: Sequence[outbox.Delivery],
        more: bool,
    ) -> None:
        is_last = not calls and not more
        seq = self._write(
            drafts,
            usage=usage,
            deliveries=deliveries,
            delivered_text=text or "",
            kind=DELIVERY if self._is_unprompted and not calls else None,
            is_last=is_last,
            # A model that answers does not wait for the results of its calls any more.
            open_calls=self._unanswered if is_last else [],
        )
        if is_last:
            self._unanswered = []
        if not calls:
            self.answer, self._answer_seq = text, seq
        ids = [call["id"] for call in calls]
        self._calls.update({call["id"]: call_name(call) for call in calls})
        # If an id is used again, a result with that id is the result of the newest call.
        self._unanswered = [old for old in self._unanswered if old not in ids] + ids

    def add_tool_result(
        self, call_id: str, content: Any, *, name: str | None = None, whole: str | None = None
    ) -> None:
        """Store the result of a call of this turn: text, content parts, or any JSON value.

        `whole` is its text before it was shortened for the model.
        """
        message: dict[str, Any] = {
            "role": TOOL,
            "tool_call_id": call_id,
            "content": content if is_content(content) else to_json(content),
        }
        if name is not None:
            message["name"] = name
        if whole is not None:
            message[WHOLE] = whole
        result = draft(message)
        self._take_call(call_id)
        try:
            self._write([result])
        except BaseException:
            self.reopen_call(call_id)
            raise

    def reopen_call(self, call_id: str) -> None:
        """Accept a result for a call again, because the one before was not stored."""
        if call_id in self._calls and call_id not in self._unanswered:
            self._unanswered.append(call_id)

    def add_inbox_item(self, item: InboxItem) -> None:
        """Let this turn answer a message that waits in the inbox for the same conversation.

        The message is stored at this point of the turn and settled, in one transaction. Raise
        `StaleWrite` if another worker has claimed it.
        """
        message = UserMessage(item.source, item.text, item.message_id, item.media)
        author = author_of(self._context, item.source)
        self._write(message.drafts(), author=author, also=lambda tx: inbox.settle_waiting(tx, item))
        self._is_unprompted = False

    def extend(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        usage: Usage | None = None,
        is_last: bool = False,
    ) -> int:
        """Store messages as they are, in one transaction; return the last sequence number.

        For SDKs that have a message form of their own. With `is_last` they answer the turn.
        """
        drafts = [draft(message) for message in messages]
        seq = self._write(drafts, usage=usage, is_last=is_last)
        self._is_unprompted = self._is_unprompted and all(item.role != USER for item in drafts)
        if is_last and messages:
            self.answer, self._answer_seq = text_of(messages[-1]), seq
        return seq

    def add_usage(self, usage: Usage) -> None:
        """Enter a model call that left no message, such as one that failed or ran beside."""
        charge(usage)  # raises for None, which the write would pass over in silence
        self._write([], usage=usage)

    def deliver(self, text: str, to: str = "origin", *, delivery: str | None = None) -> str:
        """Put a message into the outbox; return the id of the delivery; see `Turn.deliver`."""
        deliveries = self._deliveries(text, to, delivery)
        self._write([], deliveries=deliveries, delivered_text=text)
        return deliveries[0].delivery

    def suspend(self, suspension: Suspension) -> None:
        """Let the turn wait until people have answered for its calls, and release the lease.

        In one transaction the calls and the questions are stored and the inbox item is settled.
        Raise `IllegalMove` if its message has no id: then the turn could not be found again.
        """
        turn, entry, message_id = self._turn, self._entry, self._message.message_id
        if turn is None or entry is None:
            raise self._outside_error()
        if message_id is None:
            raise IllegalMove(
                "A turn whose message has no id cannot wait for an approval.",
                hint="Give one: store.turn(…, message_id=…).",
            )
        waiting = SuspendTurn(
            self._context,
            turn,
            entry.row.key,
            self._message.source,
            message_id,
            suspension,
            self._questions(suspension),
            self._context.clock.now(),
        )
        self._write([], also=waiting.store, is_last=True, is_waiting=True)
        self._unanswered = []
        self._db.notify(outbox.CHANNEL)

    def _questions(self, suspension: Suspension) -> list[list[outbox.Delivery]]:
        return [
            approval_questions.build_question(
                self._context,
                request,
                suspension.asked_in,
                self._message.source,
                session_id=self.session.id,
                replaces=suspension.replaces if number == 0 else None,
            )
            for number, request in enumerate(suspension.requests)
        ]

    # -- entering

    def __enter__(self) -> Self:
        self.enter()
        return self

    def enter(self) -> None:
        """Begin the turn; wait in the queue for up to `wait` seconds, then raise `SessionBusy`."""
        self._check_unused()
        deadline = time.monotonic() + self.wait
        try:
            if not self.try_enter():
                self._wait_to_enter(deadline)
        except BaseException:
            self.abort()
            raise

    def _wait_to_enter(self, deadline: float) -> None:
        wake = threading.Event()
        self.add_listener(wake.set)
        try:
            while not self.try_enter():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self.busy_error()
                wake.wait(min(self.retry_delay, left))
                wake.clear()
        finally:
            self.remove_listener(wake.set)

    def try_enter(self) -> bool:
        """Try once to begin the turn, in one transaction; return whether it has begun.

        On False the turn is in the queue of the conversation. Raise `BudgetExceeded` if a budget
        is used up.
        """
        self._check_unused()
        try:
            entry = self._enter_once()
        except SessionHeld as held:
            self._tries += 1
            if held.key is not None:
                self._ticket.take_or_renew(held.key)
            return False
        except BudgetExceeded as refusal:
            self._record_refusal(refusal)
            raise
        self._entry, self._ticket.id = entry, None
        if isinstance(entry, AlreadyAnswered):
            self.duplicate, self.is_interrupted = True, entry.is_interrupted
            self.is_waiting = entry.is_waiting
            self.answer = entry.answer
        else:
            self._begin(entry)
            if self._on_enter is not None:
                self._on_enter(self.session)
        return True

    @property
    def retry_delay(self) -> float:
        """Seconds to wait before the next try."""
        return _RETRY_DELAYS[min(self._tries, len(_RETRY_DELAYS) - 1)]

    def busy_error(self) -> SessionBusy:
        """Return the error to raise when `wait` seconds have passed."""
        return SessionBusy(
            f"Another turn has held the session for {self.wait:g} seconds.",
            hint="Try again later, or wait longer: store.turn(…, wait=120).",
            key=self._key,
        )

    def add_listener(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a turn of this process leaves the conversation."""
        self._check_unused()
        self._local_turns.add_listener(self._key, wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        """Undo `add_listener`."""
        self._local_turns.remove_listener(self._key, wake)

    def abort(self) -> None:
        """Undo the entering so far: leave the queue, or the turn that has just begun."""
        self.leave_queue()
        self.leave(failed=True)

    def leave_queue(self) -> None:
        """Give up waiting: drop the ticket, if there is one."""
        self._ticket.drop()

    # -- leaving

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(failed=problem is not None)

    @property
    def state(self) -> TurnState:
        """A copy of everything that a write changes here; set it if a commit has failed."""
        return TurnState(
            self._is_open,
            self.answer,
            self._answer_seq,
            self._inbox_item,
            self.has_settled_item,
            dict(self._calls),
            list(self._unanswered),
        )

    @state.setter
    def state(self, state: TurnState) -> None:
        self._is_open, self.answer, self._answer_seq = state[:3]
        self._inbox_item, self.has_settled_item = state.inbox_item, state.has_settled_item
        self._calls, self._unanswered = state.calls, state.unanswered

    @property
    def is_closed(self) -> bool:
        """True if the answer has closed the turn, so that leaving writes nothing."""
        return not self._is_open

    def leave(self, *, failed: bool = False, keep_calls: bool = False) -> None:
        """Close the turn if its answer has not done so, and let the next one in.

        With `keep_calls`, calls without a result stay open: their results come in a later turn,
        after a person has approved them.
        """
        if self._turn is None:
            return
        turn, self._turn = self._turn, None
        try:
            if self._is_open:
                self._close(turn, failed, keep_calls)
        finally:
            self._is_open = False
            self._local_turns.remove(turn.session_id, self, self._key)
            self._context.notify_indexer()

    def uses(self, db: Database) -> bool:
        """Return whether the turn reads and writes through that handle."""
        return self._db is db

    def renew(self) -> bool:
        """Prolong the lease during long calls; return whether the turn still has its session."""
        if self._db.is_closed or (self.is_abandoned is not None and self.is_abandoned()):
            return False
        turn = self._turn
        if turn is None or not self._is_open:
            return True
        params = {
            **turn.epoch_params(),
            "lease": turn_lease(self._context.settings.lease_seconds),
        }
        try:
            return self._db.write(lambda tx: tx.changed("turn_renew", params), lane=self._lane) > 0
        except Error as problem:
            session_rows.log.warning("lease renewal failed, trying again later: %s", problem)
            return True

    # -- private

    def _check_unused(self) -> None:
        if self._entry is not None:
            raise IllegalMove("The turn was entered before.", hint="Make another: store.turn(…).")

    def _enter_once(self) -> OpenedTurn | AlreadyAnswered:
        if self._drafts is None:
            self._drafts = self._message.drafts()
            self._token = fast_path.new_token()
        attempt = EnterTurn(
            self._context,
            self._local_turns,
            self._message,
            self._drafts,
            self._key,
            self._context.clock.now(),
            self._ticket.id,
            self._token,
            self._resumes,
        )
        return fast_path.enter(attempt, self._lane)

    def _begin(self, entry: OpenedTurn) -> None:
        self._turn = entry.turn
        self._is_open = True
        self.notice = entry.notice
        self.answered_calls = entry.answered_calls
        self._calls = {answered.call.id: answered.call.name for answered in entry.answered_calls}
        self._unanswered = list(self._calls)
        self._local_turns.add(
            entry.turn.session_id,
            self,
            self._context.settings.lease_seconds / 3,
            key=entry.row.key,
        )

    def _record_refusal(self, refusal: BudgetExceeded) -> None:
        def work(tx: Transaction) -> None:
            # The refused transaction was rolled back, and the sums that it had updated with it.
            budgets.add_new_usage(tx, self._context)
            key = linked_key(tx, self._message.source, self._key)
            row = session_rows.get_current(tx, key)
            if row is not None:
                now = self._context.clock.now()
                session_rows.record_event(tx, row.ref, now, "refused", {"reason": refusal.message})

        session_rows.log_errors(lambda: self._db.write(work))

    def _take_call(self, call_id: str) -> None:
        """Mark a call as answered; threads that run tools may do so at the same time."""
        validate.text("call_id", call_id)
        if call_id not in self._calls:
            ids = ", ".join(self._calls) or "none"
            raise IllegalMove(
                f"This turn has no call {short_repr(call_id)}.", hint=f"Calls of this turn: {ids}."
            )
        try:
            self._unanswered.remove(call_id)
        except ValueError:
            raise IllegalMove(
                f"The call {call_id!r} has its result already.",
                hint="A result is stored once; add more in the next assistant message.",
            ) from None

    def _deliveries(
        self,
        text: str,
        to: str,
        delivery: str | None = None,
        references: Mapping[str, str | None] = MappingProxyType({}),
    ) -> list[outbox.Delivery]:
        return outbox.build_deliveries(
            self._context,
            text,
            to,
            self._message.source,
            session_id=self.session.id,
            delivery=delivery,
            reply_to=references.get("reply_to"),
            replaces=references.get("replaces"),
        )

    def _write(
        self,
        drafts: Sequence[Draft],
        *,
        usage: Usage | None = None,
        deliveries: Sequence[outbox.Delivery] = (),
        delivered_text: str = "",
        kind: str | None = None,
        author: str | None = None,
        also: Callable[[Transaction], None] | None = None,
        is_last: bool = False,
        open_calls: Sequence[str] = (),
        is_waiting: bool = False,
    ) -> int:
        """Append to the turn under its epoch, in one transaction; return the last number."""
        turn, entry = self._turn, self._entry
        if turn is None or entry is None:
            raise self._outside_error()
        is_after = not self._is_open and not drafts
        entries = [interrupted_result(id_, self._calls[id_], turn.number) for id_ in open_calls]
        entries += [Entry(item, kind, turn.number, author=author) for item in drafts]
        step = WriteStep(
            self._context,
            turn,
            self._message.source,
            entry.row.key,
            self._context.clock.now(),
            entries,
            None if usage is None else charge(usage),
            deliveries,
            delivered_text,
            also,
            self._inbox_item,
            is_last,
            is_after,
            self._token,
            self._answer_seq,
            is_waiting,
        )
        last_seq = fast_path.write(step, self._lane)
        if is_last and self._inbox_item is not None:
            self._inbox_item, self.has_settled_item = None, True
            self._db.notify(inbox.CHANNEL)
        if not is_after:
            self._is_open = not is_last
        if deliveries:
            self._db.notify(outbox.CHANNEL)
        return last_seq

    def _close(self, turn: TurnRef, failed: bool, keep_calls: bool) -> None:
        """Close a turn without an answer, or with calls that have no result."""
        state, answer_seq = "interrupted", None
        if not failed:
            answer_seq = self._answer_seq
            state = "silent" if answer_seq is None else "answered"
        now = to_micros(self._context.clock.now())
        closing = CloseTurn(self._context, turn, now, state, answer_seq, keep_calls)
        if failed:
            # The block has failed already; its exception says more than a lost lease would.
            session_rows.log_errors(lambda: self._db.write(closing.close, lane=self._lane))
        else:
            self._db.write(closing.close, lane=self._lane)

    def _outside_error(self) -> Error:
        if self._db.is_closed:
            return closed_error()
        if self.duplicate:
            return IllegalMove(
                "This message has had its turn.",
                hint="Check turn.duplicate first; turn.answer is the stored answer.",
            )
        return IllegalMove(
            "The turn is over." if self._entry else "The turn has not begun.",
            hint="Write inside its `with` block.",
        )
