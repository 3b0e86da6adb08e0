"""The turn that a message of a platform had: found by the message's id, for reading only."""

from __future__ import annotations

import msgspec

from tertulia.records.turns.newest import TurnState
from tertulia.storage.base import Transaction


class MessageTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn of a message: its session, where its messages begin, and what became of it.

    `is_running`: it has the lease of the session. `answer_seq` is the number of the answer in the
    transcript, None if there is none.
    """

    session_id: str
    number: int
    state: TurnState
    first_seq: int
    answer_seq: int | None
    is_running: bool


def read_turn_of_message(tx: Transaction, dedupe_key: str) -> MessageTurn | None:
    """Return the turn of a message, or None if it had none."""
    row = tx.one("turn_by_dedupe_key", {"arrival": dedupe_key})
    if row is None:
        return None
    _, number, state, first_seq, answer_seq, session_id, _, is_leased, *_ = row
    return MessageTurn(
        session_id=session_id,
        number=number,
        state=state,
        first_seq=first_seq,
        answer_seq=answer_seq,
        is_running=state == "open" and bool(is_leased),
    )
