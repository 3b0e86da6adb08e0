"""A proxy before a PostgreSQL server whose connections a test can cut at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import psycopg

from tests.servers.no_delay import send_at_once

Cut = Literal["request", "answer", "farewell"]

# The message that a server sends to every client when it shuts down.
_SHUTDOWN_MESSAGE = (
    b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
)

# The time limit for something that must happen, also on a busy machine.
TIMEOUT = 60.0


class Proxy:
    """A proxy on loopback that forwards everything until a test cuts a connection."""

    def __init__(self, dsn: str, *, delay: float = 0.0) -> None:
        self._delay = delay
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
        self._host, self._port = str(parts["host"]), int(parts.get("port") or 5432)
        self._user, self._name = parts["user"], parts["dbname"]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        # How often a client requested a response, and so had to wait for one.
        self.round_trips = 0
        self.is_open = True
        self.was_cut = threading.Event()
        self._start_thread(self._accept)

    @property
    def address(self) -> str:
        port = self._listener.getsockname()[1]
        return f"postgresql://{self._user}@127.0.0.1:{port}/{self._name}?sslmode=disable"

    def cut_at_next(self, cut: Cut) -> None:
        """Cut the connection at the next request of the client.

        `request`: the server does not receive it. `answer`: the server receives it, the client does
        not receive the answer. `farewell`: the server does not receive it, and the client receives
        the message of a server that shuts down.
        """
        self.was_cut.clear()
        self._cut = cut

    def cut_all(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            _close(*line)

    def close(self) -> None:
        self.is_open = False
        _close(self._listener)
        self.cut_all()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if not self.is_open:
                _close(client)
                continue
            try:
                send_at_once(client)
                line = client, self._server()
            except OSError:  # one side is gone; the next connection is accepted all the same
                _close(client)
                continue
            with self._lock:
                self._lines.append(line)
            self._start_thread(self._pass_requests, *line)
            self._start_thread(self._pass_answers, *line)

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        requests = Requests()
        while data := client.recv(65_536):
            self.round_trips += requests.read(data)
            cut = self._cut
            if cut == "request":
                self._hang_up(client, server)
                return
            if cut == "farewell":
                client.sendall(
                    b"E" + (len(_SHUTDOWN_MESSAGE) + 4).to_bytes(4, "big") + _SHUTDOWN_MESSAGE
                )
                self._hang_up(client, server)
                return
            if cut == "answer":
                # The thread that forwards answers drops what comes next.
                self._cut = None
                with self._lock:
                    self._lines.remove((client, server))
            if self._delay:
                time.sleep(self._delay)
            server.sendall(data)
        _close(client, server)

    def _pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        while data := server.recv(65_536):
            with self._lock:
                is_dropped = (client, server) not in self._lines
            if is_dropped:
                self._hang_up(client, server)
                return
            client.sendall(data)
        _close(client, server)

    def _hang_up(self, *line: socket.socket) -> None:
        self._cut = None
        _close(*line)
        self.was_cut.set()

    def _server(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port), TIMEOUT)

    def _start_thread(self, work: Callable[..., None], *ends: socket.socket) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):  # the connection was cut
                work(*ends)

        threading.Thread(target=run, daemon=True).start()


class Requests:
    """A parser for the requests of one client, however the network has split them."""

    # Query, Sync and Flush: the server answers each of them.
    _SYNC = frozenset(b"SH")
    _ANSWERED = _SYNC | frozenset(b"Q")
    # Sent first, to request encryption. The startup message follows; it has no type byte either.
    _ENCRYPTION = (80_877_103, 80_877_104)

    def __init__(self) -> None:
        self._unread = b""
        self._is_started = False
        self._has_asked = False

    def read(self, data: bytes) -> int:
        """Return how many complete messages in the data so far request an answer."""
        self._unread += data
        requests = 0
        while (message := self._next()) is not None:
            if self._is_started:
                is_request = message[0] in self._ANSWERED
                # A second Sync or Flush with nothing new in between is not waited for.
                requests += is_request and not (message[0] in self._SYNC and self._has_asked)
                self._has_asked = is_request
            else:
                self._is_started = int.from_bytes(message[4:8], "big") not in self._ENCRYPTION
        return requests

    def _next(self) -> bytes | None:
        type_size = 1 if self._is_started else 0
        if len(self._unread) < type_size + 4:
            return None
        end = type_size + int.from_bytes(self._unread[type_size : type_size + 4], "big")
        if len(self._unread) < end:
            return None
        message, self._unread = self._unread[:end], self._unread[end:]
        return message


@contextmanager
def proxy(dsn: str, *, delay: float = 0.0) -> Iterator[Proxy]:
    """Yield a proxy before a server, which holds requests back for `delay` seconds; close it."""
    line = Proxy(dsn, delay=delay)
    try:
        yield line
    finally:
        line.close()


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
