"""One transaction on PostgreSQL, as `work` sees it, and the locks that it takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from psycopg.pq.abc import PGresult

from tertulia.core.text.search_terms import Phrase
from tertulia.storage.base import Params, Row, Step
from tertulia.storage.postgres.batch import Batch
from tertulia.storage.postgres.search import to_tsquery, to_tsvector
from tertulia.storage.statements import Query

COMMIT: Final = Query(b"commit")
NO_PARAMS: Final[Params] = {}
# Advisory locks by their numbers: whether each is shared.
Locks = Mapping[int, bool]
NO_LOCKS: Locks = {}
# By whether the lock is shared.
_LOCK = {
    False: Query(b"select pg_advisory_xact_lock($1)"),
    True: Query(b"select pg_advisory_xact_lock_shared($1)"),
}
_TRY_LOCK = {
    False: Query(b"select pg_try_advisory_xact_lock($1)"),
    True: Query(b"select pg_try_advisory_xact_lock_shared($1)"),
}


class NeedsLocks(Exception):
    """The work has to begin again with these locks, because it may not wait for one of them now."""

    def __init__(self, locks: Locks) -> None:
        super().__init__()
        self.locks = locks


class ReadGoesOn(Exception):
    """Work that reads has asked for more after its transaction has ended."""


class PostgresTransaction:
    """Statements by name on one connection, in the transaction that its batch has begun.

    `id_at` is the number of the result with the id of the transaction, among those of its batch.
    """

    __slots__ = ("_batch", "_id_at", "_locks", "_queries", "id")

    def __init__(
        self,
        batch: Batch,
        queries: Mapping[str, Query],
        locks: Locks = NO_LOCKS,
        *,
        id_at: int | None = None,
    ) -> None:
        self._batch = batch
        self._queries = queries
        self._locks = dict(locks)
        self._id_at = id_at
        self.id: str | None = None  # None until the first result was received

    def run(self, statement: str, params: Params = NO_PARAMS) -> None:
        query = self._queries[statement]
        self._batch.put(query, [params[name] for name in query.names])

    def changed(self, statement: str, params: Params = NO_PARAMS) -> int:
        self.run(statement, params)
        return self.receive()[-1].command_tuples or 0

    def one(self, statement: str, params: Params = NO_PARAMS) -> Row | None:
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def all(self, statement: str, params: Params = NO_PARAMS) -> list[Row]:
        self.run(statement, params)
        return self._batch.rows(self.receive()[-1])

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        query = self._queries[statement]
        for row in rows:
            values = [row[name] for name in query.names] if isinstance(row, Mapping) else row
            self._batch.put(query, values)

    def together(self, steps: Sequence[Step]) -> list[list[Row]]:
        for step in steps:
            self.run(*step)
        return [self._batch.rows(result) for result in self.receive()[-len(steps) :]]

    def lock(self, name: str, *, shared: bool = False) -> None:
        """Lock a name; the locks of a transaction are waited for in the order of their numbers.

        Two transactions that wait in the same order never wait for each other. A lock with a lower
        number than one that is held is only tried; if another transaction has it, this one begins
        again and takes all its locks at once.
        """
        number = lock_id(name)
        is_held_shared = self._locks.get(number)
        if is_held_shared is not None and (shared or not is_held_shared):
            return
        wanted = {**self._locks, number: shared}
        if is_held_shared is None and number == max(wanted):
            self._batch.put(_LOCK[shared], [number])
        else:
            self._batch.put(_TRY_LOCK[shared], [number])
            ((is_locked,),) = self._batch.rows(self.receive()[-1])
            if not is_locked:
                raise NeedsLocks(wanted)
        self._locks = wanted

    def receive(self) -> list[PGresult]:
        """Send everything that waits, and return the results."""
        results = self._batch.run()
        if self._id_at is not None:
            ((self.id, *_),) = self._batch.rows(results[self._id_at])
            self._id_at = None
        return results

    def end(self) -> None:
        """Commit, and wait for it."""
        self._batch.put(COMMIT)
        self._batch.run()

    def search_entry(self, text: str) -> Any:
        return to_tsvector(text)

    def search_query(self, phrases: list[Phrase]) -> str:
        return to_tsquery(phrases)


class ShortRead(PostgresTransaction):
    """A transaction that only reads, and ends with the first statements that are sent together.

    Then these, its beginning and its end are one round trip. Most work reads nothing more. If it
    does, `ReadGoesOn` is raised, and the work has to run again in a transaction that goes on.
    """

    __slots__ = ("_has_ended",)

    def __init__(self, batch: Batch, queries: Mapping[str, Query]) -> None:
        super().__init__(batch, queries)
        self._has_ended = False

    def together(self, steps: Sequence[Step]) -> list[list[Row]]:
        for step in steps:
            self.run(*step)
        self._batch.put(COMMIT)
        results = self.receive()[-len(steps) - 1 : -1]
        self._has_ended = True
        return [self._batch.rows(result) for result in results]

    def receive(self) -> list[PGresult]:
        if self._has_ended:
            raise ReadGoesOn
        return super().receive()

    def end(self) -> None:
        if not self._has_ended:
            super().end()


@lru_cache(maxsize=256)
def lock_id(name: str) -> int:
    """Return the number of an advisory lock.

    Two names with the same number wait for each other needlessly, which does no harm.
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
