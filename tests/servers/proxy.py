"""A line to a PostgreSQL server that a test can cut at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import psycopg

Cut = Literal["request", "answer", "farewell"]

# What a server says to everybody when it is told to stop.
_FAREWELL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"

# So long a test waits for what is bound to happen, however busy the machine.
PATIENCE = 60.0


class Proxy:
    """Listens on loopback and passes everything on, until it is told to cut."""

    def __init__(self, dsn: str) -> None:
        known = psycopg.conninfo.conninfo_to_dict(dsn)
        self._host, self._port = str(known["host"]), int(known.get("port") or 5432)
        self._user, self._name = known["user"], known["dbname"]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        # How often a client asked for an answer, and so had to wait for one.
        self.round_trips = 0
        self.is_open = True
        self.was_cut = threading.Event()
        self._begin(self._accept)

    @property
    def address(self) -> str:
        port = self._listener.getsockname()[1]
        return f"postgresql://{self._user}@127.0.0.1:{port}/{self._name}?sslmode=disable"

    def cut_at_next(self, cut: Cut) -> None:
        """Cut the line when the client next says something.

        `request`: the server does not hear it. `answer`: it does, and what it says is not heard.
        `farewell`: the server does not hear it; the client hears that the server goes.
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
            line = client, self._server()
            with self._lock:
                self._lines.append(line)
            self._begin(self._pass_requests, *line)
            self._begin(self._pass_answers, *line)

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        requests = Requests()
        while data := client.recv(65_536):
            self.round_trips += requests.read(data)
            cut = self._cut
            if cut == "request":
                self._hang_up(client, server)
                return
            if cut == "farewell":
                client.sendall(b"E" + (len(_FAREWELL) + 4).to_bytes(4, "big") + _FAREWELL)
                self._hang_up(client, server)
                return
            if cut == "answer":
                # The thread for the answers keeps back what comes next.
                self._cut = None
                with self._lock:
                    self._lines.remove((client, server))
            server.sendall(data)
        _close(client, server)

    def _pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        while data := server.recv(65_536):
            with self._lock:
                is_kept_back = (client, server) not in self._lines
            if is_kept_back:
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
        return socket.create_connection((self._host, self._port), PATIENCE)

    def _begin(self, work: Callable[..., None], *ends: socket.socket) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):  # the line was cut
                work(*ends)

        threading.Thread(target=run, daemon=True).start()


class Requests:
    """Reads along with what one client says, however the line has cut it into pieces."""

    # Query, Sync and Flush: the server answers when it hears one of them.
    _MORE = frozenset(b"SH")
    _ASKING = _MORE | frozenset(b"Q")
    # Sent first, to ask for encryption. What begins a session follows, and has no letter either.
    _ENCRYPTION = (80_877_103, 80_877_104)

    def __init__(self) -> None:
        self._unread = b""
        self._is_begun = False
        self._is_asked = False

    def read(self, data: bytes) -> int:
        """How many times it asks for an answer in messages that are complete now."""
        self._unread += data
        asked = 0
        while (message := self._next()) is not None:
            if self._is_begun:
                is_asking = message[0] in self._ASKING
                # Once more, with nothing new to be answered, is not waited for.
                asked += is_asking and not (message[0] in self._MORE and self._is_asked)
                self._is_asked = is_asking
            else:
                self._is_begun = int.from_bytes(message[4:8], "big") not in self._ENCRYPTION
        return asked

    def _next(self) -> bytes | None:
        letter = 1 if self._is_begun else 0
        if len(self._unread) < letter + 4:
            return None
        end = letter + int.from_bytes(self._unread[letter : letter + 4], "big")
        if len(self._unread) < end:
            return None
        message, self._unread = self._unread[:end], self._unread[end:]
        return message


@contextmanager
def proxy(dsn: str) -> Iterator[Proxy]:
    """A line to a server, gone with the block."""
    line = Proxy(dsn)
    try:
        yield line
    finally:
        line.close()


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
