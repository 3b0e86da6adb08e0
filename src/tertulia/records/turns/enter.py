"""Entering a session: the one transaction that begins a turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.message import Draft, text_of, to_json
from tertulia.core.session import Notice
from tertulia.core.source import Source
from tertulia.process_identity import own_identity
from tertulia.records import budgets, session_rows
from tertulia.records.process_check import ProcessAnswers
from tertulia.records.sessions.open import AUTOMATIC, OpenSession
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, append_with
from tertulia.records.turns.interrupted import close_interrupted, revoke_open_turn
from tertulia.records.turns.lease import TurnRef, turn_lease
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.records.turns.ticket import TICKET_MICROS
from tertulia.records.turns.user_message import UserMessage
from tertulia.records.turns.waiting import AnsweredCall, decline_for_message, take_answers
from tertulia.storage import rows
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, session_row, to_micros

# Who wrote in a shared chat if the platform does not tell.
UNKNOWN_AUTHOR = "unknown"


class OpenedTurn(NamedTuple):
    """A turn that has begun, or that resumes after an interruption."""

    row: SessionRow
    notice: Notice | None
    turn: TurnRef
    answered_calls: tuple[AnsweredCall, ...] = ()  # of a turn that waited for an approval


class AlreadyAnswered(NamedTuple):
    """A message that had its turn before, with its answer."""

    row: SessionRow
    answer: str | None
    is_interrupted: bool
    is_waiting: bool = False  # for an approval


class SessionHeld(Exception):
    """Another turn is inside, or is first in the queue; `key` is the conversation to queue for.

    Without a key the turn waits outside the queue.
    """

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self.key = key


class _EarlierTurn(NamedTuple):
    """The turn that a message had before: the columns of `turn_by_dedupe_key`, in their order."""

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
    token: int | None

    @property
    def is_interrupted(self) -> bool:
        return self.state in ("open", "interrupted")


class EnterTurn(NamedTuple):
    """One try to enter a session."""

    context: StoreContext
    local_turns: LocalTurns
    message: UserMessage
    drafts: list[Draft]
    key: str
    now: datetime
    ticket: int | None
    token: int  # identifies the turn of this caller, also if it never heard that it has begun
    resumes: str | None = None  # the batch of approvals for which the turn waited

    def enter(self, tx: Transaction, answers: ProcessAnswers) -> OpenedTurn | AlreadyAnswered:
        """Begin the turn, or return the answer that the message had before.

        Raise `SessionHeld` if it has to wait, `BudgetExceeded`, and `NeedsProcessCheck`; then
        nothing is stored.
        """
        dedupe_key = self.message.dedupe_key
        columns = tx.one("turn_by_dedupe_key", {"arrival": dedupe_key}) if dedupe_key else None
        earlier = None if columns is None else _EarlierTurn._make(columns)
        if earlier is not None and earlier.token == self.token and earlier.state == "open":
            row = session_rows.require(tx, earlier.session_id)
            if row.open_turn == earlier.number:
                return self.opened(row)
        if self.resumes and earlier is not None and earlier.state == "waiting":
            return self._enter_waiting(tx, earlier)
        if earlier is not None and not self._can_resume(tx, earlier):
            return self._already_answered(tx, earlier)
        attempt = OpenSession(
            self.context, self.message.source, self.key, self.now, answers=answers
        )
        row, notice = attempt.find(tx)
        self._check_queue(tx, row)
        budgets.require_budget(tx, self.context, row, keys.person_of(self.message.source), self.now)
        if row.open_turn is not None and session_rows.has_waiting_turn(tx, row):
            last_seq = decline_for_message(tx, self.context, row, self.now)
            row = row._replace(last_seq=last_seq)
        elif row.open_turn is not None:
            row = row._replace(last_seq=close_interrupted(tx, row, self.now))
        if earlier is not None and earlier.ref == row.ref:
            return self._resume(tx, row, earlier.number)
        if earlier is not None:
            # A policy has ended the session of that turn: the message is answered in the new one.
            tx.run("turn_clear_dedupe_key", {"arrival": dedupe_key})
        return self._begin(tx, row, notice, dedupe_key)

    def enter_undecided(self, tx: Transaction, params: dict[str, Any]) -> OpenedTurn | None:
        """Begin the turn if nothing has to be decided, else change nothing and return None.

        `params` are those of `turn_enter`, whose condition says so.
        """
        entry = Entry(self.drafts[0], author=params["author"])
        columns = append_with(tx, "turn_enter", params, [entry], params["now"])
        if columns is None:
            return None
        opened = self.opened(session_row(columns[4:]))
        self._insert_turn(tx, opened, params["arrival"], first_seq=opened.row.last_seq)
        return opened

    def opened(self, row: SessionRow) -> OpenedTurn:
        """Return the turn that this caller has begun, from the row of its session since then."""
        return OpenedTurn(row, None, TurnRef(row.ref, row.id, row.turns, row.epoch))

    def _can_resume(self, tx: Transaction, earlier: _EarlierTurn) -> bool:
        """Return whether a turn was interrupted, is the newest, and was not undone.

        If a policy has ended its session in between, it is resumed in the next session. Raise
        `SessionHeld` while the turn is running.
        """
        is_running = earlier.is_leased and not session_rows.has_holder_ended(tx, earlier.ref)
        if earlier.state == "open" and (
            is_running or self.local_turns.has_turn_in(earlier.session_id)
        ):
            # A duplicate waits for the answer of another turn; without a ticket it does not make
            # the messages that came after it wait.
            raise SessionHeld
        if not earlier.is_interrupted or not earlier.is_newest:
            return False
        if earlier.has_ended and earlier.end_reason not in AUTOMATIC:
            return False
        current = session_rows.current_view(tx, earlier.session_id)
        has_message = earlier.first_seq <= current.last_seq
        return not has_message or current.view.contains(
            earlier.ref, earlier.first_seq, current.last_seq
        )

    def _already_answered(self, tx: Transaction, earlier: _EarlierTurn) -> AlreadyAnswered:
        """Return the answer. A turn without one is closed, so that it cannot answer later."""
        self._drop_ticket(tx)
        row = session_rows.require(tx, earlier.session_id)
        if earlier.state == "open" and row.open_turn == earlier.number:
            revoke_open_turn(tx, row, self.now)
        answer = _text_at(tx, earlier.ref, earlier.answer_seq)
        is_interrupted = earlier.is_interrupted and answer is None
        return AlreadyAnswered(row, answer, is_interrupted, earlier.state == "waiting")

    def _enter_waiting(
        self, tx: Transaction, earlier: _EarlierTurn
    ) -> OpenedTurn | AlreadyAnswered:
        """Enter a turn that waits for an approval, if all its calls were answered.

        The approved calls are marked as used in the same transaction: they are run once.
        """
        row = session_rows.require(tx, earlier.session_id)
        current = session_rows.current_view(tx, earlier.session_id)
        is_visible = current.view.contains(earlier.ref, earlier.first_seq, current.last_seq)
        if row.open_turn != earlier.number or row.ended_at is not None or not is_visible:
            return self._already_answered(tx, earlier)
        self._check_queue(tx, row)
        calls = take_answers(tx, row, earlier.number, self.resumes or "")
        if calls is None:
            return self._already_answered(tx, earlier)
        return self._resume(tx, row, earlier.number)._replace(answered_calls=tuple(calls))

    def _check_queue(self, tx: Transaction, row: SessionRow) -> None:
        """Raise `SessionHeld` while another turn is inside or is first in the queue."""
        if self.local_turns.has_turn_in(row.id):
            raise SessionHeld(row.key)
        if session_rows.has_running_turn(tx, row) or _is_parent_leased(tx, row):
            raise SessionHeld(row.key)
        (first,) = tx.one("ticket_next", {"key": row.key, "lease": TICKET_MICROS}) or (None,)
        if first is not None and (self.ticket is None or first < self.ticket):
            raise SessionHeld(row.key)
        self._drop_ticket(tx)

    def _drop_ticket(self, tx: Transaction) -> None:
        if self.ticket is not None:
            tx.run("ticket_delete", {"id": self.ticket})

    def _begin(
        self, tx: Transaction, row: SessionRow, notice: Notice | None, dedupe_key: str | None
    ) -> OpenedTurn:
        """Store the user's message and the row of a new turn."""
        now = to_micros(self.now)
        author = author_of(self.context, self.message.source)
        entries = [Entry(item, author=author) for item in self.drafts]
        opened = self._take_session(tx, row, notice, entries=entries, turns=1, active_at=now)
        first_seq = opened.row.last_seq - len(entries) + 1
        self._insert_turn(tx, opened, dedupe_key, first_seq=first_seq)
        return opened

    def _insert_turn(
        self, tx: Transaction, opened: OpenedTurn, dedupe_key: str | None, *, first_seq: int
    ) -> None:
        params = {
            "ref": opened.turn.ref,
            "number": opened.turn.number,
            "arrival": dedupe_key,
            "now": to_micros(self.now),
            "first_seq": first_seq,
            "token": self.token,
        }
        tx.run("turn_insert", params)

    def _resume(self, tx: Transaction, row: SessionRow, number: int) -> OpenedTurn:
        """Enter the newest turn again. The user wrote nothing new, so it is not their activity."""
        tx.run("turn_reopen", {"ref": row.ref, "number": number, "token": self.token})
        return self._take_session(tx, row, None, entries=(), turns=0, active_at=row.updated_at)

    def _take_session(
        self,
        tx: Transaction,
        row: SessionRow,
        notice: Notice | None,
        *,
        entries: Sequence[Entry],
        turns: int,
        active_at: int,
    ) -> OpenedTurn:
        """Take the lease and raise the epoch: from now on, no older epoch can write."""
        params = {
            "ref": row.ref,
            "turns": turns,
            "now": active_at,
            "lease": turn_lease(self.context.settings.lease_seconds),
            "holder": own_identity(),
        }
        columns = append_with(tx, "session_begin_turn", params, entries, active_at)
        assert columns is not None
        _, last_seq, number, _, epoch, version = columns
        entered = row._replace(
            last_seq=last_seq, turns=number, version=version, updated_at=active_at
        )
        return OpenedTurn(entered, notice, TurnRef(row.ref, row.id, number, epoch))


