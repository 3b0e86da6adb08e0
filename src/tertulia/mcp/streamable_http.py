"""A connection to an MCP server over HTTP: each request is a POST with a JSON or event reply."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from tertulia.agents.sse import SseParser
from tertulia.agents.transport import check_header
from tertulia.mcp.protocol import (
    HANDSHAKES,
    LIST_CHANGED,
    MAX_MESSAGE,
    META,
    MODERN,
    CallLost,
    ServerRefused,
    ServerUnavailable,
    answer_request,
    error_of,
    is_header_value,
)

if TYPE_CHECKING:
    import httpx2

_CONNECT_SECONDS: Final = 10.0
_ACCEPTED: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_REVISION: Final = f"{META}protocolVersion"
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")


class HttpConnection:
    """The requests to one address. It is closed when the server has forgotten its session."""

    def __init__(self, url: str, headers: Mapping[str, str], client: httpx2.AsyncClient) -> None:
        self._url = url
        self._headers = {"Accept": _ACCEPTED, "Content-Type": "application/json", **headers}
        self._client = client
        self._ids = itertools.count(1)
        self._session: str | None = None
        self._revision: str | None = None
        self._closed = asyncio.Event()
        self._replies: set[asyncio.Future[Any]] = set()  # asyncio itself would forget them
        self.problem = "the connection was closed"
        self.on_changed: Callable[[], None] = lambda: None

    @classmethod
    async def open(cls, url: str, headers: Mapping[str, str]) -> HttpConnection:
        """Return a connection; nothing is sent yet.

        Raise `ConfigError` if a header has characters that cannot be sent.
        """
        import httpx2

        checked = {name: check_header(name, value) for name, value in headers.items()}

        def make_client() -> httpx2.AsyncClient:
            # Loading certificates would block the event loop, and without TLS none is needed.
            return httpx2.AsyncClient(
                verify=url.startswith("https:"),
                timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
                follow_redirects=False,
            )

        return cls(url, checked, await asyncio.to_thread(make_client))

    async def request(
        self, method: str, params: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """Send a request, once, and return the result."""
        import httpx2

        if self._closed.is_set():
            raise ServerUnavailable(self.problem)
        number = next(self._ids)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}
        try:
            async with asyncio.timeout(seconds):
                message = await self._exchange(body, number)
        except TimeoutError:
            await self._cancel(number, params)
            raise CallLost(f"there was no answer within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(number, params))
            raise
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            raise self._fail(f"it cannot be reached: {type(problem).__name__}") from problem
        except httpx2.InvalidURL as problem:
            raise self._fail(f"its address is not valid: {problem}") from problem
        except httpx2.HTTPError as problem:
            raise CallLost(f"the connection broke: {type(problem).__name__}") from problem
        if (error := error_of(message)) is not None:
            raise error
        result = message.get("result")
        fields = result if isinstance(result, dict) else {}
        if method == "initialize" and fields.get("protocolVersion") in HANDSHAKES:
            self._revision = fields["protocolVersion"]
        return fields

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; a failure is not reported."""
        import httpx2

        body = {"jsonrpc": "2.0", "method": method, "params": dict(params)}
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._client.post(
                    self._url, content=json.dumps(body), headers=self._headers_of(body)
                )
        except (httpx2.HTTPError, TimeoutError):
            return

    async def wait_closed(self) -> None:
        """Wait until the connection has failed or was closed."""
        await self._closed.wait()

    async def close(self) -> None:
        """Close the connection; a session of an earlier revision is ended."""
        import httpx2

        self._fail("the connection was closed")
        if self._session is not None:
            try:
                async with asyncio.timeout(2):
                    await self._client.delete(self._url, headers=self._headers_of({}))
            except (httpx2.HTTPError, TimeoutError):
                pass
        await self._client.aclose()

    async def _cancel(self, number: int, params: Mapping[str, Any]) -> None:
        # In the new revision, closing the response is the cancellation.
        if "_meta" not in params:
            await self.notify("notifications/cancelled", {"requestId": number})

    async def _exchange(self, body: dict[str, Any], number: int) -> dict[str, Any]:
        """Post a request and read until its reply."""
        async with self._client.stream(
            "POST", self._url, content=json.dumps(body), headers=self._headers_of(body)
        ) as response:
            if session := response.headers.get(_SESSION):
                if not is_header_value(session):
                    raise self._fail("it sent an invalid session id")
                self._session = session
            if response.status_code in (401, 403):
                raise self._fail(f"it refused the request with {response.status_code}")
            if response.status_code == 404 and self._session is not None:
                raise self._fail("the server has forgotten the session")
            if response.status_code >= 500:
                raise CallLost(f"it answered with {response.status_code}")
            async with aclosing(_read_messages(response)) as messages:
                async for message in messages:
                    if message.get("id") == number and "method" not in message:
                        return message
                    self._read_unasked(message)
            if response.status_code >= 400:
                raise ServerRefused(f"it answered with {response.status_code}")
            raise CallLost("the response ended without an answer")

    def _read_unasked(self, message: dict[str, Any]) -> None:
        if message.get("method") == LIST_CHANGED:
            self.on_changed()
        elif "method" in message and "id" in message:
            # Sent beside the response that is being read; a failure of it is ignored.
            reply = json.dumps(answer_request(message))
            task = asyncio.ensure_future(
                self._client.post(self._url, content=reply, headers=self._headers_of({}))
            )
            self._replies.add(task)
            task.add_done_callback(self._forget_reply)

    def _forget_reply(self, task: asyncio.Future[Any]) -> None:
        self._replies.discard(task)
        if not task.cancelled():
            task.exception()

    def _headers_of(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a request; those of the new revision repeat parts of its body."""
        headers = dict(self._headers)
        params = body.get("params") or {}
        if _REVISION in params.get("_meta", {}):
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": str(body["method"])}
            if isinstance(name := params.get("name"), str):
                headers["Mcp-Name"] = _encode_header(name)
            return headers
        if self._revision:
            headers["MCP-Protocol-Version"] = self._revision
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        return headers

    def _fail(self, problem: str) -> ServerUnavailable:
        """Close the connection for new requests; return the error to raise."""
        if not self._closed.is_set():
            self.problem = problem
            self._closed.set()
        return ServerUnavailable(problem)


def _encode_header(text: str) -> str:
    """Return a text as the value of a header, by the rule of MCP for texts that are none."""
    if is_header_value(text) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def _read_messages(response: httpx2.Response) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the messages of a response; raise `CallLost` if it is too large."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    parser, body, size = SseParser(), bytearray(), 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_MESSAGE:
            raise CallLost(f"it sent more than {MAX_MESSAGE} bytes")
        if not is_stream:
            body += chunk
            continue
        for event in parser.feed(chunk):
            if (message := _decode(event.data)) is not None:
                yield message
    for event in parser.rest() if is_stream else ():
        if (message := _decode(event.data)) is not None:
            yield message
    if not is_stream and (message := _decode(bytes(body))) is not None:
        yield message


def _decode(data: str | bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
