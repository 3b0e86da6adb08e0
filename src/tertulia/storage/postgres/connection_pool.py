"""The connections of a store: psycopg's pool, with a few ready ones in front of it.

To take a connection out of the pool and to put it back took a sixth of the processor time of a
turn. So they are not put back, and the next caller takes the one that was used last: its process of
the server has planned the statements. Those that were not needed for some seconds go back to the
pool. Everything else is the pool's: opening, replacing lost ones, callers that wait, closing those
that nobody needs (decision 0056).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from tertulia.storage.postgres.batch import BatchConnection

MAX_CONNECTIONS: Final = 16
_KEPT: Final = 4  # connections that are ready, however long they were not needed
_UNUSED_SECONDS: Final = 5.0
_LOOK_EVERY: Final = 64  # uses of a connection
_POOL_SECONDS: Final = 2.0  # the pool is asked for a connection for so long, then asked again
# After so many uses a connection goes back to the pool, which replaces it if it is an hour old.
_USES: Final = 1_000
_IDLE: Final = TransactionStatus.IDLE


class Connections:
    """Lends connections to the threads of this process."""

    def __init__(self, dsn: str, options: dict[str, Any], busy_seconds: float) -> None:
        self._busy_seconds = busy_seconds
        self._ready: list[BatchConnection] = []
        self._waiting = 0  # callers that ask the pool
        self._lock = threading.Lock()
        self._pool: ConnectionPool[BatchConnection] = ConnectionPool(
            dsn,
            connection_class=BatchConnection,
            min_size=1,
            max_size=MAX_CONNECTIONS,
            # The pool doubles its pauses while the server is down, and would sleep long after it is
            # up again.
            reconnect_timeout=_POOL_SECONDS / 2,
            kwargs=options,
            open=True,
        )

    def take(self) -> BatchConnection:
        """Return a connection that nobody else uses; raise PoolTimeout after `busy_seconds`."""
        try:
            return self._ready.pop()
        except IndexError:
            pass
        with self._lock:
            self._waiting += 1
        try:
            return self._take_from_pool()
        finally:
            with self._lock:
                self._waiting -= 1

    def put_back(self, connection: BatchConnection) -> None:
        """Take back a connection, which is outside of a transaction unless it was lost."""
        connection.uses += 1
        if connection.uses % _USES == 0 or connection.pgconn.transaction_status != _IDLE:
            self._pool.putconn(connection)
            return
        connection.used_at = time.monotonic()
        self._ready.append(connection)
        # Whoever waits has counted itself before it looked for a ready connection. Either it has
        # seen this one, or it is counted here and gets one from the pool.
        if self._waiting:
            self._give_back(-1)
        elif connection.uses % _LOOK_EVERY == 0 and len(self._ready) > _KEPT:
            self._give_back_unused(connection.used_at - _UNUSED_SECONDS)

    def _give_back_unused(self, since: float) -> None:
        with suppress(IndexError):  # another thread has taken the last one
            if self._ready[0].used_at < since:
                self._give_back(0)

    def _give_back(self, place: int) -> None:
        """Give the ready connection at a place of the list back to the pool."""
        try:
            connection = self._ready.pop(place)
        except IndexError:  # another thread has taken it
            return
        self._pool.putconn(connection)

    @contextmanager
    def borrowed(self) -> Iterator[BatchConnection]:
        """Lend a connection for a block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    def close(self) -> None:
        """Close all connections; nobody uses one any more."""
        while self._ready:
            self._pool.putconn(self._ready.pop())
        self._pool.close()

    def _take_from_pool(self) -> BatchConnection:
        """Ask the pool in several attempts: each makes it try to connect."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            if self._ready:
                try:
                    return self._ready.pop()
                except IndexError:
                    pass
            left = max(deadline - time.monotonic(), 0.01)
            try:
                return self._pool.getconn(min(left, _POOL_SECONDS))
            except PoolTimeout:
                if left <= _POOL_SECONDS:
                    message = f"no connection was free after {self._busy_seconds:g} seconds"
                    raise PoolTimeout(message) from None
