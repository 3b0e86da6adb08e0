"""Notifications between processes: LISTEN and NOTIFY.

A thread sends them, apart from the transactions: NOTIFY in a transaction that writes would make all
commits wait for one lock, and after it would be a round trip of its own for each message. It sends
what has come together while it was busy, and nothing if no other process listens.

A pooler that lends a connection for one transaction only does not pass them on. Then no process is
woken by another, and a waiter finds new rows by polling, which it does anyway.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg

from tertulia.storage.notify import Notifier

CHANNEL = "tertulia"
_RECONNECT_SECONDS = 2.0  # the pause after a lost connection
# The pause after sending, in which more comes together: each notification wakes all other
# processes. The first one after a pause is sent at once.
_SEND_SECONDS = 0.02
_LOOK_SECONDS = 1.0  # how often the thread looks whether another process listens
LISTENER_NAME = "tertulia-listener"
# The server hides the name of a program that another user runs: that may be a listener too.
_OTHER_LISTENERS = f"""select exists (
    select 1 from pg_stat_activity where datname = current_database() and pid <> %s
        and (application_name = '{LISTENER_NAME}' or application_name is null)
)"""
_SEND = f"select pg_notify('{CHANNEL}', channel) from unnest(%s::text[]) as channel"

log = logging.getLogger("tertulia.storage")


class Listener:
    """A thread with a connection of its own, started by the first wait."""

    def __init__(self, dsn: str, notifier: Notifier) -> None:
        self._dsn = dsn
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # The thread waits for the server, and for a byte that `stop` sends from the first of these.
        self._stop_sockets: tuple[socket.socket, socket.socket] | None = None
        self.pid = 0  # of the server's process that listens for this handle; 0 if none does

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._stop_sockets = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._listen,
                    args=(self._stop_sockets[1],),
                    name="tertulia-notify",
                    daemon=True,
                )
                self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            if self._thread is not None and self._stop_sockets is not None:
                self._stop_sockets[0].send(b"\0")
                self._thread.join()
                for end in self._stop_sockets:
                    end.close()
                self._stop_sockets = None

    def _listen(self, stop: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(
                    self._dsn,
                    autocommit=True,
                    connect_timeout=10,
                    application_name=LISTENER_NAME,
                ) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    self.pid = connection.info.backend_pid
                    self._receive(connection, stop)
            except psycopg.Error as problem:
                log.debug(
                    "listening for notifications failed, reconnecting in %g s: %s",
                    _RECONNECT_SECONDS,
                    problem,
                )
                self._stopping.wait(_RECONNECT_SECONDS)

    def _receive(self, connection: psycopg.Connection, stop: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(stop, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for notification in connection.notifies(timeout=0):
                    self._notifier.notify(notification.payload)
                selector.select()


class Sender:
    """A thread that notifies other processes, started by the first notification.

    `connect` lends a connection, `pid` is that of the own listener, which needs no notification.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[psycopg.Connection[tuple[object, ...]]]],
        pid: Callable[[], int],
        failures: tuple[type[Exception], ...],
    ) -> None:
        self._connect = connect
        self._pid = pid
        self._failures = failures
        self._changed = threading.Condition()
        self._channels: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._look_at = 0.0
        self._has_listeners = True

    def put(self, channel: str) -> None:
        """Send a notification soon."""
        if channel in self._channels:
            return  # it will be sent, after what the caller has committed
        with self._changed:
            self._channels.add(channel)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="tertulia-notifications", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Send what is left, and end the thread."""
        with self._changed:
            self._stopping.set()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (channels := self._take()) is not None:
            try:
                self._send(sorted(channels))
            except self._failures as problem:
                # Waiters poll anyway.
                log.debug("notification of other processes failed, they will poll: %s", problem)
            self._stopping.wait(_SEND_SECONDS)

    def _take(self) -> set[str] | None:
        """Wait for notifications to send; return None when the thread should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._channels or self._stopping.is_set())
            channels, self._channels = self._channels, set()
            return channels or None

    def _send(self, channels: list[str]) -> None:
        has_to_look = time.monotonic() >= self._look_at
        if not has_to_look and not self._has_listeners:
            return
        with self._connect() as connection:
            if has_to_look:
                row = connection.execute(_OTHER_LISTENERS, (self._pid(),)).fetchone()
                self._has_listeners = bool(row and row[0])
                self._look_at = time.monotonic() + _LOOK_SECONDS
            if self._has_listeners:
                connection.execute(_SEND, (channels,))
