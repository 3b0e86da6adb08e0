"""Another program: signed requests in both directions.

Every request carries the second it was made in and a signature of both:

    X-Tertulia-Timestamp: 1763251200
    X-Tertulia-Signature: sha256=HMAC-SHA256(secret, timestamp + "." + body), in hex

One that is older or newer than five minutes is refused; within them, what comes twice is known by
its `message_id`. What is sent out has the key of its delivery as `Idempotency-Key`.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from tertulia.core.source import Source
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
from tertulia.platforms.base import Incoming, Outgoing
from tertulia.platforms.push import PushAdapter

if TYPE_CHECKING:
    import httpx2

TIMESTAMP: Final = "X-Tertulia-Timestamp"
SIGNATURE: Final = "X-Tertulia-Signature"
WINDOW_SECONDS: Final = 300
_LONGEST_PAUSE: Final = 3600.0

_Id = Annotated[str, Meta(min_length=1, max_length=200)]


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the other program sends it."""

    message_id: _Id
    chat_id: _Id
    text: Annotated[str, Meta(min_length=1)]
    user_id: _Id | None = None
    user_name: Annotated[str, Meta(max_length=200)] | None = None

    def incoming(self) -> Incoming:
        source = Source(
            "webhook",
            self.chat_id,
            user_id=self.user_id or self.chat_id,
            user_name=self.user_name,
        )
        return Incoming(source=source, text=self.text, message_id=self.message_id)


class WebhookAdapter(PushAdapter):
    """One program that posts messages, and is posted answers.

    It drops what it has had under the same key, so it is idempotent, if its maker says so.
    """

    name = "webhook"

    def __init__(
        self,
        secret: str,
        *,
        url: str | None = None,
        timeout_seconds: float = 30.0,
        is_idempotent: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        if url is not None and not url.startswith(("https://", "http://")):
            raise ConfigError(
                "The address of the webhook is not allowed.",
                hint="Give one that begins with https:// (or http:// on your own network).",
                field="url",
            )
        self._secret = secret.encode()
        self._url = url
        self._timeout = timeout_seconds
        self._now = now
        self._client: httpx2.AsyncClient | None = None
        self.is_idempotent = is_idempotent

    # -- in

    def read(self, headers: Mapping[str, str], body: bytes) -> Incoming:
        """The message in a signed request."""
        self._check(headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, ""), body)
        try:
            return msgspec.json.decode(body, type=WebhookRequest).incoming()
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise ConfigError(
                f"The message does not fit: {problem}.",
                hint="Give message_id, chat_id and text.",
            ) from None

    def _check(self, timestamp: str, signature: str, body: bytes) -> None:
        # Compared first, so that nobody without the secret learns about the clock.
        expected = sign(self._secret, timestamp, body)
        is_right = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
        made_at = int(timestamp) if timestamp.isascii() and timestamp.isdigit() else 0
        if not is_right or not made_at or abs(self._now() - made_at) > WINDOW_SECONDS:
            raise AccessDenied(
                "The signature is wrong, or the request is too old.",
                hint=f"Sign timestamp.body with the secret; see {SIGNATURE}.",
            )

    # -- out

    async def send(self, message: Outgoing) -> None:
        """Post one message."""
        if self._url is None:
            raise Refused("The webhook has no address.", hint="Set its url.")
        body = msgspec.json.encode(
            {
                "delivery": message.delivery,
                "chat_id": message.chat_id,
                "thread_id": message.thread_id,
                "text": message.text,
            }
        )
        timestamp = str(int(self._now()))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": _as_header(message.delivery),
            TIMESTAMP: timestamp,
            SIGNATURE: sign(self._secret, timestamp, body),
        }
        httpx2 = _library()
        try:
            answer = await self._opened().post(self._url, content=body, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as problem:
            raise PlatformUnavailable(
                f"The webhook cannot be reached ({type(problem).__name__}).",
                hint="Look whether it runs.",
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            # It was on its way: nobody can say whether the other side has read it.
            raise OutcomeUnknown(
                f"The webhook gave no answer ({type(problem).__name__}).",
                hint="Look there whether it arrived.",
            ) from None
        if not answer.is_success:
            raise _refusal(answer.status_code, answer.headers.get("retry-after"))

    async def close(self) -> None:
        """Let go of connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = _library().AsyncClient(
                timeout=self._timeout,
                follow_redirects=False,
                verify=(self._url or "").startswith("https:"),
            )
        assert self._client is not None
        return self._client


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """The signature of a request."""
    signed = timestamp.encode("utf-8", "replace") + b"." + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def _refusal(status: int, retry_after: str | None) -> PlatformError:
    told = f"The webhook answered {status}."
    if status == 429:
        return RateLimited(told, hint="It is sent later.", retry_after=_seconds(retry_after) or 1.0)
    if status == 503 or status in (408, 425, 502, 504):
        if status in (502, 504):
            # Something between has lost it, before or after the program had read it.
            return OutcomeUnknown(told, hint="Look there whether it arrived.")
        after = _seconds(retry_after)
        data = {} if after is None else {"retry_after": after}
        return PlatformUnavailable(told, hint="It is sent later.", **data)
    if status == 413:
        return TooLarge(told, hint="Say less at once.")
    if status >= 500:
        return OutcomeUnknown(told, hint="Look there whether it arrived.")
    return Refused(told, hint="Look at the address and the secret of the webhook.")


def _seconds(given: str | None) -> float | None:
    try:
        found = float(given) if given is not None else -1.0
    except ValueError:
        return None
    return min(found, _LONGEST_PAUSE) if found >= 0 else None


def _as_header(delivery: str) -> str:
    """A key as a header can hold it; the body has it as it is."""
    return delivery if delivery.isascii() and delivery.isprintable() else _digest(delivery)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _library() -> Any:
    try:
        import httpx2
    except ImportError as problem:
        raise ConfigError(
            "Webhooks need httpx2, which is not installed.",
            hint="Install it: pip install 'tertulia[http]'.",
        ) from problem
    return httpx2
