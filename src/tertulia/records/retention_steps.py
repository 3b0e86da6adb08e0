"""Removing what the retention of a store no longer keeps, in small steps.

Settled queue entries, people who never got a session, codes that have expired and, if a setting
says so, sessions that ended long ago and old files of messages. Each step is a short transaction of
its own, so that a turn never waits for more than one of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from tertulia.core.arguments import checks_arguments
from tertulia.records.media import delete_old_files
from tertulia.records.queues.base import check_limit
from tertulia.records.sessions.sessions import Sessions
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

_LANE: Final = "retention"
# The kind that is removed, the setting that says when, and the statement that does it.
_STATEMENTS: Final = (
    ("messages", "settled_days", "inbox_remove_settled"),
    ("deleted_messages", "settled_days", "deleted_messages_remove"),
    ("deliveries", "settled_days", "outbox_remove_settled"),
    ("runs", "settled_days", "occurrences_remove_settled"),
    ("approvals", "settled_days", "approvals_remove_settled"),
    ("people", "stranger_days", "people_remove_strangers"),
    ("person_ids", "stranger_days", "person_ids_remove_strangers"),
    ("people_events", "stranger_days", "people_events_remove_strangers"),
)


class RemovedRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each kind were removed."""

    messages: int = 0
    deleted_messages: int = 0
    deliveries: int = 0
    runs: int = 0
    approvals: int = 0
    people: int = 0
    person_ids: int = 0
    people_events: int = 0
    codes: int = 0
    files: int = 0
    sessions: int = 0

    @property
    def total(self) -> int:
        """The number of all of them."""
        return sum(msgspec.structs.astuple(self))

    def __add__(self, other: RemovedRows) -> RemovedRows:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        names = self.__struct_fields__
        return RemovedRows(**dict(zip(names, (a + b for a, b in pairs), strict=True)))


@checks_arguments
class RetentionSteps:
    """The retention of a store."""

    def __init__(self, context: StoreContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions

    def remove_some(self, limit: int = 100) -> RemovedRows:
        """Remove at most `limit` of each kind, and return how many; none if nothing is left."""
        check_limit(limit)
        now = self._context.clock.now()
        removed: dict[str, int] = {}
        for kind, setting, statement in _STATEMENTS:
            before = self._context.settings.retention.cutoff(setting, now)
            removed[kind] = 0 if before is None else self._remove(statement, before, limit)
        removed["codes"] = self._remove("codes_remove_expired", now, limit)
        removed["files"] = self._remove_files(now, limit)
        return RemovedRows(**removed, sessions=self._remove_sessions(now, limit))

    def remove_all(self, limit: int = 100) -> RemovedRows:
        """Remove everything that is no longer kept, step by step; return how many."""
        removed = step = self.remove_some(limit)
        while step.total:
            step = self.remove_some(limit)
            removed += step
        return removed

    def _remove(self, statement: str, before: datetime, limit: int) -> int:
        params = {"before": to_micros(before), "limit": limit}

        def work(tx: Transaction) -> int:
            return tx.changed(statement, params)

        return self._context.db.write(work, lane=_LANE)

    def _remove_files(self, now: datetime, limit: int) -> int:
        before = self._context.settings.retention.cutoff("media_days", now)
        if before is None:
            return 0

        def work(tx: Transaction) -> int:
            return delete_old_files(tx, before=to_micros(before), limit=limit)

        return self._context.db.write(work, lane=_LANE)

    def _remove_sessions(self, now: datetime, limit: int) -> int:
        before = self._context.settings.retention.cutoff("sessions_days", now)
        if before is None:
            return 0
        session_ids = self._sessions.ended(before=before, limit=limit)
        for session_id in session_ids:
            self._sessions.delete(session_id)
        return len(session_ids)
