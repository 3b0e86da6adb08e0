"""One POST to a server that streams: limits, stop, retries, and every failure as an `AgentError`.

The network library is loaded with the first call. Secrets are sent in headers and nowhere else:
what a server says is cleaned of them before it stands in an error.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from tertulia.agents.cancellation import StopWatcher
from tertulia.core.history.content import sound_value
from tertulia.core.text.excerpt import excerpt
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
)

if TYPE_CHECKING:
    import httpx2

Sleep = Callable[[float], Awaitable[None]]

# Of what a server says when it refuses, so much is read, and so much is shown.
_REFUSAL_BYTES: Final = 65_536
_SHOWN: Final = 300
# How long a server may take to close an answer that is complete.
_LAST_SECONDS: Final = 2.0

# Too much to do, or broken for a moment: the same request may succeed later.
_PASSING: Final = frozenset((408, 429, 500, 502, 503, 504, 529))
_PASSING_CODES: Final = frozenset(
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
# How the servers that have no code for it say that a request is longer than the model can read.
_OVERFLOW_WORDS: Final = re.compile(
    r"prompt is too long|maximum context length|context[ _](?:length|window|size|limit)"
    r"|exceeds? the (?:model's )?(?:available |maximum )?context|input is too long"
    r"|input token count .* exceeds|too many (?:input )?tokens"
    r"|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_REFUSED_FOR_SIZE: Final = frozenset((400, 413, 422))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how large an answer may be; in seconds, and in bytes as they come in."""

    connect: float = 15.0
    first_byte: float = 120.0
    between: float = 60.0
    total: float = 900.0
    size: int = 64 * 2**20


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is tried, and how long to wait before each further try.

    The waits double from `first` up to `longest`, less up to half of it by chance, so that many
    who were refused together do not come back together. A server that names a time is obeyed, up
    to `patience`; if it asks for more, the call fails at once and the error has `retry_after`.
    """

    tries: int = 4
    first: float = 0.5
    longest: float = 20.0
    patience: float = 60.0

    def decide(self, problem: AgentError, tried: int, chance: float) -> float | None:
        """How long to wait before the next try, or None to give up; `chance` is from 0 to 1."""
        if not isinstance(problem, AgentUnavailable) or tried >= self.tries:
            return None
        asked: float | None = problem.data.get("retry_after")
        if asked is not None and asked > self.patience:
            return None
        own = min(self.longest, self.first * 2.0 ** (tried - 1)) * (1 - chance / 2)
        return own if asked is None else max(asked, own)


class StreamedResponse:
    """An answer that comes in: its kind, and its bytes."""

    def __init__(self, kind: str, chunks: AsyncIterator[bytes], patience: Deadline) -> None:
        self.kind = kind
        self.chunks = chunks
        self._patience = patience

    def hurry(self) -> None:
        """Expect the end soon: all that matters is there, and the connection may be used again."""
        self._patience.hurry()

    @property
    def is_events(self) -> bool:
        return self.kind == "text/event-stream"

    async def whole(self) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self.chunks])


class Transport:
    """The way to one server."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        limits: Limits | None = None,
        retry: Retry | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if find_spec("httpx2") is None:
            raise ConfigError(
                "Agents that use the network need httpx2, which is not installed.",
                hint="Install it: pip install 'tertulia[agents]'.",
            )
        self._url, self.shown_url = checked_url(url)
        self._headers = {name: _checked_header(name, value) for name, value in headers.items()}
        self._secrets = tuple(sorted((one for one in secrets if one), key=len, reverse=True))
        self.limits = limits or Limits()
        self.retry = retry or Retry()
        self._sleep = sleep
        self._chance = chance
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def pause(self, problem: AgentError, tried: int, watch: StopWatcher) -> bool:
        """Wait for the next try; False if there is none."""
        seconds = self.retry.decide(problem, tried, self._chance())
        if seconds is None:
            return False
        await watch.wait(_awaited(self._sleep(seconds)))
        return True

    @asynccontextmanager
    async def post(
        self, path: str, body: Any, watch: StopWatcher
    ) -> AsyncIterator[StreamedResponse]:
        """One try of one call; whatever fails on the way is an `AgentError`."""
        client = await self._opened()
        httpx2 = _library()
        clock = Deadline(self.limits)
        try:
            content = encoded(body)
            request = client.build_request("POST", self._url + path, content=content)
            response = await watch.wait(client.send(request, stream=True), clock.left())
            try:
                if response.status_code != 200:
                    raise await self._refusal(response, watch, clock)
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                yield StreamedResponse(kind, self._chunks(response, watch, clock), clock)
            finally:
                await response.aclose()
        except TimeoutError:
            raise clock.late(self.shown_url) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            raise self.translate(problem) from None

    async def _chunks(
        self, response: httpx2.Response, watch: StopWatcher, clock: Deadline
    ) -> AsyncIterator[bytes]:
        size = 0
        chunks = response.aiter_bytes()
        while True:
            # With a default there is no StopAsyncIteration, which a task cannot carry.
            chunk = await watch.wait(_next(chunks), clock.left())
            if chunk is None:
                return
            clock.has_begun = True
            size += len(chunk)
            if size > self.limits.size:
                raise AgentFailed(
                    f"The answer of {self.shown_url} is larger than {self.limits.size} bytes.",
                    hint="The model does not come to an end; ask for less, or raise the limit.",
                )
            yield chunk

    async def _refusal(
        self, response: httpx2.Response, watch: StopWatcher, clock: Deadline
    ) -> AgentError:
        found = b""
        async for chunk in self._chunks(response, watch, clock):
            found += chunk
            if len(found) > _REFUSAL_BYTES:
                break
        status = response.status_code
        if 300 <= status < 400:
            return AgentFailed(
                f"{self.shown_url} answered with a redirect ({status}).",
                hint="Give the address it leads to as base_url; keys are not sent after redirects.",
                status=status,
            )
        after = retry_after(response.headers, time.time())
        is_final = response.headers.get("x-should-retry") == "false"
        return self.refused(status, _said(found), after=after, is_final=is_final)

    def refused(
        self, status: int, said: Any, *, after: float | None = None, is_final: bool = False
    ) -> AgentError:
        """What a server says when it gives no answer, as an error; `said` is what it sent."""
        code, message = _read_refusal(said)
        told = self.scrub(message) or "no reason given"
        data: dict[str, Any] = {"status": status, "reason": code}
        text = f"{self.shown_url} answered {status}: {told}"
        if status in _REFUSED_FOR_SIZE and _is_overflow(status, code, message):
            return ContextOverflow(
                f"The conversation is longer than the model can read: {told}",
                hint="Compact it and try again.",
                **data,
            )
        if code in _OUT_OF_MONEY or status == 402:
            return AgentFailed(text, hint="Look at the account: its money is spent.", **data)
        if (status in _PASSING or code in _PASSING_CODES) and not is_final:
            return AgentUnavailable(text, hint="Try again later.", retry_after=after, **data)
        return AgentFailed(text, hint=_HINTS.get(status, _ANY_HINT), **data)

    def translate(self, problem: Exception) -> AgentError:
        """A failure of the network as an error."""
        httpx2 = _library()
        name = type(problem).__name__
        passing = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)
        if isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout):
            return AgentUnavailable(
                f"{self.shown_url} cannot be reached ({name}).",
                hint="Look whether the server runs and the address is right.",
            )
        if isinstance(problem, (*passing, httpx2.ProxyError)):
            return AgentUnavailable(
                f"The connection to {self.shown_url} broke ({name}).", hint="Try again later."
            )
        return AgentFailed(
            f"{self.shown_url} cannot be talked to ({name}).",
            hint="Look whether the address is right and leads to such a server.",
        )

    def nonsense(self, what: str, shown: str) -> AgentFailed:
        """The error for an answer that cannot be read."""
        return AgentFailed(
            f"{self.shown_url} sent {what}: {self.scrub(shown)}",
            hint="Look whether the address leads to a server of this kind.",
        )

    def scrub(self, text: str) -> str:
        """What a server said, on one line, short, and without the secrets it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return excerpt(text, _SHOWN)

    async def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            # Loading the library and its certificates takes longer than an event loop may wait.
            made = await asyncio.to_thread(self._make_client)
            if self._client is None:
                self._client = made
        return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        httpx2 = _library()
        return httpx2.AsyncClient(  # type: ignore[no-any-return]
            headers={"Content-Type": "application/json", **self._headers},
            # Without TLS there is nothing to verify, and no certificates need to be read.
            verify=self._url.startswith("https:"),
            timeout=httpx2.Timeout(None, connect=self.limits.connect),
            # Each run has one connection; how many run is the decision of others.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
        )


class Deadline:
    """How long a call may still take, and which limit that is."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self.has_begun = False
        self._is_total = False

    def left(self) -> float:
        passed = self._now() - self._began
        limits = self._limits
        step = limits.between if self.has_begun else limits.first_byte - passed
        total = limits.total - passed
        self._is_total = total < step
        return max(0.0, min(step, total))

    def hurry(self) -> None:
        soon = min(self._limits.between, _LAST_SECONDS)
        self._limits = msgspec.structs.replace(self._limits, between=soon)

    def late(self, url: str) -> AgentTimeout:
        limits = self._limits
        if self._is_total:
            text = f"{url} had not finished its answer after {limits.total:g} seconds."
        elif self.has_begun:
            text = f"{url} sent nothing for {limits.between:g} seconds in the middle of its answer."
        else:
            text = f"{url} did not begin to answer within {limits.first_byte:g} seconds."
        return AgentTimeout(text, hint="Try again, or raise the limits of the agent.")


