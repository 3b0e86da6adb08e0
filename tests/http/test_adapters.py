"""Web and webhook keep every promise of an adapter, over real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tertulia import aio
from tertulia.agents import ParrotAgent
from tertulia.errors import AccessDenied, ConfigError, PlatformUnavailable
from tertulia.gateway.app import Gateway
from tertulia.http import HttpSettings, serve
from tertulia.platforms.base import Adapter, Outgoing
from tertulia.platforms.web import WebAdapter
from tertulia.platforms.webhook import SIGNATURE, TIMESTAMP, WebhookAdapter, sign
from tertulia.testing import AdapterContract
from tertulia.testing.adapter_contract import Mishap, Scene
from tests.http.scene import PATIENCE, SECRETS, TOKENS

SECRET = "webhook-secret-0123456789"


@asynccontextmanager
async def served(adapter: Adapter) -> AsyncIterator[str]:
    """A server with that adapter; the test itself listens, not the gateway."""
    with TemporaryDirectory() as place:
        async with aio.open(Path(place) / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [adapter])
            async with serve(
                gateway, HttpSettings(port=0, tokens=TOKENS, drain_seconds=1)
            ) as serving:
                yield serving.url


class WebScene(Scene):
    chat = "chat-1"
    account = "ana"
    mishaps = ("unavailable",)

    def __init__(self, url: str, adapter: WebAdapter) -> None:
        self.adapter = adapter
        self._client = httpx2.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {SECRETS['ana']}"}, timeout=PATIENCE
        )
        self._texts: list[str] = []
        self._came = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(ready))
        await ready.wait()

    async def _read(self, ready: asyncio.Event) -> None:
        async with self._client.stream("GET", f"/web/{self.chat}/events", timeout=None) as answer:
            async for line in answer.aiter_lines():
                ready.set()
                if line.startswith("data: ") and "delivery" in (data := json.loads(line[6:])):
                    self._texts.append(data["text"])
                    self._came.set()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()

    async def write(self, text: str, message_id: str) -> bool:
        body = {"text": text, "message_id": message_id}
        answer = await self._client.post(f"/web/{self.chat}/messages", json=body)
        return answer.status_code == 202

    async def arrived(self, count: int) -> list[str]:
        while len(self._texts) < count:
            await self._came.wait()
            self._came.clear()
        return self._texts

    def spoil(self, mishap: Mishap) -> None:
        assert isinstance(self.adapter, WebAdapter)
        self.adapter._streams.clear()

    def tries(self) -> int:
        return 0


class TestWeb(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[Scene]:
        adapter = WebAdapter()
        async with served(adapter) as url:
            scene = WebScene(url, adapter)
            await scene.open()
            try:
                yield scene
            finally:
                await scene.close()


class OtherProgram:
    """What is posted to; it drops what it has had, and does what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, Any], dict[str, str], bytes]] = []
        self.had: dict[str, str] = {}
        self.mishap: Mishap | None = None
        self._held = asyncio.Event()

    async def take(self, request: Request) -> Response:
        body = await request.body()
        given = json.loads(body)
        self.seen.append((given, dict(request.headers), body))
        if self.mishap == "unknown":
            await asyncio.Event().wait()
        status = {"unavailable": 503, "rate_limited": 429, "refused": 403, "too_large": 413}
        if self.mishap is not None:
            return Response(status_code=status[self.mishap], headers={"Retry-After": "7"})
        self.had.setdefault(request.headers["idempotency-key"], given["text"])
        return Response(status_code=200)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = Starlette(routes=[Route("/hook", self.take, methods=["POST"])])
        config = uvicorn.Config(
            app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve())
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/hook"
        finally:
            server.should_exit = True
            await serving


