"""Webhooks: only signed and recent requests are read, and every answer has its outcome."""

from __future__ import annotations

import asyncio
import json

import pytest

from tertulia.errors import (
    AccessDenied,
    ConfigError,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms import webhook
from tertulia.platforms.base import Outgoing
from tertulia.platforms.webhook import SIGNATURE, TIMESTAMP, WINDOW_SECONDS, WebhookAdapter, sign
from tests.platforms.test_http_library import EndlessServer

SECRET = "webhook-secret-0123456789"
NOW = 1_763_251_200
BODY = json.dumps({"message_id": "1", "chat_id": "7", "text": "hello"}).encode()


def adapter(**options: object) -> WebhookAdapter:
    return WebhookAdapter(SECRET, now=lambda: NOW, **options)  # type: ignore[arg-type]


def signed(body: bytes, at: int = NOW, secret: str = SECRET) -> dict[str, str]:
    return {TIMESTAMP: str(at), SIGNATURE: sign(secret.encode(), str(at), body)}


def test_signed_request_becomes_a_message() -> None:
    incoming = adapter().read(signed(BODY), BODY)
    assert (incoming.text, incoming.message_id) == ("hello", "1")
    assert (incoming.source.platform, incoming.source.chat_id) == ("webhook", "7")
    assert incoming.source.user_id == "7"  # without a user the chat is the person


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(BODY, secret="another secret"),
        signed(b"another body"),
        signed(BODY, NOW - WINDOW_SECONDS - 1),
        signed(BODY, NOW + WINDOW_SECONDS + 1),
        {**signed(BODY), TIMESTAMP: "now"},
    ],
)
def test_wrong_or_old_signature_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(AccessDenied):
        adapter().read(headers, BODY)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"chat_id": "7", "text": "x"}', b"\xff"])
def test_invalid_body_is_a_config_error(body: bytes) -> None:
    with pytest.raises(ConfigError, match="invalid"):
        adapter().read(signed(body), body)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, RateLimited),
        (408, PlatformUnavailable),
        (503, PlatformUnavailable),
        (502, OutcomeUnknown),
        (504, OutcomeUnknown),
        (500, OutcomeUnknown),
        (413, TooLarge),
        (403, Refused),
    ],
)
def test_status_decides_whether_it_is_sent_again(status: int, error: type[PlatformError]) -> None:
    assert type(webhook._error_of(status, None)) is error


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("99999", 3600.0), ("-1", 1.0), ("soon", 1.0), (None, 1.0)]
)
def test_retry_after_is_limited(header: str | None, seconds: float) -> None:
    problem = webhook._error_of(429, header)
    assert getattr(problem, "retry_after") == seconds  # noqa: B009 — a field of the error's data


def test_message_was_sent_though_the_body_of_the_response_never_ends() -> None:
    async def send(url: str) -> None:
        webhook_adapter = adapter(url=url)
        try:
            async with asyncio.timeout(60):
                await webhook_adapter.send(Outgoing(delivery="d1", chat_id="7", text="hello"))
        finally:
            await webhook_adapter.close()

    with EndlessServer() as server:
        asyncio.run(send(server.url))


def test_without_url_nothing_is_sent() -> None:
    message = Outgoing(delivery="d1", chat_id="7", text="hello")
    with pytest.raises(Refused):
        asyncio.run(adapter().send(message))


def test_url_needs_http() -> None:
    with pytest.raises(ConfigError) as caught:
        adapter(url="ftp://example.org")
    assert caught.value.field == "url"