def author_of(context: StoreContext, source: Source) -> str | None:
    """Return the author of a message as JSON, or None unless several people share the session.

    A post without an author, such as one of an anonymous admin, is of somebody unknown: without a
    head of its own it could imitate one.
    """
    if not session_rows.is_shared(source, context):
        return None
    author_id = source.participant or UNKNOWN_AUTHOR
    return to_json({"platform": source.platform, "id": author_id, "name": source.user_name})


def _is_parent_leased(tx: Transaction, row: SessionRow) -> bool:
    """Return whether a session that nobody has entered yet has a parent with a running turn.

    Only if a policy ended the parent: a policy does not begin a second turn of a conversation
    beside a running one. A user who resets by hand wants that.
    """
    if row.parent_id is None or row.epoch:
        return False
    for reason in AUTOMATIC:
        columns = tx.one("session_lease", {"id": row.parent_id, "reason": reason})
        if columns is not None:
            is_leased, ref = columns
            return bool(is_leased) and not session_rows.has_holder_ended(tx, ref)
    return False


def _text_at(tx: Transaction, ref: int, seq: int | None) -> str | None:
    """Return the text of a message, or None if there is none."""
    if seq is None:
        return None
    columns = tx.all("messages_of", {"session": ref, "first": seq, "last": seq})
    body = rows.message_from_row(columns[0], tx).body if columns else {}
    return None if body.get("content") is None else text_of(body)
