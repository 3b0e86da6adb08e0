"""A line to a PostgreSQL server that a test can cut at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import psycopg

Cut = Literal["request", "answer"]

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
        self._is_answered = True
        # How often a client said something after it had heard the server.
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
        while data := client.recv(65_536):
            self.round_trips += self._is_answered
            self._is_answered = False
            cut = self._cut
            if cut == "request":
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
            self._is_answered = True
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