def encoded(body: Any) -> bytes:
    """What is sent, as JSON in UTF-8, also where a text in it is not."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(sound_value(body))
    except (TypeError, ValueError, RecursionError) as problem:
        raise AgentFailed(
            f"What is to be sent cannot be written as JSON: {problem}",
            hint="Look at the options of the agent, and at the parameters of its tools.",
        ) from problem


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds a server asks to wait: milliseconds, seconds or a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    seconds = _number(given)
    if seconds is not None or given is None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - now)
    except ValueError:
        return None


_ANY_HINT = "Look at the settings of the agent: address, model and options."
_HINTS = {
    401: "Look whether the API key is right.",
    403: "Look whether this API key may use this model.",
    404: "Look whether the address and the name of the model are right.",
}


def _library() -> Any:
    import httpx2

    return httpx2


def checked_url(url: str) -> tuple[str, str]:
    """An address without its last slash; and as it may be shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.password:
        raise ConfigError(
            "The address of an agent's server is not allowed.",
            hint="Give http(s):// with a host, and no user or password: those go into headers.",
            field="base_url",
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{shown_host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    return url.rstrip("/"), shown


def _checked_header(name: str, value: str) -> str:
    # The network library would say the value when it refuses it.
    found = value.strip()
    if not found.isascii() or not found.isprintable():
        raise ConfigError(
            f"The header {name} has characters that cannot be sent.",
            hint="Look at the key or header for line breaks and typographic characters.",
            field="headers",
        )
    return found


def _number(text: str | None) -> float | None:
    try:
        found = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return found if 0 <= found < 1e9 else None


def _said(found: bytes) -> Any:
    try:
        return msgspec.json.decode(found)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return found.decode("utf-8", "replace")


def _read_refusal(said: Any) -> tuple[str | None, str]:
    """Code and words, from the forms that servers put them in."""
    if isinstance(said, list) and said:
        said = said[0]
    if not isinstance(said, dict):
        return None, said if isinstance(said, str) else ""
    inner = said.get("error")
    error = inner if isinstance(inner, dict) else said
    codes = [error.get("code"), error.get("type")]
    code = next((one for one in codes if isinstance(one, str) and one != "error"), None)
    words = [inner, *(error.get(name) for name in ("message", "detail", "error", "title"))]
    message = next((one for one in words if isinstance(one, str) and one), None)
    return code, message if message is not None else msgspec.json.encode(said).decode()


def _is_overflow(status: int, code: str | None, message: str) -> bool:
    return status == 413 or code in _OVERFLOW_CODES or bool(_OVERFLOW_WORDS.search(message))


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _awaited(work: Awaitable[None]) -> None:
    await work
