"""HTTP transport: one POST with a streamed response, limits, stop, retries and typed errors.

Every failure is raised as an `AgentError`. The network library is loaded with the first call.
Secrets are sent in headers and nowhere else: they are removed from the texts of a server before
such a text goes into an error.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tertulia.agents.cancellation import StopWatcher
from tertulia.core.backoff import Backoff
from tertulia.core.history.content import make_json_safe
from tertulia.core.text.excerpt import log_line
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
)
from tertulia.install_command import install_command

if TYPE_CHECKING:
    import httpx2

Sleep = Callable[[float], Awaitable[None]]

# Limits of an error response: bytes that are read, characters that go into an error message.
_ERROR_BODY_BYTES: Final = 65_536
_MIN_SECRET_LENGTH = 4
_EXCERPT_LENGTH: Final = 300
# Seconds that a server has to close the connection after a complete answer.
_CLOSE_SECONDS: Final = 2.0

# Overloaded, or failing for a moment: the same request may succeed later.
_TRANSIENT_STATUSES: Final = frozenset((408, 429, 500, 502, 503, 504, 529))
_TRANSIENT_CODES: Final = frozenset(
    ("overloaded_error", "rate_limit_error", "api_error", "timeout_error", "server_error",
     "rate_limit_exceeded", "internal_server_error", "overloaded"),
)  # fmt: skip
_OUT_OF_MONEY: Final = frozenset(
    ("insufficient_quota", "billing_error", "billing_hard_limit_reached")
)

_OVERFLOW_CODES: Final = frozenset(
    ("context_length_exceeded", "request_too_large", "exceed_context_size_error",
     "context_window_exceeded"),
)  # fmt: skip
# Messages of servers without a code for it: the request is longer than the context window.
_OVERFLOW_MESSAGE: Final = re.compile(
    r"prompt is too long|maximum context length|context[ _](?:length|window|size|limit)"
    r"|exceeds? the (?:model's )?(?:available |maximum )?context|input is too long"
    r"|input token count .* exceeds|too many (?:input )?tokens"
    r"|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_OVERFLOW_STATUSES: Final = frozenset((400, 413, 422))

_JSON: Final = "application/json"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one response.

    connect      how long a connection may take, in seconds
    first_byte   how long the response may take to begin, in seconds
    between      how long it may pause, in seconds
    total        how long it may take in all, in seconds
    size         how many bytes may be received; a stream has a few hundred for each token
    text         how many characters an answer may have, with its reasoning and tool calls
    """

    connect: float = 15.0
    first_byte: float = 120.0
    between: float = 60.0
    total: float = 900.0
    size: int = 32 * 2**20
    text: int = 1_000_000

    def check_text(self, length: int, name: str) -> None:
        """Raise `AgentFailed` if the answer of the server or program `name` is too long."""
        if length > self.text:
            raise AgentFailed(
                f"The answer of {name} has more than {self.text} characters.",
                hint="It may not stop by itself: ask for less, or raise limits.text.",
            )


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Number of attempts for one call, and the delay before each further attempt.

    The delays double from `first` up to `longest`; jitter takes off up to half of each, so that
    many clients that were refused together do not retry together. A delay that the server asks for
    is respected up to `patience`; if it asks for more, the call fails at once and the error carries
    `retry_after`.

    tries      how often a call is made in all
    first      seconds before the second attempt
    longest    the longest delay, in seconds
    patience   the longest delay that a server may ask for, in seconds
    """

    tries: int = 4
    first: float = 0.5
    longest: float = 20.0
    patience: float = 60.0

    def decide(self, problem: AgentError, tried: int, chance: float) -> float | None:
        """Return the delay before the next attempt, or None to give up; `chance` is 0 to 1."""
        if not isinstance(problem, AgentUnavailable) or tried >= self.tries:
            return None
        server_delay = problem.retry_after or 0
        if server_delay > self.patience:
            return None
        backoff = Backoff(first=self.first, longest=self.longest)
        return max(server_delay, backoff.delay(tried, chance))


class RawBody(NamedTuple):
    """A request body that is not JSON."""

    content: bytes
    content_type: str


class StreamedResponse:
    """A response while it is received: its content type and its chunks of bytes."""

    def __init__(self, content_type: str, chunks: AsyncIterator[bytes], deadline: Deadline) -> None:
        self.content_type = content_type
        self.chunks = chunks
        self._deadline = deadline

    def expect_end(self) -> None:
        """Wait only briefly for the end: the answer is complete.

        Reading up to the end allows the connection to be reused.
        """
        self._deadline.expect_end()

    @property
    def is_event_stream(self) -> bool:
        return self.content_type == "text/event-stream"

    async def read_all(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks])


class Transport:
    """The HTTP client of one server."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        key_hint: str | None = None,
        limits: Limits | None = None,
        retry: Retry | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if find_spec("httpx2") is None:
            raise ConfigError(
                "Agents that use the network need the package httpx2, which is not installed.",
                hint=f"Install it: {install_command('agents')}",
            )
        self._url, self.display_url = validate_url(url)
        self._headers = {name: check_header(name, value) for name, value in headers.items()}
        self._status_hints = _STATUS_HINTS | ({401: key_hint} if key_hint else {})
        self._secrets = tuple(sorted(filter(None, secrets), key=len, reverse=True))
        self.limits = limits or Limits()
        self.retry = retry or Retry()
        self._sleep = sleep
        self._chance = chance
        self._client: httpx2.AsyncClient | None = None
        self._client_lock = asyncio.Lock()  # of calls that would make a client each

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def wait_before_retry(
        self, problem: AgentError, tried: int, watcher: StopWatcher
    ) -> bool:
        """Wait until the next attempt; return False at once if there is to be none."""
        seconds = self.retry.decide(problem, tried, self._chance())
        if seconds is None:
            return False
        await watcher.wait(_as_coroutine(self._sleep(seconds)))
        return True

    @asynccontextmanager
    async def post(
        self,
        path: str,
        body: Any,
        watcher: StopWatcher,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[StreamedResponse]:
        """Make one attempt of one call; raise every failure as an `AgentError`.

        `headers` replace those of the transport.
        """
        client = await self._require_client()
        httpx2 = _httpx2()
        deadline = Deadline(self.limits)
        try:
            raw = body if isinstance(body, RawBody) else RawBody(encode_body(body), _JSON)
            request = client.build_request(
                "POST", self._url + path, content=raw.content,
                headers={**headers, "Content-Type": raw.content_type},
            )  # fmt: skip
            response = await watcher.wait(client.send(request, stream=True), deadline.left())
            try:
                if response.status_code != 200:
                    raise await self._read_error(response, watcher, deadline)
                header = response.headers.get("content-type", "")
                content_type = header.partition(";")[0].strip().lower()
                chunks = self._chunks(response, watcher, deadline)
                yield StreamedResponse(content_type, chunks, deadline)
            finally:
                await response.aclose()
        except TimeoutError:
            raise deadline.timeout_error(self.display_url) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            raise self.network_error(problem) from None

    async def _chunks(
        self, response: httpx2.Response, watcher: StopWatcher, deadline: Deadline
    ) -> AsyncIterator[bytes]:
        """Yield the body; raise `AgentFailed` if it is too large, `TimeoutError` at a limit."""
        size = 0
        chunks = response.aiter_bytes()
        while True:
            # None at the end: a task cannot raise StopAsyncIteration.
            chunk = await watcher.wait(_next_chunk(chunks), deadline.left())
            if chunk is None:
                return
            deadline.has_begun = True
            size += len(chunk)
            if size > self.limits.size:
                raise AgentFailed(
                    f"The answer of {self.display_url} is larger than {self.limits.size} bytes.",
                    hint="The model may not stop by itself: ask for less, or raise limits.size.",
                )
            yield chunk

    async def _read_error(
        self, response: httpx2.Response, watcher: StopWatcher, deadline: Deadline
    ) -> AgentError:
        """Read an error response and return it as an error."""
        body = bytearray()
        async for chunk in self._chunks(response, watcher, deadline):
            body += chunk
            if len(body) > _ERROR_BODY_BYTES:
                break
        status = response.status_code
        if 300 <= status < 400:
            return AgentFailed(
                f"{self.display_url} answered with a redirect ({status}).",
                hint="Set base_url to the address it leads to; keys are not sent after redirects.",
                status=status,
            )
        after = retry_after(response.headers, time.time())
        is_final = response.headers.get("x-should-retry") == "false"
        return self.error_of(status, _decode_body(bytes(body)), after=after, is_final=is_final)

    def error_of(
        self, status: int, body: Any, *, after: float | None = None, is_final: bool = False
    ) -> AgentError:
        """Return the error for an error response; `body` is its decoded body.

        `after` is the delay that the server asks for; `is_final` says that a retry is useless.
        """
        code, message = _parse_error(body)
        reason = self.scrub(message) or "no reason given"
        data: dict[str, Any] = {"status": status, "reason": code}
        text = f"{self.display_url} answered {status}: {reason}"
        if status in _OVERFLOW_STATUSES and _is_overflow(status, code, message):
            return ContextOverflow(
                f"The conversation exceeds the context window of the model: {reason}",
                hint="Compact it and try again.",
                **data,
            )
        if code in _OUT_OF_MONEY or status == 402:
            return AgentFailed(
                text, hint="The account has no money or quota left: check its billing.", **data
            )
        if (status in _TRANSIENT_STATUSES or code in _TRANSIENT_CODES) and not is_final:
            return AgentUnavailable(text, hint="Try again later.", retry_after=after, **data)
        return AgentFailed(text, hint=self._status_hints.get(status, _DEFAULT_HINT), **data)

    def network_error(self, problem: Exception) -> AgentError:
        """Return the error for an exception of the network library."""
        httpx2 = _httpx2()
        name = type(problem).__name__
        transient = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)
        if isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout):
            return AgentUnavailable(
                f"{self.display_url} cannot be reached ({_system_reason(problem) or name}).",
                hint="Check that the server runs and the address is correct.",
            )
        if isinstance(problem, (*transient, httpx2.ProxyError)):
            return AgentUnavailable(
                f"The connection to {self.display_url} broke ({name}).", hint="Try again later."
            )
        return AgentFailed(
            f"The request to {self.display_url} failed ({name}).",
            hint="Check that the address is correct and leads to a server of this kind.",
        )

    def invalid_response(self, description: str, text: str) -> AgentFailed:
        """Return the error for a response that cannot be parsed."""
        return AgentFailed(
            f"{self.display_url} sent {description}: {self.scrub(text)}",
            hint="Check that the address leads to a server of this kind.",
        )

    def scrub(self, text: str) -> str:
        """Return a text of the server on one line, shortened, and without the secrets."""
        for secret in self._secrets:
            # A server of one's own is often given "x" as its key: that hides no secret.
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "***")
        return log_line(text, _EXCERPT_LENGTH)

    async def _require_client(self) -> httpx2.AsyncClient:
        async with self._client_lock:
            if self._client is None:
                # Loading the library and its certificates would block the event loop for too long.
                self._client = await asyncio.to_thread(self._make_client)
            return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        httpx2 = _httpx2()
        return httpx2.AsyncClient(  # type: ignore[no-any-return]
            headers=self._headers,
            # Without TLS there is nothing to verify, so no certificates are loaded.
            verify=self._url.startswith("https:"),
            timeout=httpx2.Timeout(None, connect=self.limits.connect),
            # Each run has one connection; the caller limits the number of runs.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
        )


