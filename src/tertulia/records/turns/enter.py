"""Entering a session: the one transaction that begins a turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.history.repair import (
    INTERRUPTED_RESULT,
    blocks,
)
from tertulia.core.message import INTERRUPTED, TOOL, Draft, draft, text_of, to_json
from tertulia.core.session import Notice
from tertulia.core.source import Source
from tertulia.records import (
    budgets,
    session_rows,
)
from tertulia.records.sessions.sessions import (
    AUTOMATIC,
    NeedsGuard,
    OpenSession,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import transcript
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.records.turns.user_message import UserMessage
from tertulia.storage import rows
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, to_micros


class TurnRef(NamedTuple):
    """Where a turn stands: its session, its number, and the epoch it writes under."""

    ref: int
    session_id: str
    number: int
    epoch: int


class OpenedTurn(NamedTuple):
    """A turn that has begun, or that goes on where it was interrupted."""

    row: SessionRow
    notice: Notice | None
    place: TurnRef
    is_awaited: bool  # by the index, for what was said before


class AlreadyAnswered(NamedTuple):
    """The message had its turn before: this is what was answered."""

    row: SessionRow
    answer: str | None
    is_cut_off: bool


class SessionHeld(Exception):
    """Somebody else is inside, or came before; `key` is the conversation to queue for."""

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self.key = key


class _Known(NamedTuple):
    """The turn that a message had before: the columns of `turn_by_arrival`, in their order."""

    ref: int
    number: int
    state: str
    first_seq: int
    answer_seq: int | None
    session_id: str
    is_newest: bool
    is_leased: bool
    has_ended: bool  # its session
    end_reason: str | None

    @property
    def is_cut_off(self) -> bool:
        return self.state in ("open", "interrupted")


class EnterTurn(NamedTuple):
    """One try to enter."""

    context: StoreContext
    local_turns: LocalTurns
    said: UserMessage
    drafts: list[Draft]
    key: str
    now: datetime
    ticket: int | None
    has_processes: bool | None

    def enter(self, tx: Transaction) -> OpenedTurn | AlreadyAnswered | NeedsGuard:
        """Begin the turn; raises `SessionHeld`, and then nothing is stored."""
        arrival = self.said.dedupe_key
        found = tx.one("turn_by_arrival", {"arrival": arrival}) if arrival else None
        known = None if found is None else _Known._make(found)
        if known is not None and not self._can_go_on(tx, known):
            return self._answered(tx, known)
        attempt = OpenSession(
            self.context, self.said.source, self.key, self.now, False, self.has_processes
        )
        opened = attempt.find(tx)
        if isinstance(opened, NeedsGuard):
            return opened
        row, notice = opened
        self._wait_for_turn(tx, row)
        budgets.check(tx, self.context, row, keys.person_of(self.said.source), self.now)
        if row.open_turn is not None:
            row = row._replace(last_seq=close_left_open(tx, row, self.now))
        if known is not None and known.ref == row.ref:
            return self._go_on(tx, row, known.number)
        if known is not None:
            # Its session has ended by policy: the message is answered in the new one.
            tx.run("turn_hand_on", {"arrival": arrival})
        return self._begin(tx, row, notice, arrival)

    def _can_go_on(self, tx: Transaction, known: _Known) -> bool:
        """Whether a turn was cut off, nothing was said since, and it was not taken back.

        A session that its policy has ended meanwhile does not keep it: it goes on in the next one.
        Raises `SessionHeld` while it is under way.
        """
        if known.state == "open" and (known.is_leased or self.local_turns.holds(known.session_id)):
            # Who waits for an answer that somebody else is giving keeps nobody else waiting.
            raise SessionHeld
        if not known.is_cut_off or not known.is_newest:
            return False
        if known.has_ended and known.end_reason not in AUTOMATIC:
            return False
        seen = session_rows.current_view(tx, known.session_id)
        has_message = known.first_seq <= seen.last_seq
        return not has_message or seen.view.holds(known.ref, known.first_seq, seen.last_seq)

    def _answered(self, tx: Transaction, known: _Known) -> AlreadyAnswered:
        """What was answered. A turn without an answer cannot give one after this was told."""
        self._drop_ticket(tx)
        row = session_rows.require(tx, known.session_id)
        if known.state == "open" and row.open_turn == known.number:
            close_left_open(tx, row, self.now)
            tx.run("session_fence", {"ref": row.ref})
        answer = _said_at(tx, known.ref, known.answer_seq)
        return AlreadyAnswered(row, answer, known.is_cut_off and answer is None)

    def _wait_for_turn(self, tx: Transaction, row: SessionRow) -> None:
        """Raise `SessionHeld` while another turn is inside or somebody came before."""
        if self.local_turns.holds(row.id):
            raise SessionHeld(row.key)
        until = row.lease_until or _lease_before(tx, row)
        if until and until > session_rows.database_time(tx):
            raise SessionHeld(row.key)
        (first,) = tx.one("ticket_first", {"key": row.key}) or (None,)
        if first is not None and (self.ticket is None or first < self.ticket):
            raise SessionHeld(row.key)
        self._drop_ticket(tx)

    def _drop_ticket(self, tx: Transaction) -> None:
        if self.ticket is not None:
            tx.run("ticket_drop", {"id": self.ticket})

    def _begin(
        self, tx: Transaction, row: SessionRow, notice: Notice | None, arrival: str | None
    ) -> OpenedTurn:
        now, count = to_micros(self.now), len(self.drafts)
        entered = self._take(tx, row, notice, count=count, turns=1, active_at=now)
        number, last_seq = entered.place.number, entered.row.last_seq
        transcript.insert(
            tx,
            row.ref,
            last_seq,
            self.drafts,
            now,
            turns=[number] * count,
            author=author_of(self.context, self.said.source),
            is_awaited=entered.is_awaited,
        )
        tx.run(
            "turn_insert",
            {
                "ref": row.ref,
                "number": number,
                "arrival": arrival,
                "now": now,
                "first_seq": last_seq - count + 1,
            },
        )
        return entered

    def _go_on(self, tx: Transaction, row: SessionRow, number: int) -> OpenedTurn:
        """Enter the newest turn again. That is no activity of the person, who said nothing new."""
        tx.run("turn_reopen", {"ref": row.ref, "number": number})
        return self._take(tx, row, None, count=0, turns=0, active_at=row.updated_at)

    def _take(
        self,
        tx: Transaction,
        row: SessionRow,
        notice: Notice | None,
        *,
        count: int,
        turns: int,
        active_at: int,
    ) -> OpenedTurn:
        """Raise the epoch: from now on every older one can write nothing."""
        found = tx.one(
            "session_enter",
            {
                "ref": row.ref,
                "count": count,
                "turns": turns,
                "now": active_at,
                "lease": lease_micros(self.context),
            },
        )
        assert found is not None
        last_seq, number, epoch, version, is_awaited = found
        now_row = row._replace(
            last_seq=last_seq, turns=number, version=version, updated_at=active_at
        )
        return OpenedTurn(now_row, notice, TurnRef(row.ref, row.id, number, epoch), is_awaited)


def author_of(context: StoreContext, source: Source) -> str | None:
    """Who wrote a message, where several people share the session."""
    if source.chat_type == "dm" or source.participant is None:
        return None
    if session_rows.owner_person(source, context) is not None:
        return None
    who = {"platform": source.platform, "id": source.participant, "name": source.user_name}
    return to_json(who)


def close_left_open(tx: Transaction, row: SessionRow, now: datetime) -> int:
    """Close a turn that was left open; the last sequence number after it.

    Whatever it had called and not heard of gets a result that says so. Nothing is run again.
    """
    assert row.open_turn is not None
    drafts = interrupted_results(tx, row.ref, row.last_seq, row.open_turn)
    last_seq = row.last_seq + len(drafts)
    moment = to_micros(now)
    if drafts:
        tx.run("session_add_rows", {"ref": row.ref, "count": len(drafts)})
        transcript.insert(
            tx,
            row.ref,
            last_seq,
            drafts,
            moment,
            turns=[row.open_turn] * len(drafts),
            kind=INTERRUPTED,
        )
    closing = {"ref": row.ref, "number": row.open_turn, "now": moment, "answer_seq": None}
    tx.run("turn_close", {**closing, "state": "interrupted"})
    session_rows.event(
        tx, row.ref, now, "interrupted", {"turn": row.open_turn, "calls": len(drafts)}
    )
    return last_seq


def interrupted_results(tx: Transaction, ref: int, last_seq: int, turn: int) -> list[Draft]:
    """A result for each call of a turn that has none."""
    params = {"ref": ref, "last": last_seq, "turn": turn}
    found = [rows.message(row, tx) for row in tx.all("turn_rows", params)]
    drafts = []
    for block in blocks(found):
        for call, result in zip(block.calls, block.results, strict=True):
            if result.row is None:
                given = _given_id(block.row.body, call, block.calls)
                drafts.append(interrupted(given, call["function"]["name"]))
    return drafts


def interrupted(call_id: str, name: str) -> Draft:
    """The result of a call that nobody will hear of any more."""
    return draft(
        {
            "role": TOOL,
            "tool_call_id": call_id,
            "name": name,
            "content": INTERRUPTED_RESULT,
            "interrupted": True,
        }
    )


def lease_micros(context: StoreContext) -> int:
    return round(context.settings.lease_seconds * 1_000_000)


def _lease_before(tx: Transaction, row: SessionRow) -> int:
    """The lease of the session before one that nobody has entered yet, if a policy ended it.

    A policy does not begin a second turn of a conversation beside the one under way; whoever
    resets by hand means to.
    """
    if row.parent_id is None or row.epoch:
        return 0
    for reason in AUTOMATIC:
        found = tx.one("session_lease", {"id": row.parent_id, "reason": reason})
        if found is not None:
            return int(found[0])
    return 0


def _given_id(body: dict[str, Any], call: dict[str, Any], calls: Sequence[dict[str, Any]]) -> str:
    """The id as it was stored, which the grammar may have made unique."""
    stored = [item for item in body.get("tool_calls") or [] if isinstance(item, dict)]
    place = calls.index(call)
    given = stored[place].get("id") if place < len(stored) else None
    return given if isinstance(given, str) and given else call["id"]


def _said_at(tx: Transaction, ref: int, seq: int | None) -> str | None:
    if seq is None:
        return None
    found = tx.all("messages_of", {"session": ref, "first": seq, "last": seq})
    body = rows.message(found[0], tx).body if found else {}
    return None if body.get("content") is None else text_of(body)
