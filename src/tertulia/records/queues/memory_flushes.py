"""Memory flushes: ended sessions whose memory is still to be saved.

A session that its policy ends is put in here in the same transaction, whichever process ends it,
if `Settings.remember` is on. The gateway claims it and saves its memory; it is tried at most three
times.
"""

from __future__ import annotations

from typing import Final

from tertulia.core.arguments import checks_arguments
from tertulia.core.session import Session
from tertulia.records import session_rows
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Params, Transaction
from tertulia.storage.rows import session_row

MAX_ATTEMPTS: Final = 3


@checks_arguments
class MemoryFlushes:
    """The sessions of a store whose memory is still to be saved."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def claim(self, limit: int = 10, *, lease_seconds: float = 300) -> list[Session]:
        """Claim sessions whose memory is due; no other worker gets them while the lease lasts."""

        def take(tx: Transaction, params: Params) -> list[Session]:
            sessions = []
            for ref, attempts in tx.all("memory_flush_claim", params):
                row = tx.one("session_by_ref", {"ref": ref})
                if row is None or attempts > MAX_ATTEMPTS:
                    self._end(tx, ref, "given up" if row else None)
                else:
                    sessions.append(session_row(row).session())
            return sessions

        return base.claim(self._context, limit, lease_seconds, take)

    def done(self, session_id: str) -> None:
        """Settle a session as saved; raise `NotFound` if there is no such session."""

        def work(tx: Transaction) -> None:
            self._end(tx, session_rows.require(tx, session_id).ref, "saved")

        self._db.write(work)

    def _end(self, tx: Transaction, ref: int, outcome: str | None) -> None:
        tx.run("memory_flush_delete", {"session": ref})
        if outcome is not None:
            session_rows.record_event(
                tx, ref, self._context.clock.now(), "memory", {"outcome": outcome}
            )
