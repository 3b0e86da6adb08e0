"""Calls of the Graph API, and what its answers mean (decision 0026).

The token goes only to the Graph API and to Meta's own file servers; no error here has a URL, a
request or a cause.
"""

from __future__ import annotations

import json
import logging
import re
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
from tertulia.platforms.http_library import HttpApi, load_library, may_get_credentials

File = tuple[str, bytes, str]
"""A file to upload: its name, its bytes and its media type."""

_SEND_SECONDS: Final = 60.0
_READ_SECONDS: Final = 20.0
# Seconds of the first pause, since WhatsApp names none; the adapter makes it longer while it is
# refused.
FIRST_PAUSE: Final = 4.0

_ACCOUNT_ERRORS: Final = frozenset({0, 10, 190, 368, 131031, 131042, 131045, 133010})
_RATE_ERRORS: Final = frozenset({4, 80007, 130429, 131048, 131056, 133016})
_UNKNOWN_ERRORS: Final = frozenset({1, 2, 131000, 131016})
_LATER_ERRORS: Final = frozenset({131057})
_SIZE_ERRORS: Final = frozenset({131052, 131053})
# A parameter is refused: it may be the message that is replied to.
_PARAMETER_ERRORS: Final = frozenset({100, 131009})
_REASONS: Final = {
    131047: (
        "WhatsApp delivers free text only within 24 hours after the person's last message (131047)."
    ),
    131026: "The person cannot receive this message on WhatsApp (131026).",
    131051: "WhatsApp does not know this type of message (131051).",
    131031: "WhatsApp has locked the business account (131031).",
    131042: "WhatsApp refuses the account because of its payment (131042).",
    190: "The access token has expired or was revoked (190).",
}
_HINTS: Final = {131047: "Ask the person to write first; then answers go through."}
_FILE_HOSTS: Final = ("fbsbx.com", "whatsapp.net", "facebook.com", "fbcdn.net")
# The query in the URL of a file has a signature.
_QUERY_IN_URL = re.compile(r"""\?[^\s"']+""")


class ParameterRefused(PlatformError):
    """A parameter was refused; without the reply the same text may be accepted."""

    code = "parameter_refused"


