"""Turns: from what a person said to what the agent finally answered.

Entering is one transaction (`entry.py`). The answer is one too: the message, its usage, what is to
be delivered, and the release of the lease. A step with tool calls, a result, a delivery is one
each. No lock and no transaction is held while the agent works.

The answer ends a turn: it is an assistant message without tool calls. A turn that goes on after it
takes its lease again, as long as nobody else has entered since. A delivery or usage that comes
after the answer needs no lease.

What happens to the session while a turn is inside it:

- reset, switch, fork, end: the turn goes on in its session, which has ended. The next message
  begins in the other session at once. A policy waits until the turn is over.
- undo, clear, rewrite and the like: what the turn had stored is seen no longer; what it stores from
  then on is.
- delete: every write raises `NotFound`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Final, Self

from tertulia.core import (
    keys,
    validate,
)
from tertulia.core.history.formats import (
    Format,
    Timestamps,
)
from tertulia.core.history.repair import (
    UNNAMED_TOOL,
    tool_name,
)
from tertulia.core.message import (
    ASSISTANT,
    DELIVERY,
    INTERRUPTED,
    TOOL,
    USER,
    Draft,
    ToolCall,
    draft,
    text_of,
    to_json,
)
from tertulia.core.session import Notice, Session
from tertulia.core.source import LOCAL
from tertulia.core.usage import Usage
from tertulia.errors import BudgetExceeded, Error, IllegalMove, LeaseLost, SessionBusy
from tertulia.records import (
    budgets,
    cross_posts,
    session_rows,
)
from tertulia.records.people import linked_key
from tertulia.records.queues import (
    inbox,
    outbox,
)
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.sessions.sessions import (
    NeedsGuard,
    Sessions,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import transcript
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns import enter
from tertulia.records.turns.enter import (
    AlreadyAnswered,
    EnterTurn,
    OpenedTurn,
    SessionHeld,
    TurnRef,
    lease_micros,
)
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.records.turns.user_message import UserMessage
from tertulia.records.usage import Charge, charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

# A ticket that is not renewed for so long belongs to somebody who is gone.
TICKET_SECONDS: Final = 5.0
_PAUSES: Final = (0.002, 0.005, 0.01, 0.02, 0.05)


class _MustAsk(Exception):
    """Whether processes run for a key has to be known first."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class Turn:
    """One exchange. Used in a `with` block; every call in it is durable when it returns."""

    def __init__(
        self,
        context: StoreContext,
        sessions: Sessions,
        local_turns: LocalTurns,
        said: UserMessage,
        *,
        wait: float,
        prompt: Callable[[Session, UserMessage], str],
    ) -> None:
        self._context = context
        self._db = context.db
        self._sessions = sessions
        self._local_turns = local_turns
        self._said = said
        self.wait = wait
        self._prompt = prompt
        self._key = sessions.key(said.source)
        self._ticket: int | None = None
        self._ticket_until = 0.0
        self._tries = 0
        self._place: TurnRef | None = None
        self._is_open = False
        self._calls: dict[str, str] = {}
        self._unanswered: list[str] = []
        self._answer_seq: int | None = None
        # Nobody has said anything in this turn: what the agent says, it says unasked.
        self._is_unasked = said.is_silent
        self._found: OpenedTurn | AlreadyAnswered | None = None
        self.notice: Notice | None = None
        self.duplicate = False
        # With `duplicate`: nobody has answered the message, and it is too late to go on with it.
        self.is_cut_off = False
        self.answer: str | None = None
        # What was claimed from the inbox and is settled with the answer, in one transaction.
        self.settles: InboxItem | None = None
        self.has_settled = False
        # Asked by whoever renews the lease, where the turn is not held by a `with` block.
        self.is_given_up: Callable[[], bool] | None = None

    # -- what the agent asks

    @cached_property
    def session(self) -> Session:
        """The session as it stood when the turn began."""
        if self._found is None:
            raise IllegalMove("The turn has not begun.", hint="Use it in a `with` block.")
        return self._found.row.session(self.notice)

    @cached_property
    def context_prompt(self) -> str:
        """The part of the system prompt which tells the agent where it is."""
        return self._prompt(self.session, self._said)

    def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
    ) -> list[dict[str, Any]]:
        """What the model is shown, the person's message last; see `Transcript.history`."""
        return Transcript(self._context, self.session.id).history(
            max_messages, max_tokens, timestamps, format
        )

    # -- what the agent did

    def add_assistant(
        self,
        text: str | None,
        *,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        reasoning: str | None = None,
        usage: Usage | None = None,
        deliver: str | None = None,
        more: bool = False,
        **fields: Any,
    ) -> None:
        """Store what the model said. Without tool calls it is the answer, and ends the turn.

        With `deliver`, such as "origin", it is put into the outbox in the same transaction. With
        `more` it is a part of the answer and the turn goes on. Other fields, such as
        `thinking_blocks`, are kept with the message.
        """
        validate.many("tool_calls", tool_calls)
        calls = [_call(call) for call in tool_calls]
        _check_said(text)
        message: dict[str, Any] = {**fields, "role": ASSISTANT, "content": text}
        if calls:
            message["tool_calls"] = calls
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        is_last = not calls and not more
        # A model that answers does not wait for its calls any more.
        left = self._unanswered if is_last else []
        seq = self._write(
            [draft(message)],
            usage=usage,
            parcels=self._parcels(text, deliver) if text and deliver is not None else (),
            delivered=text or "",
            kind=DELIVERY if self._is_unasked and not calls else None,
            is_last=is_last,
            interrupted=[enter.interrupted(call_id, self._calls[call_id]) for call_id in left],
        )
        if is_last:
            self._unanswered = []
        if not calls:
            self.answer, self._answer_seq = text, seq
        ids = [call["id"] for call in calls]
        self._calls.update({call["id"]: _name_of(call) for call in calls})
        # A result for an id that is used again is a result of the newest call.
        self._unanswered = [old for old in self._unanswered if old not in ids] + ids

    def add_tool_result(self, call_id: str, content: Any, *, name: str | None = None) -> None:
        """Store the result of a call of this turn: text, content parts, or anything JSON has."""
        message: dict[str, Any] = {
            "role": TOOL,
            "tool_call_id": call_id,
            "content": content if _is_content(content) else to_json(content),
        }
        if name is not None:
            message["name"] = name
        written = draft(message)
        self._take_call(call_id)
        try:
            self._write([written])
        except BaseException:
            self.reopen_call(call_id)
            raise

    def reopen_call(self, call_id: str) -> None:
        """A result that was not stored can be given again."""
        if call_id in self._calls and call_id not in self._unanswered:
            self._unanswered.append(call_id)

    def take_in(self, arrival: InboxItem) -> None:
        """Let this turn answer a message that waits in the inbox for the same conversation.

        It is stored as said at this place, and is settled, in one transaction. `StaleWrite` if
        somebody else has taken it.
        """
        said = UserMessage(arrival.source, arrival.text, arrival.message_id, arrival.media)
        author = enter.author_of(self._context, arrival.source)
        self._write(said.drafts(), author=author, also=lambda tx: inbox.take_in(tx, arrival))
        self._is_unasked = False

    def extend(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        usage: Usage | None = None,
        is_last: bool = False,
    ) -> int:
        """Store messages as they are, in one transaction; the last sequence number.

        For agents that keep a form of their own. With `is_last` the turn is answered by them.
        """
        drafts = [draft(message) for message in messages]
        seq = self._write(drafts, usage=usage, is_last=is_last)
        self._is_unasked = self._is_unasked and all(item.role != USER for item in drafts)
        if is_last and messages:
            self.answer, self._answer_seq = text_of(messages[-1]), seq
        return seq

    def add_usage(self, usage: Usage) -> None:
        """Enter a model call that left no message, such as one that failed or helped aside."""
        charge(usage)  # None is no call: what is nothing is not entered without a word
        self._write([], usage=usage)

    def deliver(self, text: str, to: str = "origin", *, delivery: str | None = None) -> str:
        """Put a message into the outbox; the id of the delivery. One with the same id is put once.

        A turn that goes on after it was cut off puts its deliveries in again, unless they have
        ids of their own. What goes to another conversation is recorded there.
        """
        parcels = self._parcels(text, to, delivery)
        self._write([], parcels=parcels, delivered=text)
        return parcels[0].delivery

    # -- entering

    def __enter__(self) -> Self:
        self._check_unused()
        deadline = time.monotonic() + self.wait
        try:
            if not self.try_to_enter():
                self._wait_to_enter(deadline)
        except BaseException:
            self.abandon()
            raise
        return self

    def _wait_to_enter(self, deadline: float) -> None:
        wake = threading.Event()
        self.listen(wake.set)
        try:
            while not self.try_to_enter():
                wake.wait(min(self.pause, self._left(deadline - time.monotonic())))
                wake.clear()
        finally:
            self.ignore(wake.set)

    def try_to_enter(self) -> bool:
        """One try, in one transaction; whether the turn has begun."""
        self._check_unused()
        try:
            found = self._enter()
        except SessionHeld as busy:
            self._tries += 1
            if busy.key is not None:
                self._queue(busy.key)
            return False
        except BudgetExceeded as refusal:
            self._record_refusal(refusal)
            raise
        self._found, self._ticket = found, None
        if isinstance(found, AlreadyAnswered):
            self.duplicate, self.is_cut_off = True, found.is_cut_off
            self.answer = found.answer
        else:
            self._begin(found)
        return True

    @property
    def pause(self) -> float:
        """How long to wait before the next try."""
        return _PAUSES[min(self._tries, len(_PAUSES) - 1)]

    def busy(self) -> SessionBusy:
        """The error for who has waited long enough."""
        return SessionBusy(
            f"Another turn has held the session for {self.wait:g} seconds.",
            hint="Try again later, or wait longer: store.turn(…, wait=120).",
            key=self._key,
        )

    def listen(self, wake: Callable[[], None]) -> None:
        """Have a bell rung whenever a turn of this process leaves the conversation."""
        self._check_unused()
        self._local_turns.listen(self._key, wake)

    def ignore(self, wake: Callable[[], None]) -> None:
        self._local_turns.ignore(self._key, wake)

    def abandon(self) -> None:
        """Undo what entering did so far: leave the queue, or the turn that has just begun."""
        self.give_up()
        self.leave(failed=True)

    def give_up(self) -> None:
        """Leave the queue."""
        if self._ticket is not None:
            ticket, self._ticket = self._ticket, None
            drop = partial(_drop_ticket, ticket=ticket)
            session_rows.log_errors(lambda: self._db.write(drop, lane=self._lane))

    # -- leaving

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(failed=problem is not None)

    @property
    def standing(self) -> tuple[Any, ...]:
        """What a step changes here; given back by who learns that its commit has failed."""
        calls = dict(self._calls), list(self._unanswered)
        return self._is_open, self.answer, self._answer_seq, self.settles, self.has_settled, *calls

    @standing.setter
    def standing(self, found: tuple[Any, ...]) -> None:
        self._is_open, self.answer, self._answer_seq, self.settles, self.has_settled = found[:5]
        self._calls, self._unanswered = found[5:]

    @property
    def is_over(self) -> bool:
        """Whether leaving writes nothing: the answer has closed the turn."""
        return not self._is_open

    def leave(self, *, failed: bool = False, keep_calls: bool = False) -> None:
        """Close the turn if its answer has not done so.

        With `keep_calls`, calls without a result stay as they are: who made them brings the results
        in a later turn, once a person has agreed to them.
        """
        if self._place is None:
            return
        place, self._place = self._place, None
        try:
            if self._is_open:
                self._close(place, failed, keep_calls)
        finally:
            self._is_open = False
            self._local_turns.leave(place.session_id, self, self._key)
            self._context.notify()

    def renew(self) -> bool:
        """Prolong the lease; whether the session is still this turn's. Called during long calls."""
        if self._db.is_closed or (self.is_given_up is not None and self.is_given_up()):
            return False
        place = self._place
        if place is None or not self._is_open:
            return True
        params = {**_epoch(place), "lease": lease_micros(self._context)}
        try:
            return self._db.write(lambda tx: tx.changed("turn_renew", params), lane=self._lane) > 0
        except Error as problem:
            session_rows.log.warning("a lease could not be renewed: %s", problem)
            return True

    # -- within

    def _check_unused(self) -> None:
        if self._found is not None:
            raise IllegalMove(
                "The turn was entered before.", hint="Ask the store for another: store.turn(…)."
            )

    def _enter(self) -> OpenedTurn | AlreadyAnswered:
        has_processes: bool | None = None
        while True:
            attempt = EnterTurn(
                self._context,
                self._local_turns,
                self._said,
                self._drafts,
                self._key,
                self._context.clock.now(),
                self._ticket,
                has_processes,
            )
            found = self._db.write(attempt.enter, lane=self._lane)
            if not isinstance(found, NeedsGuard):
                return found
            has_processes = self._context.has_processes(found.key)

    @property
    def _lane(self) -> str:
        """Where chats are linked, two keys share a conversation, and its row is what they share."""
        return session_rows.lane_of(self._key)

    def _left(self, seconds: float) -> float:
        if seconds <= 0:
            raise self.busy()
        return seconds

    @cached_property
    def _drafts(self) -> list[Draft]:
        """What the person said, written down before any transaction."""
        return self._said.drafts()

    def _begin(self, found: OpenedTurn) -> None:
        self._place = found.place
        self._is_open = True
        self.notice = found.notice
        self._local_turns.take(
            found.place.session_id, self, self._context.settings.lease_seconds / 3
        )

    def _queue(self, key: str) -> None:
        """Take a ticket, or keep the one there is alive."""
        # Renewing at every look would write to the database for nothing.
        if time.monotonic() < self._ticket_until:
            return
        lease = round(TICKET_SECONDS * 1_000_000)

        def work(tx: Transaction) -> int:
            if self._ticket is not None and tx.changed(
                "ticket_renew", {"id": self._ticket, "lease": lease}
            ):
                return self._ticket
            tx.run("tickets_void")
            row = tx.one("ticket_take", {"key": key, "lease": lease})
            assert row is not None
            return int(row[0])

        self._ticket = self._db.write(work, lane=self._lane)
        self._ticket_until = time.monotonic() + TICKET_SECONDS / 3

    def _record_refusal(self, refusal: BudgetExceeded) -> None:
        def work(tx: Transaction) -> None:
            # What the refused transaction had added up went with it.
            budgets.bring_up_to_date(tx, self._context)
            key = linked_key(tx, self._said.source, self._key)
            row = tx.one("session_current", {"key": key})
            if row is not None:
                now = self._context.clock.now()
                session_rows.event(tx, row[0], now, "refused", {"reason": refusal.message})

        session_rows.log_errors(lambda: self._db.write(work))

    def _take_call(self, call_id: str) -> None:
        """Mark a call as answered; threads that run its tools may ask at the same time."""
        if call_id not in self._calls:
            known = ", ".join(self._calls) or "none"
            raise IllegalMove(
                f"This turn has no call {call_id!r}.", hint=f"Calls of this turn: {known}."
            )
        try:
            self._unanswered.remove(call_id)
        except ValueError:
            raise IllegalMove(
                f"The call {call_id!r} has its result already.",
                hint="A result is stored once; say more in the next assistant message.",
            ) from None

    def _parcels(self, text: str, to: str, delivery: str | None = None) -> list[outbox.Delivery]:
        return outbox.deliveries_to(
            self._context,
            text,
            to,
            self._said.source,
            session_id=self.session.id,
            delivery=delivery,
        )

    def _write(
        self,
        drafts: list[Draft],
        *,
        usage: Usage | None = None,
        parcels: Sequence[outbox.Delivery] = (),
        delivered: str = "",
        kind: str | None = None,
        author: str | None = None,
        also: Callable[[Transaction], None] | None = None,
        is_last: bool = False,
        interrupted: Sequence[Draft] = (),
    ) -> int:
        """Append to the turn under its epoch, in one transaction; the last sequence number."""
        place = self._place
        if place is None:
            raise self._outside()
        moment = self._context.clock.now()
        now = to_micros(moment)
        cost = None if usage is None else charge(usage)
        is_after = not self._is_open and not drafts

        def work(has_processes: bool | None, tx: Transaction) -> int:
            step = self._step(place, len(interrupted) + len(drafts), is_last, is_after)
            if cost is None:
                row = tx.one("turn_append", step)
            else:
                row = tx.one("turn_append_with_usage", {**step, **cost})
            if row is None:
                raise self._lost(tx)
            last_seq, is_awaited, platform, person = row
            if interrupted:
                before = last_seq - len(drafts)
                _insert(tx, place, before, interrupted, now, kind=INTERRUPTED)
            if drafts:
                _insert(
                    tx, place, last_seq, drafts, now, kind=kind, author=author,
                    is_awaited=is_awaited,
                )  # fmt: skip
            if also is not None:
                also(tx)
            if cost is not None:
                self._spend(tx, place, cost, platform, person, now)
            if parcels:
                self._put(tx, place, parcels, delivered, moment, has_processes)
            if is_last:
                self._mark(tx, place, "answered", now, last_seq)
                if self.settles is not None:
                    inbox.settle_answered(tx, self.settles)
            return int(last_seq)

        last_seq = self._stored(work)
        if is_last and self.settles is not None:
            self.settles, self.has_settled = None, True
            self._db.notify(inbox.CHANNEL)
        if not is_after:
            self._is_open = not is_last
        if parcels:
            self._db.notify(outbox.CHANNEL)
        return last_seq

    def _stored(self, work: Callable[[bool | None, Transaction], int]) -> int:
        """Do it in a transaction; whether processes run, if it must know, is asked between two."""
        has_processes: bool | None = None
        while True:
            try:
                return self._db.write(partial(work, has_processes), lane=self._lane)
            except _MustAsk as ask:
                has_processes = self._context.has_processes(ask.key)

    def _step(
        self, place: TurnRef, count: int, is_last: bool, is_after: bool = False
    ) -> dict[str, Any]:
        return {
            **_epoch(place),
            "count": count,
            "turn": place.number,
            "is_last": is_last,
            "is_after": is_after,
            "lease": lease_micros(self._context),
        }

    def _put(
        self,
        tx: Transaction,
        place: TurnRef,
        parcels: Sequence[outbox.Delivery],
        text: str,
        now: datetime,
        has_processes: bool | None,
    ) -> None:
        """Put a delivery in, and record it where it arrives if that is another conversation."""
        first, origin = parcels[0], self._said.source
        here = (origin.platform, origin.chat_id or None, origin.thread_id)
        is_back = (first.platform, first.chat_id, first.thread_id) == here
        # Asked last: most go back to where they came from, and need no look at the outbox.
        if not is_back and first.platform != LOCAL and self._is_new(tx, first):
            source = cross_posts.source_of(tx, self._context, first, origin)
            key = linked_key(tx, source, session_rows.key_of(self._context, source))
            if key != self.session.key:
                tx.hold(session_rows.lane_of(key))
                told = cross_posts.CrossPost(self._context, source, text, now, has_processes)
                if (ask := told.record(tx, said_in=place.session_id)) is not None:
                    raise _MustAsk(ask.key)
        outbox.put_in(tx, parcels, to_micros(now))

    def _is_new(self, tx: Transaction, parcel: outbox.Delivery) -> bool:
        return tx.one("outbox_get", {"delivery": parcel.delivery}) is None

    def _spend(
        self,
        tx: Transaction,
        place: TurnRef,
        cost: Charge,
        platform: str,
        owner: str | None,
        now: int,
    ) -> None:
        """Enter a model call. In a chat that several people share, whoever wrote has used it."""
        budgets.will_spend(tx, self._context)
        params = {
            **cost,
            "id": place.session_id,
            "turn": place.number,
            "platform": platform,
            "person": keys.person_of(self._said.source) or owner,
            "now": now,
        }
        tx.run("usage_insert", params)

    def _close(self, place: TurnRef, failed: bool, keep_calls: bool) -> None:
        """Close a turn without an answer, or with calls that nobody answered."""
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            found = tx.one("session_by_epoch", _epoch(place))
            if found is None:
                raise self._lost(tx)
            drafts = (
                []
                if keep_calls
                else enter.interrupted_results(tx, place.ref, found[0], place.number)
            )
            last_seq = found[0] + len(drafts)
            tx.one("turn_append", self._step(place, len(drafts), is_last=True))
            if drafts:
                _insert(tx, place, last_seq, drafts, now, kind=INTERRUPTED)
            if failed:
                self._mark(tx, place, "interrupted", now, None)
            else:
                state = "silent" if self._answer_seq is None else "answered"
                self._mark(tx, place, state, now, self._answer_seq)

        if failed:
            # The block has failed already; what it raised says more than a lost lease would.
            session_rows.log_errors(lambda: self._db.write(work, lane=self._lane))
        else:
            self._db.write(work, lane=self._lane)

    def _mark(
        self, tx: Transaction, place: TurnRef, state: str, now: int, answer_seq: int | None
    ) -> None:
        closing = {"ref": place.ref, "number": place.number, "now": now}
        tx.run("turn_close", {**closing, "state": state, "answer_seq": answer_seq})

    def _outside(self) -> IllegalMove:
        if self.duplicate:
            return IllegalMove(
                "This message has had its turn.",
                hint="Look at turn.duplicate first; turn.answer is what was answered.",
            )
        return IllegalMove(
            "The turn is over." if self._found else "The turn has not begun.",
            hint="Write inside its `with` block.",
        )

    def _lost(self, tx: Transaction) -> Exception:
        session_rows.require(tx, self.session.id)
        return LeaseLost(
            "Another turn took this session over; nothing of this call was stored.",
            hint="Its lease had run out: raise lease_seconds, or answer sooner.",
            session_id=self.session.id,
        )


