"""Notifications between processes: LISTEN and NOTIFY.

A pooler that lends a connection for one transaction only does not pass them on. Then no process is
woken by another, and a waiter finds new rows by polling, which it does anyway.
"""

from __future__ import annotations

import logging
import threading

import psycopg

from tertulia.storage.notify import Notifier

CHANNEL = "tertulia"
_POLL_SECONDS = 0.5  # within this time the thread notices that the store was closed
_RECONNECT_SECONDS = 2.0  # the pause after a lost connection

log = logging.getLogger("tertulia.storage")


class Listener:
    """A thread with a connection of its own, started by the first wait."""

    def __init__(self, dsn: str, notifier: Notifier) -> None:
        self._dsn = dsn
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._listen, name="tertulia-notify", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            if self._thread is not None:
                self._thread.join()

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    self._receive(connection)
            except psycopg.Error as problem:
                log.debug(
                    "listening for notifications failed, reconnecting in %g s: %s",
                    _RECONNECT_SECONDS,
                    problem,
                )
                self._stopping.wait(_RECONNECT_SECONDS)

    def _receive(self, connection: psycopg.Connection) -> None:
        while not self._stopping.is_set():
            for notification in connection.notifies(timeout=_POLL_SECONDS):
                self._notifier.notify(notification.payload)
                if self._stopping.is_set():
                    return
