"""Turns: from what a person said to what the agent finally answered.

Entering is one transaction (`entry.py`). The answer is one too: the message, its usage, what is to
be delivered, and the release of the lease. A step with tool calls, a result, a delivery is one
each. No lock and no transaction is held while the agent works.

The answer ends a turn: it is an assistant message without tool calls. A turn that goes on after it
takes its lease again, as long as nobody else has entered since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tertulia.core.message import ASSISTANT, INTERRUPTED, TOOL, Draft, draft, to_json
from tertulia.core.render import Format, Timestamps
from tertulia.core.session import Notice, Session
from tertulia.core.usage import Usage
from tertulia.errors import BudgetExceeded, IllegalMove, LeaseLost, SessionBusy
from tertulia.records import acts, entry, outbox, transcript
from tertulia.records.desk import Desk
from tertulia.records.entry import Answered, Busy, Entered, Entry, Place, Said, lease_micros
from tertulia.records.house import House
from tertulia.records.sessions import Ask, Sessions
from tertulia.records.transcript import Transcript
from tertulia.records.usage import NO_CHARGE, charge, enter
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

# A ticket that is not renewed for so long belongs to somebody who is gone.
TICKET_SECONDS: Final = 5.0
_PAUSES: Final = (0.002, 0.005, 0.01, 0.02, 0.05)


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool: its id, its name, and its arguments as JSON text or as a dict."""

    id: str
    name: str
    arguments: str | Mapping[str, Any] = "{}"

    def to_dict(self) -> dict[str, Any]:
        """The call in the OpenAI form."""
        given = self.arguments
        arguments = given if isinstance(given, str) else to_json(given)
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