class WebhookScene(Scene):
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, url: str, adapter: WebhookAdapter, other: OtherProgram) -> None:
        self.adapter = adapter
        self._url = url
        self._other = other

    async def write(self, text: str, message_id: str) -> bool:
        body = json.dumps({"text": text, "message_id": message_id, "chat_id": self.chat}).encode()
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            answer = await client.post(self._url, content=body, headers=signed(body))
        return answer.status_code == 202

    async def arrived(self, count: int) -> list[str]:
        assert len(self._other.had) == count
        return list(self._other.had.values())

    def spoil(self, mishap: Mishap) -> None:
        self._other.mishap = mishap
        if mishap == "unknown":
            # Only where no answer comes: any other could be late on a busy machine.
            assert isinstance(self.adapter, WebhookAdapter)
            self.adapter._timeout = 0.5

    def tries(self) -> int:
        return len(self._other.seen)


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    return {TIMESTAMP: timestamp, SIGNATURE: sign(secret.encode(), timestamp, body)}


class TestWebhook(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[Scene]:
        other = OtherProgram()
        async with other.running() as target:
            adapter = WebhookAdapter(
                SECRET, url=target, timeout_seconds=PATIENCE, is_idempotent=True
            )
            async with served(adapter) as url:
                yield WebhookScene(f"{url}/webhook", adapter, other)


class TestSignatures:
    BODY = b'{"message_id": "1", "chat_id": "c", "text": "hola"}'

    def read(self, headers: dict[str, str], body: bytes = BODY) -> str | None:
        return WebhookAdapter(SECRET, now=lambda: 1_000_000.0).read(headers, body).text

    @pytest.mark.parametrize("age", [0, 299, -299])
    def test_a_right_one_is_taken(self, age: int) -> None:
        assert self.read(signed(self.BODY, at=1_000_000 - age)) == "hola"

    @pytest.mark.parametrize("age", [301, -301])
    def test_an_old_one_is_not(self, age: int) -> None:
        with pytest.raises(AccessDenied):
            self.read(signed(self.BODY, at=1_000_000 - age))

    def test_what_was_changed_is_not(self) -> None:
        right = signed(self.BODY, at=1_000_000)
        wrong: list[tuple[dict[str, str], bytes]] = [
            (right, self.BODY.replace(b"hola", b"hole")),
            ({**right, TIMESTAMP: "1000001"}, self.BODY),
            ({**right, SIGNATURE: right[SIGNATURE][:-1] + "é"}, self.BODY),
            ({**right, SIGNATURE: ""}, self.BODY),
            ({}, self.BODY),
            (signed(self.BODY, at=1_000_000, secret="another-secret-0123"), self.BODY),
        ]
        for headers, body in wrong:
            with pytest.raises(AccessDenied) as caught:
                self.read(headers, body)
            assert SECRET not in str(caught.value)

    def test_nonsense_is_told(self) -> None:
        for body in (b"", b"[]", b'{"text": 1}', b"\xff"):
            with pytest.raises(ConfigError):
                self.read(signed(body, at=1_000_000), body)

    def test_what_is_sent_is_signed(self) -> None:
        async def run() -> OtherProgram:
            other = OtherProgram()
            async with other.running() as target:
                adapter = WebhookAdapter(SECRET, url=target)
                await adapter.send(Outgoing(delivery="d-1", chat_id="c", text="hola"))
                await adapter.close()
            return other

        ((given, headers, body),) = asyncio.run(run()).seen
        assert given == {"delivery": "d-1", "chat_id": "c", "thread_id": None, "text": "hola"}
        assert headers["idempotency-key"] == "d-1"
        stamp = headers[TIMESTAMP.lower()]
        assert headers[SIGNATURE.lower()] == sign(SECRET.encode(), stamp, body)

    def test_a_webhook_that_does_not_run_may_be_tried_again(self) -> None:
        async def run() -> None:
            adapter = WebhookAdapter(SECRET, url="http://127.0.0.1:9/hook")
            try:
                await adapter.send(Outgoing(delivery="d-1", chat_id="c", text="hola"))
            finally:
                await adapter.close()

        with pytest.raises(PlatformUnavailable):
            asyncio.run(run())
