"""The scripted server leaves nothing behind, whenever it is stopped."""

from __future__ import annotations

import gc
import socket
import warnings

import pytest

from tests.servers.telegram import TelegramServer


def test_server_that_stops_while_somebody_connects_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a later test fails, with a warning about a socket that it never saw."""
    warned: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda problem: warned.append(str(problem)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(10):
            with TelegramServer() as server:
                clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
            for client in clients:
                client.close()
            del server
            gc.collect()
    assert warned == []
