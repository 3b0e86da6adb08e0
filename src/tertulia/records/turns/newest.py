"""The newest turn of a session, for people to look at: whether it runs, where, and how it ended."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from tertulia.records.session_rows import session_not_found
from tertulia.storage.base import Transaction
from tertulia.storage.rows import from_micros

TurnState = Literal["open", "waiting", "answered", "silent", "interrupted"]


class NewestTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The newest turn of a session.

    `is_running`: it has the lease of the session, until `lease_until`; a turn that is `open`
    without it was left by a node that died, and is continued. `node` is the gateway that answers
    its message or tried to, None for a caller that waits for the answer itself. `item` is the
    number of that message in the inbox; `is_dead` if it was given up, with the `problem`.
    """

    number: int
    state: TurnState
    began_at: datetime
    closed_at: datetime | None
    is_running: bool
    lease_until: datetime | None
    item: int | None
    is_dead: bool
    node: str | None
    problem: str | None

    @property
    def can_be_stopped(self) -> bool:
        """Whether it runs, or waits for an approval."""
        return self.is_running or self.state == "waiting"


def read_newest_turn(tx: Transaction, session_id: str) -> NewestTurn | None:
    """Return the newest turn of a session, None if it had none; raise `NotFound`."""
    row = tx.one("turn_newest", {"id": session_id})
    if row is None:
        raise session_not_found(session_id)
    number, state, began_at, closed_at, is_leased, until, item, item_state, node, problem = row
    if number is None:
        return None
    is_running = state == "open" and bool(is_leased)
    return NewestTurn(
        number=number,
        state=state,
        began_at=from_micros(began_at),
        closed_at=None if closed_at is None else from_micros(closed_at),
        is_running=is_running,
        lease_until=from_micros(until) if is_running else None,
        item=item,
        is_dead=item_state == "dead",
        node=node,
        problem=problem,
    )
