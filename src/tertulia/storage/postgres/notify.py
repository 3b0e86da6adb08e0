"""Bells between processes: LISTEN and NOTIFY.

A pooler that lends a connection for one transaction only does not pass them on. Then nobody is
woken, and whoever waits finds out by looking, which it does all the same.
"""

from __future__ import annotations

import logging
import threading

import psycopg

from tertulia.storage.notify import Notifier

CHANNEL = "tertulia"
_LOOK_SECONDS = 0.5  # so soon it is noticed that the store was closed
_REST_SECONDS = 2.0  # after a connection was lost

log = logging.getLogger("tertulia.storage")


class Listener:
    """A thread with a connection of its own, from the first time that somebody waits."""

    def __init__(self, dsn: str, notifier: Notifier) -> None:
        self._dsn = dsn
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stops = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stops.is_set():
                self._thread = threading.Thread(
                    target=self._listen, name="tertulia-bells", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _listen(self) -> None:
        while not self._stops.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    self._hear(connection)
            except psycopg.Error as problem:
                log.debug("bells of other processes are not heard for now: %s", problem)
                self._stops.wait(_REST_SECONDS)

    def _hear(self, connection: psycopg.Connection) -> None:
        while not self._stops.is_set():
            for notifications in connection.notifies(timeout=_LOOK_SECONDS):
                self._notifier.notify(notifications.payload)
                if self._stops.is_set():
                    return
