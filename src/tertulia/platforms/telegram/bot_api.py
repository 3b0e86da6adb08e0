"""Calls of the Telegram Bot API, and what its answers mean.

The token of the bot stands in every URL. So no error here has a URL, a request or a cause, and the
lines that the HTTP library logs about each request have the token hidden.
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
from tertulia.platforms.http_library import HttpApi, load_library

File = tuple[str, bytes, str]
"""A file to send: its name, its bytes and its media type."""

_SEND_SECONDS: Final = 60.0
_READ_SECONDS: Final = 20.0
# Seconds of the pause after a 429 that names none; one that the platform names may be minutes.
_DEFAULT_PAUSE: Final = 3.0
_LONGEST_PAUSE: Final = 86_400.0
_HINT_TOKEN: Final = "Check the token, or get a new one from BotFather."  # noqa: S105
_TOKEN_IN_URL = re.compile(r"/bot[^/\s]+/")

# The meanings of refusals, which the Bot API tells apart only by their texts: the first text that
# is found counts.
_REASONS: Final = {
    "unauthorized": "the token is wrong or was revoked",
    "chat not found": "there is no such chat",
    "blocked by the user": "the person has blocked the bot",
    "user is deactivated": "the person has no account any more",
    "bot was kicked": "the bot was removed from the group",
    "not a member": "the bot is not a member of the chat",
    "can't initiate conversation": "the person has not written to the bot yet",
    "not enough rights": "the bot lacks a right in the chat",
    "have no rights": "the bot lacks a right in the chat",
    "thread not found": "there is no such topic",
    "topic_closed": "the topic is closed",
    "topic_deleted": "the topic was deleted",
    "terminated by other": "another program asks for the updates of this bot",
    "webhook is active": "the bot has a webhook",
    "bad webhook": "the address of the webhook is not accepted; check public_url",
    "secret token": "the secret has characters other than A-Z, a-z, 0-9, _ and -, or too many",
    "too many requests": "too many messages",
    "too long": "the text is too long",
    "too_long": "the text is too long",
    "too big": "the file is too big",
    "too large": "it is too large",
    "not modified": "the message has this text already",
    "text is empty": "the text is empty",
    "to edit not found": "the message is gone",
    "replied not found": "the message it replies to is gone",
    "entit": "the formatting is not accepted",
    "method not found": "the server does not know this method",
    "wrong file": "the file cannot be used",
    "wrong remote file": "the file cannot be used",
    "failed to get http url content": "the file cannot be used",
    "not found": "the token is wrong, or this is no Bot API",
}


class PollConflict(PlatformError):
    """Another program polls this bot, or it has a webhook."""

    code = "poll_conflict"
    retryable = True


class FormatRefused(PlatformError):
    """The formatting was refused; the same text may be accepted without it."""

    code = "format_refused"


class ReplyRefused(PlatformError):
    """The message it replies to was refused; the same text may be accepted without it."""

    code = "reply_refused"


class NotModified(PlatformError):
    """The message has this text already."""

    code = "not_modified"


class ChatMoved(PlatformError):
    """The group became a supergroup and has a new id."""

    code = "chat_moved"

    def __init__(self, chat_id: str) -> None:
        super().__init__("The group has a new id.", hint="It is sent there.")
        self.chat_id = chat_id


class NothingFound(PlatformError):
    """There is no bot with this token, or the server does not know this method."""

    code = "nothing_found"


class UnreadableAnswer(PlatformError):
    """The answer is complete, and not JSON."""

    code = "unreadable_answer"
    retryable = True

    def __init__(self, body: bytes) -> None:
        super().__init__("Telegram gave an answer that cannot be read.", hint="It is asked again.")
        self.body = body


class BotApi(HttpApi):
    """A connection to the Bot API for one bot."""

    service = "Telegram"

    def __init__(self, token: str, base_url: str) -> None:
        super().__init__(base_url, import_library)
        self._token = token
        self._urls: dict[str, Any] = {}

    async def ask(
        self,
        method: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        seconds: float = _READ_SECONDS,
    ) -> Any:
        """Call a method that may be called again; return its result.

        Raises `PlatformUnavailable` if there is no clear answer within `seconds`.
        """
        try:
            return await self._call(method, parameters or {}, None, seconds)
        except NothingFound as problem:
            error: PlatformError = AccountProblem(problem.message, hint=_HINT_TOKEN)
        except OutcomeUnknown as problem:
            error = PlatformUnavailable(problem.message, hint="It is tried again.")
        if isinstance(error, AccountProblem) and method != "getMe":
            await self.ask("getMe")  # raises if every method is unknown: then the token is wrong
            error = Refused(f"Telegram does not know {method}.", hint="Check base_url.")
        raise error

    async def send(
        self, method: str, parameters: Mapping[str, Any], *, file: tuple[str, File] | None = None
    ) -> Any:
        """Call a method that must not be called twice; return its result.

        Raises `OutcomeUnknown` if it cannot be known whether it was carried out. `file` is the name
        of its parameter, and the file.
        """
        try:
            async with self._room:
                return await self._call(method, parameters, file, _SEND_SECONDS)
        except NothingFound as problem:
            error: PlatformError = AccountProblem(problem.message, hint=_HINT_TOKEN)
        except UnreadableAnswer as problem:
            hint = "Look into the chat whether it arrived."
            error = OutcomeUnknown(problem.message, hint=hint)
        raise error

    async def download(self, file_path: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; raise `Refused` if its link has expired."""
        library = import_library()
        url = f"{self._base_url}/file/bot{self._token}/{file_path}"
        problem: PlatformError | None = None
        try:
            async with self.open_client().stream(
                "GET", url, timeout=self._timeout(_READ_SECONDS)
            ) as answer:
                if answer.is_success:
                    async for piece in answer.aiter_bytes(65536):
                        yield piece
                    return
                problem = _download_error(answer.status_code)
        except library.HTTPError as failure:
            problem = PlatformUnavailable(
                f"A file could not be downloaded from Telegram ({type(failure).__name__}).",
                hint="It is tried again.",
            )
        if problem is not None:
            raise problem

    async def _call(
        self,
        method: str,
        parameters: Mapping[str, Any],
        file: tuple[str, File] | None,
        seconds: float,
    ) -> Any:
        body: dict[str, Any] = {"json": dict(parameters)}
        if file is not None:
            fields = {name: _form_value(value) for name, value in parameters.items()}
            body = {"data": fields, "files": {file[0]: file[1]}}
        answer = await self._request("POST", self._url(method), seconds=seconds, **body)
        return _result(method, answer.status_code, answer.content)

    def _url(self, method: str) -> Any:
        if method not in self._urls:
            url = f"{self._base_url}/bot{self._token}/{method}"
            self._urls[method] = import_library().URL(url)
        return self._urls[method]


