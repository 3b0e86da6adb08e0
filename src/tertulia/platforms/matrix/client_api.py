"""The client-server API of a homeserver: requests, answers and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tertulia.errors import (
    AccountProblem,
    ConfigError,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.http_library import HttpApi, PathMissing, load_library

if TYPE_CHECKING:
    import httpx2

_REQUEST_SECONDS: Final = 30.0
_LONGEST_PAUSE: Final = 3600.0
_ACCOUNT_ERRORS: Final = frozenset({
    "M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED",
    "M_USER_SUSPENDED", "M_CONSENT_NOT_GIVEN", "ORG_MATRIX_EXPIRED_ACCOUNT",
})  # fmt: skip
_LATER_ERRORS: Final = frozenset({"M_RESOURCE_LIMIT_EXCEEDED"})

Json = dict[str, Any]


class HomeserverApi(HttpApi):
    """Requests with the token of one account."""

    service = "The homeserver"

    def __init__(self, base_url: str, token: str) -> None:
        if not base_url.startswith(("https://", "http://")):
            raise ConfigError(
                "The address of the homeserver is not allowed.",
                hint='Set for example: base_url = "https://matrix.example.org"',
                field="base_url",
            )
        super().__init__(base_url, http_library)
        self._token = token

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        seconds: float = _REQUEST_SECONDS,
    ) -> Json:
        """Return the answer to a GET request."""
        return await self.call("GET", path, params=params, seconds=seconds, is_read=True)

    async def put(self, path: str, body: Json, *, is_read: bool = False) -> Json:
        """Return the answer to a PUT request with a JSON body."""
        return await self.call("PUT", path, content=encode(body), is_read=is_read)

    async def post(self, path: str, body: Json) -> Json:
        """Return the answer to a POST request with a JSON body."""
        return await self.call("POST", path, content=encode(body), is_read=True)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        seconds: float = _REQUEST_SECONDS,
        is_read: bool = False,
    ) -> Json:
        """Send a request and return its answer; raise a `PlatformError` otherwise.

        `is_read`: it may be repeated without harm, so no outcome of it is unknown. No URL and no
        header stands in an error.
        """
        httpx2 = http_library()
        try:
            response = await self.exchange(
                method, self.url(path), params=params, content=content, timeout=seconds,
                headers={**self.headers(), "Content-Type": content_type},
            )  # fmt: skip
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as problem:
            raise unreachable(problem) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            if is_read:
                raise unreachable(problem) from None
            raise _unknown(f"The homeserver did not answer ({type(problem).__name__}).") from None
        answer = decode(response.content)
        if response.is_success and answer is not None:
            return answer
        if response.is_success and not is_read:
            raise _unknown("The homeserver sent an answer that is not JSON.")
        raise error_of(response, answer, is_read=is_read)

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return self._base_url + path

    def headers(self) -> dict[str, str]:
        """Return the header with the access token."""
        return {"Authorization": f"Bearer {self._token}"}

    def _new_client(self) -> Any:
        httpx2 = http_library()
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=20)
        is_tls = self._base_url.startswith("https:")
        return httpx2.AsyncClient(limits=limits, follow_redirects=False, verify=is_tls)


def encode(body: Mapping[str, Any]) -> bytes:
    """Return JSON that a homeserver accepts: without lone surrogates."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def as_dict(value: object) -> Json:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """Return the value if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def quote_part(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="", errors="replace")


def decode(body: bytes) -> Json | None:
    """Return a JSON object, or None if it is something else. Lone surrogates are let through."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def unreachable(problem: Exception) -> PlatformUnavailable:
    """Return the error for a homeserver that could not be reached."""
    return PlatformUnavailable(
        f"The homeserver cannot be reached ({type(problem).__name__}).",
        hint="Check base_url, and that the homeserver is running.",
    )


def _unknown(message: str) -> OutcomeUnknown:
    return OutcomeUnknown(message, hint="Check in the room whether it arrived.")


def error_of(response: httpx2.Response, answer: Json | None, *, is_read: bool) -> PlatformError:
    """Return the error of a response: by its status, and by the code in its JSON."""
    status = response.status_code
    code = str((answer or {}).get("errcode", ""))
    code = code if re.fullmatch(r"[A-Z_]{1,60}", code) else ""
    message = f"The homeserver answered {status}{' ' if code else ''}{code}."
    if status == 429:
        seconds = _retry_after(response, answer or {})
        return RateLimited(message, hint="It is sent later.", retry_after=seconds)
    if code in _ACCOUNT_ERRORS or (status == 401 and code):
        return AccountProblem(
            f"{message} The account or its token is not accepted.",
            hint="Log in again and set the new token; see docs/matrix.md.",
        )
    if status == 413:
        return TooLarge(message, hint="Send less at a time.")
    if status >= 500 and not is_read:
        return _unknown(message)
    if not code or status >= 500 or code in _LATER_ERRORS:
        # Without a code it is the page of a proxy, or base_url is not that of a homeserver.
        kind = PathMissing if status in (404, 405) and is_read else PlatformUnavailable
        return kind(message, hint="Check base_url and the homeserver. It is tried again.")
    return Refused(message, hint="Check that the agent may write in this room.", status=status)


def _retry_after(response: httpx2.Response, answer: Json) -> float:
    """Return the pause that the homeserver asks for, in seconds."""
    milliseconds = answer.get("retry_after_ms")
    header = response.headers.get("retry-after", "")
    if isinstance(milliseconds, int | float) and milliseconds > 0:
        return min(milliseconds, _LONGEST_PAUSE * 1000) / 1000
    is_number = header.isascii() and header.isdigit()
    return min(float(header), _LONGEST_PAUSE) or 1.0 if is_number else 1.0


def http_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("Matrix")