def _drop_ticket(tx: Transaction, ticket: int) -> None:
    tx.run("ticket_drop", {"id": ticket})


def _epoch(place: TurnRef) -> dict[str, Any]:
    return {"ref": place.ref, "id": place.session_id, "epoch": place.epoch}


def _insert(
    tx: Transaction,
    place: TurnRef,
    last_seq: int,
    drafts: Sequence[Draft],
    now: int,
    *,
    kind: str | None = None,
    author: str | None = None,
    is_awaited: bool = False,
) -> None:
    transcript.insert(
        tx, place.ref, last_seq, drafts, now, turns=[place.number] * len(drafts), kind=kind,
        author=author, is_awaited=is_awaited,
    )  # fmt: skip


def _check_said(text: object) -> None:
    """Words, or nothing beside calls; parts are taken as providers have them."""
    if text is not None and not _is_content(text):
        raise IllegalMove(
            "What the assistant says is text.",
            hint="Give text, or None beside tool calls; a dict is given to turn.extend.",
        )


def _is_content(content: object) -> bool:
    """Whether it is content as providers have it: text, or parts that each name their type."""
    return isinstance(content, str) or (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, Mapping) and "type" in part for part in content)
    )


def _name_of(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    name = (function if isinstance(function, Mapping) else call).get("name")
    return tool_name(name) if isinstance(name, str) else UNNAMED_TOOL


def _call(call: ToolCall | Mapping[str, Any]) -> dict[str, Any]:
    found: object = call.to_dict() if isinstance(call, ToolCall) else call
    if not isinstance(found, Mapping) or not isinstance(found.get("id"), str) or not found["id"]:
        raise IllegalMove(
            "A tool call needs an id.", hint="Give ToolCall(id=…, name=…, arguments=…)."
        )
    return dict(found)
