"""Memory flushes: what a conversation that ended by itself leaves to be remembered.

A session that a policy ends, whoever noticed it, is noted here in the same transaction where
`Settings.remember` is on. Whoever saves memories claims it; it is tried at most three times.
"""

from __future__ import annotations

from typing import Final

from tertulia.core.session import Session
from tertulia.records import session_rows
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import session_row

TRIES: Final = 3


class MemoryFlushes:
    """Sessions whose memory is to be saved."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def claim(self, limit: int = 10, *, lease_seconds: float = 300) -> list[Session]:
        """Take sessions whose memory is due; nobody else gets them while the lease lasts."""
        base.check_limit(limit)
        params = {"limit": limit, "lease": base.lease_micros(lease_seconds)}

        def work(tx: Transaction) -> list[Session]:
            found = []
            for ref, attempts in tx.all("flush_claim", params):
                row = tx.one("session_by_ref", {"ref": ref})
                if row is None or attempts > TRIES:
                    self._end(tx, ref, "given up" if row else None)
                else:
                    found.append(session_row(row).session())
            return found

        return self._db.write(work)

    def done(self, session_id: str) -> None:
        """What was to be remembered is saved."""

        def work(tx: Transaction) -> None:
            self._end(tx, session_rows.require(tx, session_id).ref, "saved")

        self._db.write(work)

    def _end(self, tx: Transaction, ref: int, outcome: str | None) -> None:
        tx.run("flush_done", {"session": ref})
        if outcome is not None:
            session_rows.event(tx, ref, self._context.clock.now(), "memory", {"outcome": outcome})
