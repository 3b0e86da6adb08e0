"""The webhook keeps every promise of an adapter over real sockets, and checks signatures."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tertulia.errors import AccessDenied, ConfigError, PlatformUnavailable
from tertulia.platforms.base import Outgoing
from tertulia.platforms.webhook import SIGNATURE, TIMESTAMP, WebhookAdapter, sign
from tertulia.testing import AdapterContract
from tertulia.testing.adapter_contract import AdapterFixture, SendFailure
from tests.http.served_gateway import PATIENCE, served_adapter, served_gateway

SECRET = "webhook-secret-0123456789"


class OtherProgram:
    """The program that answers are posted to; it ignores repeats, and fails as `mishap` says."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, Any], dict[str, str], bytes]] = []
        self.texts: dict[str, str] = {}
        self.mishap: SendFailure | None = None

    async def take(self, request: Request) -> Response:
        body = await request.body()
        payload = json.loads(body)
        self.requests.append((payload, dict(request.headers), body))
        if self.mishap == "unknown":
            await asyncio.Event().wait()
        status = {"unavailable": 503, "rate_limited": 429, "refused": 403, "too_large": 413}
        if self.mishap is not None:
            return Response(status_code=status[self.mishap], headers={"Retry-After": "7"})
        self.texts.setdefault(request.headers["idempotency-key"], payload["text"])
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


class WebhookScene(AdapterFixture):
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
        assert len(self._other.texts) == count
        return list(self._other.texts.values())

    def spoil(self, mishap: SendFailure) -> None:
        self._other.mishap = mishap
        if mishap == "unknown":
            # A short timeout only where no answer comes: any other could be late on a busy machine.
            assert isinstance(self.adapter, WebhookAdapter)
            self.adapter._timeout = 0.5

    def tries(self) -> int:
        return len(self._other.requests)


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    return {TIMESTAMP: timestamp, SIGNATURE: sign(secret.encode(), timestamp, body)}


class TestWebhook(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        other = OtherProgram()
        async with other.running() as target:
            adapter = WebhookAdapter(
                SECRET, url=target, timeout_seconds=PATIENCE, is_idempotent=True
            )
            async with served_adapter(adapter) as url:
                yield WebhookScene(f"{url}/webhook", adapter, other)


class TestSignatures:
    BODY = b'{"message_id": "1", "chat_id": "c", "text": "hola"}'

    def read(self, headers: dict[str, str], body: bytes = BODY) -> str | None:
        return WebhookAdapter(SECRET, now=lambda: 1_000_000.0).read(headers, body).text

    @pytest.mark.parametrize("age", [0, 299, -299])
    def test_valid_signature_is_accepted(self, age: int) -> None:
        assert self.read(signed(self.BODY, at=1_000_000 - age)) == "hola"

    @pytest.mark.parametrize("age", [301, -301])
    def test_old_or_future_timestamp_is_refused(self, age: int) -> None:
        with pytest.raises(AccessDenied):
            self.read(signed(self.BODY, at=1_000_000 - age))

    def test_changed_request_is_refused(self) -> None:
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

    def test_invalid_body_is_reported(self) -> None:
        for body in (b"", b"[]", b'{"text": 1}', b"\xff"):
            with pytest.raises(ConfigError):
                self.read(signed(body, at=1_000_000), body)

    def test_delivery_is_signed(self) -> None:
        async def run() -> OtherProgram:
            other = OtherProgram()
            async with other.running() as target:
                adapter = WebhookAdapter(SECRET, url=target)
                await adapter.send(Outgoing(delivery="d-1", chat_id="c", text="hola"))
                await adapter.close()
            return other

        ((payload, headers, body),) = asyncio.run(run()).requests
        assert payload == {"delivery": "d-1", "chat_id": "c", "thread_id": None, "text": "hola"}
        assert headers["idempotency-key"] == "d-1"
        stamp = headers[TIMESTAMP.lower()]
        assert headers[SIGNATURE.lower()] == sign(SECRET.encode(), stamp, body)

    def test_unreachable_webhook_can_be_retried(self) -> None:
        async def run() -> None:
            adapter = WebhookAdapter(SECRET, url="http://127.0.0.1:9/hook")
            try:
                await adapter.send(Outgoing(delivery="d-1", chat_id="c", text="hola"))
            finally:
                await adapter.close()

        with pytest.raises(PlatformUnavailable):
            asyncio.run(run())

    def test_timestamp_of_thousands_of_digits_is_refused(self) -> None:
        adapter = WebhookAdapter(SECRET)
        for timestamp in ("9" * 5000, "9" * 16):
            headers = {TIMESTAMP: timestamp, SIGNATURE: sign(SECRET.encode(), timestamp, b"{}")}
            with pytest.raises(AccessDenied):
                adapter.read(headers, b"{}")


def test_gateway_without_webhook_or_pages_answers_404(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server, server.client("ana") as client:
        assert client.post("/webhook", json={}).status_code == 404
        assert client.post("/web/den/messages", json={"text": "hola"}).status_code == 404
        assert client.get("/web/den/events").status_code == 404