class GraphApi(HttpApi):
    """A connection to the Graph API for one business number."""

    service = "WhatsApp"
    hint_unknown = "WhatsApp may report the outcome later."

    def __init__(self, token: str, base_url: str) -> None:
        super().__init__(base_url, import_library)
        self._token = token

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        file: File | None = None,
        seconds: float = _READ_SECONDS,
    ) -> dict[str, Any]:
        """Send a request that may be repeated; return its answer.

        Raises `PlatformUnavailable` if there is no clear answer within `seconds`.
        """
        try:
            return await self._call(method, path, body, params, file, seconds)
        except OutcomeUnknown as problem:
            error: PlatformError = PlatformUnavailable(problem.message, hint="It is tried again.")
        except ParameterRefused as problem:
            error = Refused(problem.message, hint="Check the id.")
        raise error

    async def send(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request that must not be sent twice; return its answer.

        Raises `OutcomeUnknown` if it cannot be known whether it was carried out.
        """
        async with self._room:
            return await self._call("POST", path, body, None, None, _SEND_SECONDS)

    async def upload(self, path: str, file: File) -> str:
        """Upload a file, which nobody sees before it is sent; return its id."""
        fields = {"messaging_product": "whatsapp", "type": file[2]}
        answer = await self.ask("POST", path, body=fields, file=file, seconds=_SEND_SECONDS)
        if not isinstance(answer.get("id"), str):
            raise PlatformUnavailable("WhatsApp gave no id of a file.", hint="It is tried again.")
        return str(answer["id"])

    async def download(self, url: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file by its address, which expires after five minutes."""
        library = import_library()
        if not may_get_credentials(url, self._base_url, _FILE_HOSTS):
            # The token must not go to another server.
            raise Refused("The file is not kept by WhatsApp.", hint="It cannot be fetched.")
        problem: PlatformError | None = None
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with self.open_client().stream(
                "GET", url, headers=headers, timeout=self._timeout(_READ_SECONDS)
            ) as answer:
                if answer.is_success:
                    async for piece in answer.aiter_bytes(65536):
                        yield piece
                    return
                problem = _download_error(answer.status_code)
        except (library.HTTPError, library.InvalidURL) as failure:
            problem = self._unreachable(failure)
        if problem is not None:
            raise problem

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        params: Mapping[str, str] | None,
        file: File | None,
        seconds: float,
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"}
        options: dict[str, Any] = {}
        if file is not None:
            options = {"data": dict(body or {}), "files": {"file": file}}
        elif body is not None:
            headers["Content-Type"] = "application/json"
            # Without lone surrogates, which the Graph API does not accept.
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            options = {"content": content}
        url = f"{self._base_url}/{path}"
        answer = await self._request(
            method, url, seconds=seconds, params=params, headers=headers, **options
        )
        return _result(answer.status_code, answer.content)


def import_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("WhatsApp", log_filter=_hide_query)


def _hide_query(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if "?" in text:
        record.msg, record.args = _QUERY_IN_URL.sub("?[hidden]", text), ()
    return True


def describe_error(error: object) -> str:
    """Return what an error object of WhatsApp means, for people; without its free text."""
    code = _code(error)
    if code is None:
        return "WhatsApp gave no reason."
    return _REASONS.get(code, f"WhatsApp refused it with error {code}.")


def _code(error: object) -> int | None:
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _unknown(message: str) -> OutcomeUnknown:
    return OutcomeUnknown(message, hint=GraphApi.hint_unknown)


def _result(status: int, content: bytes) -> dict[str, Any]:
    """Return the answer, or raise the error that it means."""
    try:
        answer = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    answer = answer if isinstance(answer, dict) else None
    if answer is not None and "error" not in answer and 200 <= status < 300:
        return answer
    error = answer.get("error") if answer is not None else None
    code = _code(error)
    if code is not None:
        raise _refusal(status, code, describe_error(error))
    raise _unclear(status)


def _unclear(status: int) -> PlatformError:
    """Return the error of an answer without a reason: a proxy's, or a broken one."""
    message = f"WhatsApp answered {status}, without a reason."
    if status == 413:
        return TooLarge(message, hint="Send less.")
    if status == 429:
        return RateLimited(message, hint="It is sent later.", retry_after=FIRST_PAUSE)
    if 300 <= status < 500:
        # The Graph API gives reasons: this came from something before it.
        return PlatformUnavailable(message, hint="Check base_url and the proxies in between.")
    return _unknown(message)


def _refusal(status: int, code: int, message: str) -> PlatformError:
    """Return the error that an error code of the Graph API means."""
    problem: PlatformError = Refused(
        message, hint=_HINTS.get(code, "Check the number of the person."), status=status
    )
    if code in _ACCOUNT_ERRORS or 200 <= code <= 299:
        problem = AccountProblem(
            message, hint="Check the token and its permissions; see docs/whatsapp.md."
        )
    elif code in _RATE_ERRORS:
        problem = RateLimited(message, hint="It is sent later.", retry_after=FIRST_PAUSE)
    elif code in _UNKNOWN_ERRORS or (status >= 500 and code not in _LATER_ERRORS):
        problem = _unknown(message)
    elif code in _LATER_ERRORS:
        problem = PlatformUnavailable(message, hint="It is tried again.")
    elif code in _SIZE_ERRORS or status == 413:
        problem = TooLarge(message, hint="Send a smaller file, or another type.")
    elif code in _PARAMETER_ERRORS:
        problem = ParameterRefused(message, hint="Check the id.")
    return problem


def _download_error(status: int) -> PlatformError:
    message = f"WhatsApp answered {status} to the download of a file."
    if status == 401:
        return AccountProblem(message, hint="Check the access token.")
    if status == 429 or status >= 500:
        return PlatformUnavailable(message, hint="It is tried again.")
    return Refused(message, hint="The link has expired, or the file is gone.")
