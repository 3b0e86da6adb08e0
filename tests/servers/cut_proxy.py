"""A TCP proxy on loopback that a test can cut, and lead to another server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.servers.no_delay import send_at_once


class CutProxy:
    """Passes bytes to a port. While it is cut, connections are closed and none is accepted."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._is_closed = False
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and new ones at once."""
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                _shut_down(each)
            self._sockets.clear()

    def resume(self, target: int | None = None) -> None:
        """Pass bytes again, to another port if one is given."""
        with self._lock:
            self._target = target or self._target
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._is_closed = True
        with suppress(OSError):  # wakes the thread that accepts
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            with suppress(OSError):
                client, _ = self._listener.accept()
                if self._is_closed:
                    client.close()
                    return
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            suppress(OSError),  # one side is gone, so the other is closed too
            socket.create_connection(("127.0.0.1", self._target)) as server,
        ):
            send_at_once(client, server)
            self._pass_bytes(client, server)

    def _pass_bytes(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                return
            self._sockets |= {client, server}
        other = threading.Thread(target=_pump, args=(server, client), daemon=True)
        other.start()
        _pump(client, server)
        other.join()
        with self._lock:
            self._sockets -= {client, server}


@contextmanager
def cut_proxy(target: int) -> Iterator[CutProxy]:
    """Run a proxy until the end of the block."""
    proxy = CutProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    _shut_down(source)
    _shut_down(sink)


def _shut_down(each: socket.socket) -> None:
    """End both directions. The thread that serves the connection closes the socket."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
