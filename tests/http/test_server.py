"""The server: it binds its address, and ends open streams when it stops."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.applications import Starlette

from tertulia import aio
from tertulia.agents import ParrotAgent
from tertulia.errors import ConfigError
from tertulia.gateway.app import Gateway
from tertulia.http import HttpSettings, Token, serve
from tertulia.http.server import ServerAddress
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import served_gateway
from tests.servers.ports import free_port


def test_stopping_server_ends_open_pages(tmp_path: Path) -> None:
    adapters = [WebAdapter()]
    # A server that waited for the page would not stop within the PATIENCE of `served_gateway`.
    with (
        ThreadPoolExecutor(1) as pool,
        served_gateway(tmp_path / "talk.db", adapters=adapters, drain_seconds=3600) as server,
    ):
        connected = threading.Event()

        def read() -> None:
            with server.client("ana") as client, client.stream("GET", "/web/c/events") as stream:
                for _ in stream.iter_lines():
                    connected.set()

        reading = pool.submit(read)
        assert connected.wait(60)
    reading.result(60)


def test_address_is_a_url() -> None:
    assert ServerAddress("127.0.0.1", 8460, Starlette()).url == "http://127.0.0.1:8460"
    assert ServerAddress("::1", 8460, Starlette()).url == "http://[::1]:8460"


def test_token_without_a_value_leaves_the_port_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_TOKEN_VALUE", raising=False)
    port = free_port()
    token = Token(name="ann", secret_env="TEST_TOKEN_VALUE")

    async def run() -> None:
        async with aio.open(tmp_path / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [])
            async with serve(gateway, HttpSettings(port=port, tokens=(token,))):
                pass

    with pytest.raises(ConfigError, match="TEST_TOKEN_VALUE") as caught:
        asyncio.run(run())
    assert caught.value.field == "http.tokens"
    with socket.socket() as listener:  # without SO_REUSEADDR: any other socket would be in the way
        listener.bind(("127.0.0.1", port))


def test_port_in_use_is_reported(tmp_path: Path) -> None:
    async def run(port: int) -> None:
        async with aio.open(tmp_path / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [])
            async with serve(gateway, HttpSettings(port=port)):
                pass

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}") as caught:
            asyncio.run(run(port))
    assert caught.value.field == "port"
