"""The checks around pages: Host, Origin, and the headers of every response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tertulia.http.guard import HEADERS, BrowserGuard
from tertulia.http.settings import HttpSettings

HOST = "127.0.0.1:8460"


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Cache-Control": "max-age=60"} if scope["path"] == "/script" else {}
    await PlainTextResponse(Request(scope).method, headers=headers)(scope, receive, send)


def ask(
    method: str = "GET",
    path: str = "/",
    hosts: tuple[str, ...] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
    host: str = HOST,
) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of a page behind the guard."""
    scope = {
        "type": "http", "method": method, "path": path, "scheme": "http", "query_string": b"",
        "server": ("127.0.0.1", 8460),
        "headers": [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in {"host": host, **headers}.items()
        ],
    }  # fmt: skip
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(BrowserGuard(page, HttpSettings(hosts=hosts))(scope, receive, send))
    sent = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], sent


@pytest.mark.parametrize(
    "host",
    [
        HOST, "localhost:8460", "tertulia.localhost:8460", "Tertulia.LOCALHOST", "[::1]:8460",
        "127.0.0.1", "bot.example.com", "BOT.example.com:443",
    ],
)  # fmt: skip
def test_own_hosts_are_answered(host: str) -> None:
    assert ask(hosts=("bot.example.com",), host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:8460", "127.0.0.1.evil.example", "localhost.evil.example",
        "evillocalhost", "10.0.0.1:8460", "[::1].evil.example", "bot.example.com",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_hosts_are_refused(host: str, method: str) -> None:
    """A domain that was pointed at this machine (DNS rebinding) is not one of its names."""
    status, headers = ask(method, host=host, headers={"sec_fetch_site": "same-origin"})
    assert status == 403
    assert headers["content-security-policy"] == HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin", "origin": f"http://{HOST}"},
        {"origin": f"http://{HOST}"},
    ],
)
def test_own_pages_may_change_things(headers: dict[str, str]) -> None:
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        assert ask(method, headers=headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": "same-site"},  # another port of this machine
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-site", "origin": f"http://{HOST}"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8460"},
        {"origin": "https://evil.example"},
    ],
)
def test_other_pages_may_change_nothing(headers: dict[str, str]) -> None:
    for method in ("POST", "DELETE", "PUT", "PATCH", "OPTIONS"):
        assert ask(method, headers=headers)[0] == 403
    assert ask("GET", headers=headers)[0] == 200


def test_every_response_has_the_headers() -> None:
    _, headers = ask()
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "require-trusted-types-for 'script'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert ask(path="/script")[1]["cache-control"] == "max-age=60"
