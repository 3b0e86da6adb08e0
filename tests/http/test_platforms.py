"""Calls of a chat platform reach its adapter, which decides about them."""

from __future__ import annotations

import asyncio

import httpx2

from tertulia.errors import AccessDenied
from tertulia.platforms.base import HttpRequest, HttpResponse, Outgoing
from tertulia.platforms.push import PushAdapter
from tests.http.served_gateway import served_adapter


class Hook(PushAdapter):
    """An adapter that answers a challenge and takes requests with a secret."""

    name = "hook"

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return HttpResponse(body=request.query["challenge"].encode())
        if request.headers.get("x-secret") != "right":
            raise AccessDenied("The secret is wrong.", hint="Send the right one.")
        self.bodies.append(request.body)
        return HttpResponse(status=202, body=b"{}", content_type="application/json")

    async def send(self, message: Outgoing) -> None:
        return


async def call(adapter: Hook, method: str, path: str, **values: object) -> httpx2.Response:
    async with served_adapter(adapter) as url, httpx2.AsyncClient(base_url=url) as client:
        return await client.request(method, path, **values)  # type: ignore[arg-type]


def test_request_reaches_the_adapter() -> None:
    hook = Hook()
    headers = {"X-Secret": "right"}
    response = asyncio.run(call(hook, "POST", "/platforms/hook", content=b"raw", headers=headers))
    assert (response.status_code, response.content) == (202, b"{}")
    assert response.headers["content-type"] == "application/json"
    assert hook.bodies == [b"raw"]


def test_challenge_is_answered_as_it_is() -> None:
    response = asyncio.run(call(Hook(), "GET", "/platforms/hook?challenge=42"))
    assert (response.status_code, response.text) == (200, "42")


def test_adapter_refuses_a_request() -> None:
    response = asyncio.run(call(Hook(), "POST", "/platforms/hook", content=b"raw"))
    assert response.status_code == 403


def test_platform_that_is_not_served_is_not_found() -> None:
    assert asyncio.run(call(Hook(), "POST", "/platforms/telegram")).status_code == 404
