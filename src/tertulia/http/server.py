"""Serving the application with uvicorn, beside a gateway that runs in the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn

from tertulia.errors import ConfigError
from tertulia.gateway.app import Gateway
from tertulia.http.app import application
from tertulia.http.settings import HttpSettings

_KEEP_ALIVE_SECONDS = 30
_CONNECTIONS = 2000


class Serving:
    """Where a server listens."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class _Server(uvicorn.Server):
    """Says when it listens, and leaves the signals of the process to whoever runs the gateway."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve(gateway: Gateway, settings: HttpSettings) -> AsyncIterator[Serving]:
    """Listen as long as the block lasts. The gateway itself is run by whoever made it."""
    listener = _bound(settings)
    app = application(gateway, settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        # What is being answered may go on for so long.
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        limit_concurrency=_CONNECTIONS,
        ws="none",
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    listens = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, listens}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        host, port = listener.getsockname()[:2]
        yield Serving(host, port)
    finally:
        listens.cancel()
        app.state.api.close()  # the server waits for every stream that is open
        server.should_exit = True
        await serving
        listener.close()


def _bound(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as problem:
        listener.close()
        raise ConfigError(
            f"The server cannot listen on {settings.host}:{settings.port}: {problem.strerror}.",
            hint="Choose another port, or end what listens there.",
            field="port",
        ) from problem
    listener.setblocking(False)
    return listener
