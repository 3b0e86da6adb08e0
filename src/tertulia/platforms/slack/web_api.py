"""Calls of Slack's Web API, and what its answers mean.

Secrets stand in some URLs: the ticket of a socket, the address of an upload. So no error here has a
URL, a request or a cause, and these parts are hidden in the lines that the HTTP library logs.
Slack's own client is not used (decision 0026).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    import httpx2

_SEND_SECONDS: Final = 60.0
_READ_SECONDS: Final = 20.0
# The pause in seconds after a refusal that names none.
_DEFAULT_PAUSE: Final = 3.0
_LONGEST_PAUSE: Final = 3600.0
# More than an event with the largest message has; the library's own limit is 64 KiB.
_MAX_MESSAGE_BYTES: Final = 32 * 2**20

_ACCOUNT_ERRORS: Final = frozenset({
    "invalid_auth", "token_revoked", "account_inactive", "missing_scope", "not_authed",
    "token_expired", "not_allowed_token_type", "org_login_required", "ekm_access_denied",
    "access_denied", "team_access_not_granted", "no_permission", "invalid_token",
})  # fmt: skip
_RATE_ERRORS: Final = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_LATER_ERRORS: Final = frozenset({"team_added_to_org", "accesslimited"})
_UNKNOWN_ERRORS: Final = frozenset({
    "internal_error", "fatal_error", "request_timeout", "service_unavailable",
})  # fmt: skip
_SIZE_ERRORS: Final = frozenset({
    "msg_too_long", "markdown_text_too_long", "msg_blocks_too_long", "file_upload_size_restricted",
    "file_uploads_too_large", "post_body_too_large",
})  # fmt: skip
# A refusal of the form of a text; the same text may be accepted as plain text. A server that does
# not know `markdown_text` misses the text.
_FORMAT_ERRORS: Final = frozenset({
    "no_text", "invalid_arguments", "invalid_arg_name", "invalid_blocks", "invalid_blocks_format",
    "invalid_markdown_text", "markdown_text_conflict",
})  # fmt: skip
# Methods that read JSON; the others read only forms.
_JSON_METHODS: Final = ("chat.", "assistant.", "files.completeUploadExternal", "conversations.open")
_SECRET_IN_URL = re.compile(r"""\?[^\s"']+|(?<=/upload/)[^\s"']+""")
_FILE_HOSTS: Final = ("slack.com", "slack-edge.com", "slack-files.com")


class MarkdownRefused(PlatformError):
    """The form of the text was refused; the same text may be accepted as plain text."""

    code = "markdown_refused"


class AnswerNotJson(PlatformError):
    """The answer is complete, and not JSON."""

    code = "answer_not_json"
    retryable = True


class WebApi(HttpApi):
    """A connection to the Web API for one workspace."""

    service = "Slack"
    hint_unknown = "Look into the channel whether it arrived."

    def __init__(self, token: str, base_url: str) -> None:
        super().__init__(base_url, import_library)
        self._token = token

    async def ask(
        self,
        method: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        seconds: float = _READ_SECONDS,
    ) -> dict[str, Any]:
        """Call a method that may be called again; return its answer.

        Raises `PlatformUnavailable` if there is no clear answer within `seconds`. `token` is
        another token than that of the bot.
        """
        try:
            return await self._call(method, parameters or {}, token or self._token, seconds)
        except (OutcomeUnknown, AnswerNotJson) as problem:
            error: PlatformError = PlatformUnavailable(problem.message, hint="It is tried again.")
        except MarkdownRefused as problem:
            error = Refused(problem.message, hint="Check the text.")
        raise error

    async def send(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that must not be called twice; return its answer.

        Raises `OutcomeUnknown` if it cannot be known whether it was carried out.
        """
        try:
            async with self._room:
                return await self._call(method, parameters, self._token, _SEND_SECONDS)
        except AnswerNotJson as problem:
            message = problem.message
        raise OutcomeUnknown(message, hint=self.hint_unknown)

    async def upload(self, url: str, content: bytes) -> None:
        """Upload the bytes of a file, which nobody sees before it is completed."""
        library = import_library()
        problem: PlatformError
        try:
            answer = await self.exchange(
                "POST", url, content=content, timeout=self._timeout(_SEND_SECONDS),
                headers={"Content-Type": "application/octet-stream"},
            )  # fmt: skip
        except (library.HTTPError, library.InvalidURL) as failure:
            problem = self._unreachable(failure)
        else:
            if answer.is_success:
                return
            problem = _file_error(answer.status_code, "the upload of a file")
        raise problem

    async def download(self, url: str, media_type: str | None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; raise `Refused` if there is a page instead of the file."""
        library = import_library()
        if not may_get_credentials(url, self._base_url, _FILE_HOSTS):
            # The token must not go to the address of another service.
            raise Refused("The file is not kept by Slack.", hint="Open its link instead.")
        problem: PlatformError | None = None
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with self.open_client().stream(
                "GET", url, headers=headers, timeout=self._timeout(_READ_SECONDS)
            ) as answer:
                if answer.is_success and not _is_login_page(answer.headers, media_type):
                    async for piece in answer.aiter_bytes(65536):
                        yield piece
                    return
                problem = _file_error(answer.status_code, "the download of a file")
        except (library.HTTPError, library.InvalidURL) as failure:
            problem = self._unreachable(failure)
        if problem is not None:
            raise problem

    def open_socket(self, url: str) -> AbstractAsyncContextManager[Any]:
        """Return the connection to a socket; it answers pings of Slack by itself."""
        socket: AbstractAsyncContextManager[Any] = self.open_client().websocket(
            url,
            max_message_size_bytes=_MAX_MESSAGE_BYTES,
            keepalive_ping_interval_seconds=None,
            timeout=self._timeout(_READ_SECONDS),
        )
        return socket

    async def _call(
        self, method: str, parameters: Mapping[str, Any], token: str, seconds: float
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        body: dict[str, Any]
        if method.startswith(_JSON_METHODS):
            headers["Content-Type"] = "application/json; charset=utf-8"
            body = {"content": _encode(parameters)}
        else:
            body = {"data": dict(parameters)}
        url = f"{self._base_url}/{method}"
        answer = await self._request("POST", url, seconds=seconds, headers=headers, **body)
        return _result(method, answer)


def import_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("Slack", modules=("httpx2.websockets",), log_filter=_hide_secrets)


def _hide_secrets(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if "?" in text or "/upload/" in text:
        record.msg, record.args = _SECRET_IN_URL.sub("[hidden]", text), ()
    return True


def _encode(parameters: Mapping[str, Any]) -> bytes:
    """Return JSON that Slack accepts: without lone surrogates."""
    return json.dumps(parameters, ensure_ascii=False).encode("utf-8", "replace")


def _unknown(message: str) -> OutcomeUnknown:
    return OutcomeUnknown(message, hint=WebApi.hint_unknown)


def _result(method: str, response: httpx2.Response) -> dict[str, Any]:
    """Return the answer of a method, or raise the error that it means."""
    status = response.status_code
    try:
        answer = json.loads(response.content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    answer = answer if isinstance(answer, dict) else None
    if answer is not None and answer.get("ok") is True and response.is_success:
        return answer
    error = answer.get("error") if answer is not None else None
    error = error if isinstance(error, str) and re.fullmatch(r"[\w.:-]{1,80}", error) else ""
    message = (
        f"Slack answered {status} to {method}{f': {error}' if error else ', without a reason'}."
    )
    if status == 429 or error in _RATE_ERRORS:
        pause = _pause(response.headers.get("retry-after"))
        raise RateLimited(message, hint="It is sent later.", retry_after=pause)
    if error and status < 500:
        raise _refusal(method, error, message)
    raise _unclear(status, message)


def _unclear(status: int, message: str) -> PlatformError:
    """Return the error of an answer without a reason: a proxy's, or a broken one."""
    if status == 413:
        return TooLarge(message, hint="Send less.")
    if status >= 500:
        return _unknown(message)
    if status >= 300:
        # The Web API gives reasons: this came from something before it, which passed nothing on.
        return PlatformUnavailable(message, hint="Check base_url and the proxies in between.")
    return AnswerNotJson(message)


def _refusal(method: str, error: str, message: str) -> PlatformError:
    """Return the error that a refusal of the Web API means."""
    problem: PlatformError = Refused(
        message, hint="Check that the app may write in this channel: /invite it there."
    )
    if error == "missing_scope" and method.startswith("files."):
        # Texts can be sent all the same.
        problem = Refused(message, hint="Add files:read and files:write to the app's scopes.")
    elif error in _ACCOUNT_ERRORS:
        problem = AccountProblem(
            message, hint="Check the tokens and the scopes of the app; see docs/slack.md."
        )
    elif error in _UNKNOWN_ERRORS:
        problem = _unknown(message)
    elif error in _LATER_ERRORS:
        problem = PlatformUnavailable(message, hint="It is tried again.")
    elif error in _SIZE_ERRORS:
        problem = TooLarge(message, hint="Send less.")
    elif error in _FORMAT_ERRORS:
        problem = MarkdownRefused(message, hint="Check the text.")
    return problem


def _pause(seconds: str | None) -> float:
    """Return the pause that a refusal asks for."""
    try:
        pause = float(seconds or "")
    except ValueError:
        return _DEFAULT_PAUSE
    return min(max(0.1, pause), _LONGEST_PAUSE) if pause == pause else _DEFAULT_PAUSE  # noqa: PLR0124


def _is_login_page(headers: Mapping[str, str], media_type: str | None) -> bool:
    """Return whether an answer is the page that Slack shows to those who may not read a file."""
    is_page = headers.get("content-type", "").startswith("text/html")
    is_file = (media_type or "").startswith("text/html") and "content-disposition" in headers
    return is_page and not is_file


def _file_error(status: int, action: str) -> PlatformError:
    message = f"Slack answered {status} to {action}."
    if status == 413:
        return TooLarge(message, hint="Send a smaller file.")
    if status == 429 or status >= 500:
        return PlatformUnavailable(message, hint="It is tried again.")
    return Refused(message, hint="The file is gone, or the app lacks the scope files:read.")