class Turn:
    """One exchange. Used in a `with` block; every call in it is durable when it returns."""

    def __init__(
        self,
        house: House,
        sessions: Sessions,
        desk: Desk,
        said: Said,
        *,
        wait: float,
        prompt: Callable[[Session, Said], str],
    ) -> None:
        self._house = house
        self._db = house.db
        self._sessions = sessions
        self._desk = desk
        self._said = said
        self.wait = wait
        self._prompt = prompt
        self._key = sessions.key(said.source)
        self._ticket: int | None = None
        self._tries = 0
        self._place: Place | None = None
        self._is_open = False
        self._calls: dict[str, bool] = {}
        self._session: Session | None = None
        self.notice: Notice | None = None
        self.duplicate = False
        self.answer: str | None = None

    # -- what the agent asks

    @property
    def session(self) -> Session:
        """The session as it stood when the turn began."""
        if self._session is None:
            raise IllegalMove("The turn has not begun.", hint="Use it in a `with` block.")
        return self._session

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
        return Transcript(self._house, self.session.id).history(
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
        more: bool = False,
        **fields: Any,
    ) -> None:
        """Store what the model said. Without tool calls it is the answer, and ends the turn.

        With `more` it is a part of the answer and the turn goes on. Other fields, such as
        `thinking_blocks`, are kept with the message.
        """
        calls = [_call(call) for call in tool_calls]
        message: dict[str, Any] = {"role": ASSISTANT, "content": text}
        if calls:
            message["tool_calls"] = calls
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        is_answer = not calls
        seq = self._write(
            [draft({**message, **fields})], usage=usage, is_last=is_answer and not more,
            is_answer=is_answer,
        )  # fmt: skip
        if is_answer:
            self.answer = text
        self._calls.update({call["id"]: False for call in calls})
        assert seq > 0

    def add_tool_result(self, call_id: str, content: Any, *, name: str | None = None) -> None:
        """Store the result of a call of this turn: text, content parts, or anything JSON has."""
        if call_id not in self._calls:
            known = ", ".join(self._calls) or "none"
            raise IllegalMove(
                f"This turn has no call {call_id!r}.", hint=f"Calls of this turn: {known}."
            )
        if self._calls[call_id]:
            raise IllegalMove(
                f"The call {call_id!r} has its result already.",
                hint="A result is stored once; say more in the next assistant message.",
            )
        is_content = isinstance(content, str | list)
        message: dict[str, Any] = {
            "role": TOOL,
            "tool_call_id": call_id,
            "content": content if is_content else to_json(content),
        }
        if name is not None:
            message["name"] = name
        self._write([draft(message)])
        self._calls[call_id] = True

    def add_usage(self, usage: Usage) -> None:
        """Enter a model call that left no message, such as one that failed or helped aside."""
        self._write([], usage=usage)

    def deliver(self, text: str, to: str = "origin") -> str:
        """Put a message into the outbox; the id of the delivery."""
        source = self._said.source
        parcel = outbox.parcel(self._house, text, to, source, session_id=self.session.id)
        self._write([], parcel=parcel)
        return parcel.delivery

    # -- entering

    def __enter__(self) -> Self:
        bell = threading.Event()
        deadline = time.monotonic() + self.wait
        self.listen(bell.set)
        try:
            while not self.try_to_enter():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self.busy()
                bell.wait(min(self.pause, left))
                bell.clear()
        finally:
            self.ignore(bell.set)
            if self._session is None:
                self.give_up()
        return self

    def try_to_enter(self) -> bool:
        """One try, in one transaction; whether the turn has begun."""
        try:
            found = self._enter()
        except Busy:
            self._queue()
            return False
        except BudgetExceeded as refusal:
            self._record_refusal(refusal)
            raise
        if isinstance(found, Answered):
            self.duplicate = True
            self.answer = found.answer
            self._session = self._sessions.require(found.session_id)
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

    def listen(self, bell: Callable[[], None]) -> None:
        """Have a bell rung whenever a turn of this process leaves the conversation."""
        self._desk.listen(self._key, bell)

    def ignore(self, bell: Callable[[], None]) -> None:
        self._desk.ignore(self._key, bell)

    def abandon(self) -> None:
        """Undo what entering did so far: leave the queue, or the turn that has just begun."""
        self.give_up()
        self.leave(failed=True)

    def give_up(self) -> None:
        """Leave the queue."""
        if self._ticket is not None:
            ticket, self._ticket = self._ticket, None
            self._db.write(lambda tx: tx.run("ticket_drop", {"id": ticket}))

    # -- leaving

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave(failed=problem is not None)

    def leave(self, *, failed: bool = False) -> None:
        """Close the turn if its answer has not done so."""
        if self._place is None:
            return
        place, self._place = self._place, None
        try:
            if self._is_open:
                self._close(place, failed)
        finally:
            self._is_open = False
            self._desk.leave(place.ref, self, self._key)
            self._house.ring()

    def renew(self) -> None:
        """Prolong the lease; called while the agent works."""
        place = self._place
        if place is not None and self._is_open:
            params = {**_epoch(place), "lease": lease_micros(self._house)}
            acts.try_to(lambda: self._db.write(lambda tx: tx.run("turn_renew", params)))

    # -- within

    def _enter(self) -> Entered | Answered:
        has_processes: bool | None = None
        while True:
            attempt = Entry(
                self._house,
                self._desk,
                self._said,
                self._key,
                self._house.clock.now(),
                self._ticket,
                has_processes,
            )
            found = self._db.write(attempt.enter)
            if not isinstance(found, Ask):
                return found
            guard = self._house.settings.has_active_processes
            has_processes = bool(guard and guard(self._key))

    def _begin(self, found: Entered) -> None:
        self._ticket = None
        self._place = found.place
        self._is_open = True
        self._session = found.row.session(found.notice)
        self.notice = found.notice
        self._desk.take(found.place.ref, self, self._house.settings.lease_seconds / 3)

    def _queue(self) -> None:
        """Take a ticket, or keep the one there is alive."""
        self._tries += 1
        lease = round(TICKET_SECONDS * 1_000_000)

        def work(tx: Transaction) -> int:
            if self._ticket is not None and tx.run(
                "ticket_renew", {"id": self._ticket, "lease": lease}
            ):
                return self._ticket
            tx.run("tickets_void", {"key": self._key})
            row = tx.one("ticket_take", {"key": self._key, "lease": lease})
            assert row is not None
            return int(row[0])

        # Renewing at every look would write to the database for nothing.
        if self._ticket is None or self._tries % 20 == 0:
            self._ticket = self._db.write(work)

    def _record_refusal(self, refusal: BudgetExceeded) -> None:
        def work(tx: Transaction) -> None:
            row = tx.one("session_current", {"key": self._key})
            if row is not None:
                now = self._house.clock.now()
                acts.event(tx, row[0], now, "refused", {"reason": refusal.message})

        self._db.write(work)

    def _write(
        self,
        drafts: list[Draft],
        *,
        usage: Usage | None = None,
        is_last: bool = False,
        is_answer: bool = False,
        parcel: outbox.Parcel | None = None,
    ) -> int:
        """Append to the turn under its epoch, in one transaction; the last sequence number."""
        place = self._place
        if place is None:
            raise IllegalMove(
                "The turn is over." if self._session else "The turn has not begun.",
                hint="Write inside its `with` block; a duplicate has had its turn.",
            )
        moment = self._house.clock.now()
        now = to_micros(moment)
        cost = None if usage is None else charge(usage, moment.astimezone(self._house.zone))

        def work(tx: Transaction) -> int:
            row = tx.one(
                "turn_append",
                {
                    **(NO_CHARGE if cost is None else cost),
                    **_epoch(place),
                    "count": len(drafts),
                    "turn": place.number,
                    "is_last": is_last,
                    "lease": lease_micros(self._house),
                },
            )
            if row is None:
                raise self._lost(tx)
            last_seq, platform, person = row
            if drafts:
                numbers = [place.number] * len(drafts)
                transcript.insert(tx, place.ref, last_seq, drafts, now, turns=numbers)
            if cost is not None:
                enter(
                    tx, cost, now, session_id=self.session.id, turn=place.number,
                    platform=platform, person=person,
                )  # fmt: skip
            if parcel is not None:
                outbox.put_in(tx, parcel, now)
            if is_answer:
                answer = {"number": place.number, "now": now, "answer_seq": last_seq}
                tx.run("turn_close", {"ref": place.ref, "state": "answered", **answer})
            return int(last_seq)

        last_seq = self._db.write(work)
        self._is_open = not is_last
        return last_seq

    def _close(self, place: Place, failed: bool) -> None:
        """Close a turn without an answer, or with calls that nobody answered."""
        now = self._house.clock.now()

        def work(tx: Transaction) -> None:
            found = tx.one("session_by_epoch", _epoch(place))
            if found is None:
                raise self._lost(tx)
            drafts = entry.interrupted_results(tx, place.ref, found[0], place.number)
            tx.one(
                "turn_append",
                {
                    **NO_CHARGE,
                    **_epoch(place),
                    "count": len(drafts),
                    "turn": place.number,
                    "is_last": True,
                    "lease": 0,
                },
            )
            moment = to_micros(now)
            numbers = [place.number] * len(drafts)
            last = found[0] + len(drafts)
            transcript.insert(tx, place.ref, last, drafts, moment, turns=numbers, kind=INTERRUPTED)
            state = "interrupted" if failed else "answered" if self.answer else "silent"
            closing = {"ref": place.ref, "number": place.number, "answer_seq": None}
            tx.run("turn_close", {**closing, "state": state, "now": moment})

        if failed:
            # The block has failed already; what it raised says more than a lost lease would.
            acts.try_to(lambda: self._db.write(work))
        else:
            self._db.write(work)

    def _lost(self, tx: Transaction) -> Exception:
        acts.require(tx, self.session.id)
        return LeaseLost(
            "Another turn took this session over; nothing of this call was stored.",
            hint="Its lease had run out: raise lease_seconds, or answer sooner.",
            session_id=self.session.id,
        )


def _epoch(place: Place) -> dict[str, Any]:
    return {"ref": place.ref, "epoch": place.epoch}


def _call(call: ToolCall | Mapping[str, Any]) -> dict[str, Any]:
    found = call.to_dict() if isinstance(call, ToolCall) else dict(call)
    if not isinstance(found.get("id"), str) or not found["id"]:
        raise IllegalMove(
            "A tool call needs an id.", hint="Give ToolCall(id=…, name=…, arguments=…)."
        )
    return found
