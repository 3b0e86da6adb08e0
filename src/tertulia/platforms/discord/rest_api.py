"""Calls of Discord's REST API, and what its answers mean.

Nothing is sent twice by itself. Some addresses contain secrets (the token of an interaction, the
signature of a file), so no error here has an address, a request or a cause, and the lines that the
HTTP library logs about each request have them hidden.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.discord.rate_buckets import RateBuckets, Route, retry_after
from tertulia.platforms.http_library import HttpApi, PathMissing, load_library
from tertulia.version import __version__

File = tuple[str, bytes, str]
"""A file to send: its name, its bytes and its media type."""

_SEND_SECONDS: Final = 60.0
_READ_SECONDS: Final = 20.0
# A request waits so long for its turn; if its limit needs longer, it comes back later.
_PATIENCE_SECONDS: Final = 2.0
_USER_AGENT: Final = f"DiscordBot (https://github.com/tertulia/tertulia, {__version__})"
_SECRET_IN_URL = re.compile(
    r"(/(?:interactions|webhooks)/\d+/)[^/\s\"?]+|(\?)(?:ex|is|hm)=[^\s\"]+"
)
_ID = re.compile(r"\d+")
_MAJOR = re.compile(r"^/(?:channels|guilds|webhooks)/(\d+)")

UNKNOWN_CHANNEL: Final = 10003
_TOO_LARGE: Final = frozenset({40005, 50045})
_GONE: Final = frozenset({10008, 50005})
_REPLY: Final = frozenset({160002})
# What to do about the refusals that people meet most.
_HINTS: Final = {
    UNKNOWN_CHANNEL: "There is no such channel. To write to a person, put @ before their id.",
    50001: "Let the bot see this channel.",
    50007: "The person accepts no messages from this bot, or shares no server with it.",
    50013: "Let the bot send messages and files in this channel, also in its threads.",
    50083: "The thread is archived and locked; open it again.",
    50278: "The person shares no server with the bot.",
}


class ReferenceRefused(PlatformError):
    """The message it replies to was refused; the same text may be accepted without it."""

    code = "reference_refused"


class MessageGone(PlatformError):
    """The message to be edited was deleted, or is not ours."""

    code = "message_gone"


class RestApi(HttpApi):
    """A connection to the REST API for one bot."""

    service = "Discord"

    def __init__(self, token: str, base_url: str) -> None:
        super().__init__(base_url, import_library, {"User-Agent": _USER_AGENT})
        self._token = token
        self._buckets = RateBuckets()
        self.date: str | None = None  # of the last answer

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        seconds: float = _READ_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> Any:
        """Call what may be called again; return its result.

        Raises `PlatformUnavailable` if there is no clear answer within `seconds`, and `RateLimited`
        if the limit needs longer than `patience`.
        """
        try:
            return await self._call(method, path, body, None, seconds, patience)
        except OutcomeUnknown as problem:
            message = problem.message
        raise PlatformUnavailable(message, hint="It is tried again.")

    async def ask_object(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Call as `ask` does; raise `PlatformUnavailable` if the answer is no object."""
        answer = await self.ask(method, path, body)
        if not isinstance(answer, dict):
            raise unreadable()
        return answer

    async def send(
        self, method: str, path: str, body: Mapping[str, Any], *, file: File | None = None
    ) -> Any:
        """Call what must not be called twice; return its result.

        Raises `OutcomeUnknown` if it cannot be known whether it was carried out.
        """
        async with self._room:
            return await self._call(method, path, body, file, _SEND_SECONDS, _PATIENCE_SECONDS)

    async def download(self, url: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; the token does not go there."""
        library = import_library()
        problem: PlatformError | None = None
        try:
            request = self.open_client().build_request(
                "GET", url, timeout=self._timeout(_READ_SECONDS)
            )
            request.headers.pop("authorization", None)
            answer = await self.open_client().send(request, stream=True)
            try:
                if answer.is_success:
                    async for piece in answer.aiter_bytes(65536):
                        yield piece
                    return
                problem = _download_error(answer.status_code)
            finally:
                await answer.aclose()
        except (library.HTTPError, library.InvalidURL) as failure:
            problem = PlatformUnavailable(
                f"A file could not be downloaded from Discord ({type(failure).__name__}).",
                hint="It is tried again.",
            )
        if problem is not None:
            raise problem

    async def _call(
        self,
        method: str,
        path: str,
        body: Any,
        file: File | None,
        seconds: float,
        patience: float,
    ) -> Any:
        route = _route(method, path)
        await self._wait_for(route, patience)
        content = _content(body, file)
        headers = {"Authorization": f"Bot {self._token}", **content.pop("headers", {})}
        url = f"{self._base_url}{path}"
        answer = await self._request(method, url, seconds=seconds, headers=headers, **content)
        value, is_json = _decode(answer.content)
        now = time.monotonic()
        self._buckets.learn(route, answer.status_code, answer.headers, value, now)
        self.date = answer.headers.get("date", self.date)
        if answer.is_success and (is_json or answer.status_code == 204):
            return value
        raise _error(method, path, answer.status_code, answer.headers, value)

    async def _wait_for(self, route: Route, patience: float) -> None:
        """Wait until the limit of a route allows a request; raise `RateLimited` if it is far."""
        while (pause := self._buckets.pause(route, time.monotonic())) > 0:
            if pause > patience:
                raise RateLimited(
                    "The limit that Discord sets is used up for now.",
                    hint="It is sent later.",
                    retry_after=pause,
                )
            await asyncio.sleep(pause)
        self._buckets.take(route, time.monotonic())


def unreadable() -> PlatformUnavailable:
    """Return the error of an answer whose form is not that of the API."""
    return PlatformUnavailable(
        "Discord gave an answer that cannot be read.", hint="It is tried again."
    )


def import_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("Discord", modules=("wsproto",), log_filter=_hide_secrets)


def _hide_secrets(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if "/interactions/" in text or "/webhooks/" in text or "?" in text:
        hidden = _SECRET_IN_URL.sub(lambda match: f"{match[1] or match[2]}[hidden]", text)
        record.msg, record.args = hidden, ()
    return True


def _route(method: str, path: str) -> Route:
    path = path.partition("?")[0]
    major = _MAJOR.match(path)
    key = f"{method} {_ID.sub('#', path)}"
    if path.startswith(("/interactions/", "/webhooks/")):
        key = f"{method} {'/'.join(path.split('/')[:2])}"  # the token is part of the path
    return Route(key, major[1] if major else "")


def _content(body: Any, file: File | None) -> dict[str, Any]:
    """Return the body of a request as the HTTP library takes it."""
    if body is None:
        return {}
    # Lone surrogates, which a model can write, have no UTF-8; as JSON escapes they pass.
    encoded = json.dumps(body, separators=(",", ":")).encode()
    if file is None:
        return {"content": encoded, "headers": {"Content-Type": "application/json"}}
    return {"files": [("payload_json", (None, encoded, "application/json")), ("files[0]", file)]}


def _decode(content: bytes) -> tuple[Any, bool]:
    """Return the JSON value of a body, and whether it is one."""
    try:
        # Lone surrogates pass, as people may send them; bytes that are no text do not stop it.
        return json.loads(content.decode("utf-8", "replace")), True
    except (ValueError, RecursionError):
        return None, False


def _error(
    method: str, path: str, status: int, headers: Mapping[str, str], body: Any
) -> PlatformError:
    """Return the error that an answer means."""
    code = body.get("code") if isinstance(body, dict) else None
    # The text of an error is not shown: it may contain what somebody wrote.
    reason = f"code {code}" if isinstance(code, int) and code else "no code"
    message = f"Discord answered {status} to {_route(method, path).key} ({reason})."
    if status == 429:
        pause = retry_after(headers, body)
        return RateLimited(message, hint="It is sent later.", retry_after=pause)
    if status == 401 and not path.startswith(("/interactions/", "/webhooks/")):
        return AccountProblem(
            message, hint="Check the token, or reset it in the Developer Portal under Bot."
        )
    if status == 413:
        return TooLarge(message, hint="Send less.")
    if status < 300 or status >= 500:
        return OutcomeUnknown(message, hint="Look into the chat whether it arrived.")
    if isinstance(code, int):
        return _refusal(message, status, code, body)
    # The API gives reasons: this came from something before it, which passed nothing on.
    kind = PathMissing if status == 404 and method == "GET" else PlatformUnavailable
    return kind(message, hint="Check base_url and the proxies in between.")


def _refusal(message: str, status: int, code: int, body: Mapping[str, Any]) -> PlatformError:
    """Return the error that a refusal by the API means."""
    if code in _GONE:
        return MessageGone(message)
    if code in _REPLY or (code == 50035 and "message_reference" in _wrong_fields(body)):
        return ReferenceRefused(message)
    if code in _TOO_LARGE or (code == 50035 and "content" in _wrong_fields(body)):
        return TooLarge(message, hint="Send less.")
    hint = _HINTS.get(code, "Check the channel and the permissions of the bot there.")
    return Refused(message, hint=hint, status=status)


def _wrong_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = body.get("errors")
    return fields if isinstance(fields, dict) else {}


def _download_error(status: int) -> PlatformError:
    message = f"Discord answered {status} to the download of a file."
    if status == 429 or status >= 500:
        return PlatformUnavailable(message, hint="It is tried again.")
    return Refused(message, hint="The link has expired, or the file is gone.")
