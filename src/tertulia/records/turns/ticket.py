"""The queue of a conversation: turns that wait for it are let in by the order of their tickets."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from tertulia.records import session_rows
from tertulia.records.queues.base import lease_micros
from tertulia.storage.base import Database, Transaction

# A ticket that was not renewed for this long belongs to a process that is gone.
TICKET_SECONDS: Final = 5.0
TICKET_MICROS: Final = lease_micros(TICKET_SECONDS)


class Ticket:
    """The position of one waiting turn in the queue of its conversation."""

    def __init__(self, db: Database, lane: str) -> None:
        self.id: int | None = None
        self._db = db
        self._lane = lane
        self._renew_at = 0.0

    def take_or_renew(self, key: str) -> None:
        """Enter the queue of a conversation, or stay in it."""
        # A renewal at every try to enter would write to the database without need.
        if time.monotonic() < self._renew_at:
            return
        self.id = self._db.write(partial(self._take_or_renew, key), lane=self._lane)
        self._renew_at = time.monotonic() + TICKET_SECONDS / 3

    def _take_or_renew(self, key: str, tx: Transaction) -> int:
        lease = {"lease": TICKET_MICROS}
        if self.id is not None and tx.changed("ticket_renew", {"id": self.id, **lease}):
            return self.id
        tx.run("tickets_expire", lease)
        row = tx.one("ticket_insert", {"key": key, **lease})
        assert row is not None
        return int(row[0])

    def drop(self) -> None:
        """Leave the queue. A failure is only logged: the ticket expires by itself."""
        if self.id is not None:
            params = {"id": self.id}
            self.id = None
            session_rows.log_errors(
                lambda: self._db.write(lambda tx: tx.run("ticket_delete", params), lane=self._lane)
            )
