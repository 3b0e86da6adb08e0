"""The proxy that a test can cut: what it passes, and that it leaves no socket open."""

from __future__ import annotations

import gc
import socket
import threading

from tests.servers.cut_proxy import CutProxy, cut_proxy


def _answer(proxy: CutProxy, text: bytes) -> bytes:
    """Return what comes back through the proxy; nothing if the connection is closed."""
    with socket.create_connection(("127.0.0.1", proxy.port), 60) as client:
        try:
            client.sendall(text)
            return client.recv(100)
        except ConnectionError:
            return b""


def _echo(listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client:
            client.sendall(client.recv(100))


def test_a_connection_that_comes_while_the_proxy_is_cut_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = threading.Thread(target=_echo, args=(listener,))
        server.start()
        with cut_proxy(port) as proxy:
            assert _answer(proxy, b"before") == b"before"
            proxy.cut()
            assert _answer(proxy, b"cut") == b""
            proxy.resume()
            assert _answer(proxy, b"after") == b"after"
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    # A socket that was left open is an error here, and not in whichever test runs next.
    gc.collect()


def test_a_server_that_is_gone_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with cut_proxy(port) as proxy:
        assert _answer(proxy, b"hello") == b""
