"""Webhooks: signed requests from and to another program.

Every request has a timestamp in seconds, and a signature of the timestamp and the body:

    X-Tertulia-Timestamp: 1763251200
    X-Tertulia-Signature: sha256=HMAC-SHA256(secret, timestamp + "." + body), in hex

A request whose timestamp is more than five minutes off is refused; a message that is repeated
within that time is recognised by its `message_id`. Outgoing requests have the key of the delivery
as `Idempotency-Key`.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from tertulia.core.secret import Secret
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
from tertulia.install_command import install_command
from tertulia.platforms.base import Adapter, Incoming, Outgoing
from tertulia.platforms.definition import BuildContext, PlatformDefinition
from tertulia.platforms.http_library import HttpApi
from tertulia.platforms.push import PushAdapter
from tertulia.platforms.settings import PlatformSettings

TIMESTAMP: Final = "X-Tertulia-Timestamp"
SIGNATURE: Final = "X-Tertulia-Signature"
WINDOW_SECONDS: Final = 300
_LONGEST_PAUSE: Final = 3600.0
_MAX_DIGITS: Final = 15  # of a timestamp; Python refuses to read a number of thousands of digits

_Id = Annotated[str, Meta(min_length=1, max_length=200)]


class WebhookSettings(PlatformSettings, frozen=True, kw_only=True):
    """Another program that posts signed messages and receives signed answers.

    secret          the secret both sides sign with; better kept out of the file
    secret_env      the environment variable that contains it
    url             the address answers are posted to; default: no answer is sent
    is_idempotent   whether that program ignores a delivery it has already received
    """

    secret: Secret | None = None
    secret_env: str | None = None
    url: str | None = None
    is_idempotent: bool = False


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
    """The adapter of one program that posts messages and gets answers posted.

    `is_idempotent`: the program drops a delivery that it already has under the same key.
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
                "The webhook URL is not allowed.",
                hint="Use a URL that begins with https:// (or http:// on your own network).",
                field="url",
            )
        self._secret = secret.encode()
        self._url = url
        self._timeout = timeout_seconds
        self._now = now
        self._http = HttpApi(url or "", _import_library)
        self.idempotent_seconds = math.inf if is_idempotent else 0.0

    # -- in

    def read(self, headers: Mapping[str, str], body: bytes) -> Incoming:
        """Check a signed request and return its message.

        Raises `AccessDenied` if the signature is wrong, and `ConfigError` if the body is invalid.
        """
        self._check(headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, ""), body)
        try:
            return msgspec.json.decode(body, type=WebhookRequest).incoming()
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise ConfigError(
                f"The message is invalid: {problem}.",
                hint="Send message_id, chat_id and text.",
            ) from None

    def _check(self, timestamp: str, signature: str, body: bytes) -> None:
        # The signature is compared first, so that nobody without the secret learns about the clock.
        expected = sign(self._secret, timestamp, body)
        is_valid = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
        is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_DIGITS
        made_at = int(timestamp) if is_number else 0
        if not is_valid or not made_at or abs(self._now() - made_at) > WINDOW_SECONDS:
            raise AccessDenied(
                "The signature is wrong, or the request is too old.",
                hint=f"Sign timestamp.body with the secret; see {SIGNATURE}.",
            )

    # -- out

    async def send(self, message: Outgoing) -> str | None:
        """Post one message; raise a `PlatformError` if it was not accepted."""
        if self._url is None:
            raise Refused("The webhook has no URL to post answers to.", hint="Set its url.")
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
        httpx2 = _import_library()
        try:
            response = await self._http.exchange(
                "POST", self._url, reads_body=False, content=body, headers=headers,
                timeout=self._timeout,
            )  # fmt: skip
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as problem:
            raise PlatformUnavailable(
                f"The webhook cannot be reached ({type(problem).__name__}).",
                hint="Check that it is running.",
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
            # The request was on its way: the other side may or may not have read it.
            raise OutcomeUnknown(
                f"The webhook did not answer ({type(problem).__name__}).",
                hint="Check on the other side whether it arrived.",
            ) from None
        if not response.is_success:
            raise _error_of(response.status_code, response.headers.get("retry-after"))
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the signature of a request."""
    signed = timestamp.encode("utf-8", "replace") + b"." + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def _error_of(status: int, retry_after: str | None) -> PlatformError:
    message = f"The webhook answered {status}."
    if status == 429:
        return RateLimited(
            message, hint="It is sent later.", retry_after=_seconds(retry_after) or 1.0
        )
    if status == 503 or status in (408, 425, 502, 504):
        if status in (502, 504):
            # A proxy lost the request, before or after the program had read it.
            return OutcomeUnknown(message, hint="Check on the other side whether it arrived.")
        return PlatformUnavailable(
            message, hint="It is sent later.", retry_after=_seconds(retry_after)
        )
    if status == 413:
        return TooLarge(message, hint="Send shorter messages.")
    if status >= 500:
        return OutcomeUnknown(message, hint="Check on the other side whether it arrived.")
    return Refused(message, hint="Check the URL and the secret of the webhook.")


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header) if header is not None else -1.0
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE) if seconds >= 0 else None


def _as_header(delivery: str) -> str:
    """Return a delivery key that is valid in a header; the body has the key unchanged."""
    return delivery if delivery.isascii() and delivery.isprintable() else _digest(delivery)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _import_library() -> Any:
    try:
        import httpx2
    except ImportError as problem:
        raise ConfigError(
            "Webhooks need httpx2, which is not installed.",
            hint=f"Install it: {install_command('http')}",
        ) from problem
    return httpx2


def build(context: BuildContext) -> Adapter:
    """Return the adapter of the other program."""
    settings: WebhookSettings = context.settings
    return WebhookAdapter(
        context.require_secret("secret"), url=settings.url, is_idempotent=settings.is_idempotent
    )


PLATFORM = PlatformDefinition(
    "webhook",
    "Webhook",
    length_limit=None,
    markdown="markdown",
    notify=False,
    settings=WebhookSettings,
    build=build,
)
