"""Serve the application with uvicorn, in the same event loop as its gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tertulia.errors import ConfigError
from tertulia.gateway.app import Gateway
from tertulia.http.app import Pages, application
from tertulia.http.connections import ConnectionTable, LimitedProtocol
from tertulia.http.settings import HttpSettings

_KEEP_ALIVE_SECONDS = 30
# Connections that the system keeps until they are accepted.
_BACKLOG = 2048
# asyncio accepts up to this many in one round of the event loop, before it runs anything else. If
# no descriptor is left, it tries, and logs, as many once a second.
_ACCEPTS_PER_ROUND = 8


class ServerAddress:
    """The address a server listens on, and the application that it serves."""

    def __init__(self, host: str, port: int, app: Starlette) -> None:
        self.host = host
        self.port = port
        self.app = app

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class _Server(uvicorn.Server):
    """A server that signals when it listens, and leaves process signals to the gateway's owner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio has one number for both; the length of the queue can be set again.
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        self.is_listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve(
    gateway: Gateway,
    settings: HttpSettings,
    *,
    pages: Pages | None = None,
    configuration: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[ServerAddress]:
    """Listen for the duration of the block. The caller runs the gateway itself.

    `pages` makes the application that is served below `/console`, and `configuration` are the
    settings that it shows; see `application`.
    Raises `ConfigError` if the address cannot be used, or the variable of a token is empty.
    """
    app = application(gateway, settings, pages=pages, configuration=configuration)
    listener = _bind(settings)
    table = ConnectionTable(settings, _descriptor_limit())
    protocol: Any = partial(LimitedProtocol, table=table)
    config = uvicorn.Config(
        app,
        http=protocol,
        backlog=_ACCEPTS_PER_ROUND,
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=list(settings.proxies),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ws="none",
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    listening = asyncio.create_task(server.is_listening.wait())
    try:
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        host, port = listener.getsockname()[:2]
        yield ServerAddress(host, port, app)
    finally:
        listening.cancel()
        app.state.api.start_draining()  # the server waits until every open stream ends
        # Requests that are being answered may take this long to finish. If the gateway has stopped,
        # its turns are over, and only the rest of its time is left.
        seconds = settings.drain_seconds
        if gateway.drain_deadline is not None:
            seconds = min(seconds, gateway.drain_seconds_left())
        config.timeout_graceful_shutdown = max(1, round(seconds))
        server.should_exit = True
        await serving
        listener.close()


def _bind(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Only for a socket that names its protocol does asyncio send small responses without delay.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as problem:
        listener.close()
        raise ConfigError(
            f"The server cannot listen on {settings.host}:{settings.port}: {problem.strerror}.",
            hint="Choose another port, or stop the program that listens there.",
            field="port",
        ) from problem
    listener.setblocking(False)
    return listener


def _descriptor_limit() -> int | None:
    """Return how many files and sockets this process may have open; None if it cannot be known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