class Deadline:
    """The time that one call has left, and the limit that it comes from."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._now = asyncio.get_running_loop().time
        self._began_at = self._now()
        self.has_begun = False
        self._is_total = False

    def left(self) -> float:
        """Return the seconds until the next limit: first byte, silence or total time."""
        passed = self._now() - self._began_at
        limits = self._limits
        step = limits.between if self.has_begun else limits.first_byte - passed
        total = limits.total - passed
        self._is_total = total < step
        return max(0.0, min(step, total))

    def expect_end(self) -> None:
        """Allow only a short silence from now on: the answer is complete."""
        between = min(self._limits.between, _CLOSE_SECONDS)
        self._limits = msgspec.structs.replace(self._limits, between=between)

    def timeout_error(self, name: str) -> AgentTimeout:
        """Return the error for the limit that was reached last; `name` is the other side."""
        limits = self._limits
        if self._is_total:
            text = f"{name} had not finished its answer after {limits.total:g} seconds."
        elif self.has_begun:
            text = (
                f"{name} sent nothing for {limits.between:g} seconds in the middle of its answer."
            )
        else:
            text = f"{name} did not begin to answer within {limits.first_byte:g} seconds."
        return AgentTimeout(text, hint="Try again, or raise the limits of the agent.")


def encode_body(body: Any) -> bytes:
    """Return a request body as JSON in UTF-8; characters that UTF-8 cannot encode are replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(make_json_safe(body))
    except (TypeError, ValueError, RecursionError) as problem:
        raise AgentFailed(
            f"The request cannot be encoded as JSON: {problem}",
            hint="Check the options of the agent and the parameters of its tools.",
        ) from problem


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds a server asks to wait, given in milliseconds, seconds or as a date."""
    milliseconds = _parse_seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    seconds = _parse_seconds(header)
    if seconds is not None or header is None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - now)
    except ValueError:
        return None


_DEFAULT_HINT = "Check the settings of the agent: address, model and options."
_STATUS_HINTS = {
    401: "Check the API key.",
    403: "Check that this API key may use this model.",
    404: "Check the address and the name of the model.",
}


def _httpx2() -> Any:
    import httpx2

    return httpx2


def validate_url(url: str) -> tuple[str, str]:
    """Return an address without its trailing slash, and the form that errors may show.

    Raise `ConfigError` if it is not an http(s) address with a host and without credentials.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.password:
        raise ConfigError(
            "Invalid address of an agent's server.",
            hint="Give http(s):// with a host; put credentials into headers, not into the address.",
            field="base_url",
        )
    display_host = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    display_url = f"{parts.scheme}://{display_host}{f':{port}' if port else ''}{path}"
    return url.rstrip("/"), display_url


