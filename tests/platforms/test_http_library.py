"""The HTTP library of the adapters: late, named when it is missing, without secrets in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tertulia.errors import ConfigError, OutcomeUnknown, PlatformError, PlatformUnavailable
from tertulia.platforms.http_library import (
    MAX_SENDS,
    HttpApi,
    load_library,
    may_get_credentials,
)
from tertulia.platforms.matrix.client_api import HomeserverApi
from tests.servers.scripted_http import Request, Response, ScriptedServer


def test_missing_module_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(ConfigError, match="Discord needs no_such_module") as caught:
        load_library("Discord", modules=("no_such_module",))
    assert caught.value.hint is not None
    assert "Install it: " in caught.value.hint


def test_log_filter_is_added_once_and_sees_every_line(caplog: pytest.LogCaptureFixture) -> None:
    def hide(record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage().replace("secret", "[hidden]"), ()
        return True

    logger = logging.getLogger("httpx2")
    before = list(logger.filters)
    try:
        for _ in range(2):
            load_library("Telegram", log_filter=hide)
        assert logger.filters == [*before, hide]
        with caplog.at_level(logging.INFO, "httpx2"):
            logger.info("GET /bot%s/getMe", "secret")
        assert caplog.messages == ["GET /bot[hidden]/getMe"]
    finally:
        for name in ("httpx2", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy"):
            logging.getLogger(name).removeFilter(hide)


class ExampleApi(HttpApi):
    service = "Example"

    def __init__(self, base_url: str) -> None:
        super().__init__(base_url, lambda: load_library("Signal"))

    async def call(self, method: str, path: str, *, seconds: float) -> None:
        await self._request(method, f"{self._base_url}{path}", seconds=seconds)


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b" "
        await asyncio.sleep(0.001)


class EndlessServer(ScriptedServer):
    """Answers with a body that never ends, and never pauses for long."""

    def operation_of(self, request: Request) -> str:
        return request.path

    async def respond(self, request: Request) -> Response:
        return Response(stream=_endless())


@pytest.mark.parametrize(
    ("new_api", "options", "error"),
    [
        (ExampleApi, {}, OutcomeUnknown),
        (lambda url: HomeserverApi(url, "x"), {}, OutcomeUnknown),
        (lambda url: HomeserverApi(url, "x"), {"is_read": True}, PlatformUnavailable),
    ],
)
def test_body_that_never_ends_is_no_answer(
    new_api: Callable[[str], ExampleApi | HomeserverApi],
    options: dict[str, Any],
    error: type[PlatformError],
) -> None:
    async def run(url: str) -> None:
        api = new_api(url)
        try:
            async with asyncio.timeout(60):
                with pytest.raises(error, match="ReadTimeout"):
                    await api.call("GET", "/", seconds=1.0, **options)
        finally:
            await api.close()

    with EndlessServer() as server:
        asyncio.run(run(server.url))


def test_api_opens_one_client_and_closes_it() -> None:
    async def run() -> None:
        api = HttpApi("http://127.0.0.1:1/", lambda: load_library("Signal"), {"Host": "localhost"})
        assert repr(api) == "<HttpApi http://127.0.0.1:1>"
        await api.close()
        client = api.open_client()
        assert client is api.open_client()
        assert client.headers["Host"] == "localhost"
        timeout = api._timeout(30)
        assert (timeout.read, timeout.connect) == (30, 10)
        await api.close()
        assert client.is_closed
        assert api.open_client() is not client
        await api.close()

    asyncio.run(run())


def test_api_is_busy_while_every_send_is_in_progress() -> None:
    async def run() -> None:
        api = HttpApi("http://127.0.0.1:1", lambda: load_library("Signal"))
        for _ in range(MAX_SENDS):
            assert not api.is_busy
            await api._room.acquire()
        assert api.is_busy

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://files.example.com/a", True),
        ("https://example.com/a", True),
        ("http://files.example.com/a", False),
        ("https://files.example.com.evil.org/a", False),
        ("https://notexample.com/a", False),
        ("http://127.0.0.1:8080/a", True),
        ("https://127.0.0.1/a", False),
        ("ftp://127.0.0.1/a", False),
        ("https://[files.example.com/a", False),
        ("", False),
    ],
)
def test_credentials_go_only_to_hosts_of_the_platform(url: str, is_allowed: bool) -> None:
    base_url = "http://127.0.0.1:9999"
    assert may_get_credentials(url, base_url, ("example.com",)) is is_allowed
