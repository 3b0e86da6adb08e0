"""The lease of a turn: every write carries its epoch, and its time is renewed while it runs.

Taking a session raises its epoch. A statement of a turn has the epoch in its condition, so a turn
whose session was taken over changes nothing and learns it from that: `LeaseLost`. The time of a
lease is the database's time; no lock and no transaction is held between two writes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from tertulia.errors import LeaseLost
from tertulia.records import session_rows
from tertulia.records.queues.base import lease_micros
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import append_with
from tertulia.records.turns.interrupted import interrupted_results
from tertulia.storage.base import Transaction

# The lease of a turn in microseconds; every write of every turn asks for that of the settings.
turn_lease = lru_cache(maxsize=8)(lease_micros)


class TurnRef(NamedTuple):
    """One entered turn: its session, its number, and the epoch that its writes carry."""

    ref: int
    session_id: str
    number: int
    epoch: int

    def epoch_params(self) -> dict[str, Any]:
        """Return the parameters by which a statement checks that the turn has its lease."""
        return {"ref": self.ref, "id": self.session_id, "epoch": self.epoch}


class CloseTurn(NamedTuple):
    """The transaction that ends a turn which has no answer, or whose calls have no result."""

    context: StoreContext
    turn: TurnRef
    now: int
    state: str
    answer_seq: int | None
    keep_calls: bool

    def close(self, tx: Transaction) -> None:
        """Store a result for each open call, unless they are kept, and release the lease.

        Raise `LeaseLost` if another turn took over, `NotFound` if the session was deleted.
        """
        turn = self.turn
        row = tx.one("session_by_epoch", turn.epoch_params())
        if row is None:
            raise lease_lost(tx, turn.session_id)
        entries = [] if self.keep_calls else interrupted_results(tx, turn.ref, row[0], turn.number)
        params = append_params(self.context, turn, is_last=True)
        append_with(tx, "turn_append", params, entries, self.now)
        close_turn_row(tx, turn, self.state, self.now, self.answer_seq)


def append_params(
    context: StoreContext,
    turn: TurnRef,
    *,
    is_last: bool,
    is_after: bool = False,
    is_waiting: bool = False,
) -> dict[str, Any]:
    """Return the parameters of `turn_append`, which also renews the lease or releases it.

    `is_after` is a write without messages after the answer, which needs no lease. A turn that
    `is_waiting` releases the lease and stays open.
    """
    return {
        **turn.epoch_params(),
        "turn": turn.number,
        "is_last": is_last,
        "is_after": is_after,
        "is_waiting": is_waiting,
        "lease": turn_lease(context.settings.lease_seconds),
    }


def close_turn_row(
    tx: Transaction, turn: TurnRef, state: str, now: int, answer_seq: int | None
) -> None:
    """Store how a turn ended and the number of the message that answered."""
    params = {"ref": turn.ref, "number": turn.number, "now": now}
    tx.run("turn_close", {**params, "state": state, "answer_seq": answer_seq})


def lease_lost(tx: Transaction, session_id: str) -> LeaseLost:
    """Return the error of a turn whose epoch is over; raise `NotFound` if its session is gone."""
    session_rows.require(tx, session_id)
    return LeaseLost(
        "This turn no longer has the lease of its session; nothing of this call was stored.",
        hint="It ran out, and a later try of the message or another turn has taken it. Look for"
        " errors of the store before this one, raise lease_seconds, or answer sooner.",
        session_id=session_id,
    )