def check_header(name: str, value: str) -> str:
    """Return the value of a header without white space around it.

    Raise `ConfigError` if it has characters that cannot be sent.
    """
    # The network library would repeat the value, a secret, in its own error.
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"The header {name} has characters that cannot be sent.",
            hint="Check the key or header for line breaks and characters outside of ASCII.",
            field="headers",
        )
    return value


def _parse_seconds(text: str | None) -> float | None:
    """Return the number in a header; None if there is no header, or no sensible number in it."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None


def _decode_body(body: bytes) -> Any:
    """Return the JSON value of an error response, or its text."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return body.decode("utf-8", "replace")


def _parse_error(body: Any) -> tuple[str | None, str]:
    """Return code and message of an error response, in any of the forms that servers use."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return None, body if isinstance(body, str) else ""
    inner = body.get("error")
    error = inner if isinstance(inner, dict) else body
    codes = [error.get("code"), error.get("type")]
    code = next((value for value in codes if isinstance(value, str) and value != "error"), None)
    texts = [inner, *(error.get(name) for name in ("message", "detail", "error", "title"))]
    message = next((text for text in texts if isinstance(text, str) and text), None)
    return code, message if message is not None else msgspec.json.encode(body).decode()


def _is_overflow(status: int, code: str | None, message: str) -> bool:
    return status == 413 or code in _OVERFLOW_CODES or bool(_OVERFLOW_MESSAGE.search(message))


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


def _system_reason(problem: BaseException) -> str:
    """Return why the system could not connect, in its words; empty if it does not say."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, socket.gaierror) and cause.strerror:
            return cause.strerror.lower()
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return ""