def import_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("Telegram", log_filter=_hide_token)


def _hide_token(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if "/bot" in text:
        record.msg, record.args = _TOKEN_IN_URL.sub("/bot[hidden]/", text), ()
    return True


def _form_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _result(method: str, status: int, content: bytes) -> Any:
    """Return the result in an answer, or raise the error that it means."""
    try:
        # Lone surrogates pass, as people may send them; bytes that are no text do not stop it.
        answer = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and answer.get("ok") is True and "result" in answer:
        return answer["result"]
    if isinstance(answer, dict) and isinstance(answer.get("error_code"), int):
        raise _refusal(method, answer)
    raise _unclear(status, content)


def _unclear(status: int, content: bytes) -> PlatformError:
    """Return the error of an answer that is not one of the Bot API: a proxy's, or a broken one."""
    message = f"Telegram answered {status}, without a reason."
    if status == 413:
        return TooLarge(message, hint="Send less.")
    if status == 429:
        return RateLimited(message, hint="It is sent later.", retry_after=_DEFAULT_PAUSE)
    if status >= 500:
        return OutcomeUnknown(message, hint="Look into the chat whether it arrived.")
    if status >= 300:
        # The Bot API gives reasons: this came from something before it, which passed nothing on.
        return PlatformUnavailable(message, hint="Check base_url and the proxies in between.")
    return UnreadableAnswer(content)


def _refusal(method: str, answer: Mapping[str, Any]) -> PlatformError:
    """Return the error that a refusal of the Bot API means."""
    code = answer["error_code"]
    reason = str(answer.get("description", ""))[:200].lower()
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    message = f"Telegram refused {method} with {code}: {_describe(reason)}."
    problem: PlatformError = Refused(message, hint="Check that the bot may write in this chat.")
    if code == 401:
        problem = AccountProblem(message, hint=_HINT_TOKEN)
    elif code == 404 and "method" not in reason:
        problem = NothingFound(message)
    elif code == 409:
        problem = PollConflict(message, hint="Stop the other program, or delete its webhook.")
    elif code == 413:
        problem = TooLarge(message, hint="Send less.")
    elif code == 429:
        pause = _pause(parameters.get("retry_after"))
        problem = RateLimited(message, hint="It is sent later.", retry_after=pause)
    elif code >= 500:
        problem = OutcomeUnknown(message, hint="Look into the chat whether it arrived.")
    elif code == 400:
        problem = _bad_request(message, reason, parameters)
    return problem


def _describe(reason: str) -> str:
    """Return what a reason means. Its text is not shown: it may contain what somebody wrote."""
    for text, meaning in _REASONS.items():
        if text in reason:
            return meaning
    return "a reason that is not known here"


def _bad_request(message: str, reason: str, parameters: Mapping[str, Any]) -> PlatformError:
    if parameters.get("migrate_to_chat_id") is not None:
        return ChatMoved(str(parameters["migrate_to_chat_id"]))
    if "too long" in reason or "too big" in reason or "too_long" in reason:
        return TooLarge(message, hint="Send less.")
    if "not modified" in reason:
        return NotModified(message)
    if "entit" in reason:
        return FormatRefused(message)
    if "replied" in reason or "reply message" in reason:
        return ReplyRefused(message)
    return Refused(message, hint="Check the chat, the topic and the rights of the bot there.")


def _pause(seconds: object) -> float:
    """Return the pause that a 429 asks for."""
    if not isinstance(seconds, int | float):
        return _DEFAULT_PAUSE
    return float(min(max(0.1, seconds), _LONGEST_PAUSE))  # in this order for NaN


def _download_error(status: int) -> PlatformError:
    message = f"Telegram answered {status} to the download of a file."
    if status == 401:
        return AccountProblem(message, hint="Check the token of the bot.")
    if status == 429 or status >= 500:
        return PlatformUnavailable(message, hint="It is tried again.")
    return Refused(message, hint="The link has expired, or the file is gone.")
