"""Calls of signal-cli's daemon, JSON-RPC over HTTP and server-sent events, and their meaning.

The daemon answers every call with HTTP 200; an error has a code. Nothing is sent twice by itself.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.http_library import CONNECT_SECONDS, HttpApi, load_library

# Without a byte for so long a connection is dropped; the daemon sends a sign every 15 s.
SILENCE_SECONDS: Final = 60.0
MAX_EVENT_BYTES: Final = 64 * 2**20
_READ_SECONDS: Final = 20.0
# The daemon writes to each member of a group, and fetches keys first.
_SEND_SECONDS: Final = 120.0
_DEFAULT_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 86_400.0
_MAX_HEAD: Final = 2**20
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_HINTS: Final = {
    -4: "Compare the safety number, then: signal-cli trust.",
    -32601: "Update signal-cli.",
}
_DATA = re.compile(rb'"data"\s*:\s*"')
_WRONG_PARAMETERS: Final = -32602
_UNKNOWN_CODES: Final = frozenset({-2, -3, -32603})


class DaemonClient(HttpApi):
    """A connection to the daemon for one account."""

    service = "signal-cli's daemon"
    hint_unreachable = "Check that it runs, and base_url."

    def __init__(self, number: str, base_url: str) -> None:
        super().__init__(base_url, import_library)
        self._number = number
        self._ids = itertools.count(1)

    async def ask(
        self,
        method: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        seconds: float = _READ_SECONDS,
    ) -> Any:
        """Call what may be called again; raise `PlatformUnavailable` without a clear answer."""
        try:
            return await self._call(method, parameters or {}, seconds)
        except OutcomeUnknown as problem:
            message = problem.message
        raise PlatformUnavailable(message, hint="It is tried again.")

    async def send(self, method: str, parameters: Mapping[str, Any]) -> Any:
        """Call what must not be called twice; raise `OutcomeUnknown` without a clear answer."""
        return await self._call(method, parameters, _SEND_SECONDS)

    async def events(self) -> AsyncGenerator[Mapping[str, Any] | None, None]:
        """Yield the events of the account; None for each sign of life.

        Raises a `PlatformError` when the connection ends.
        """
        library = import_library()
        path = f"{self._base_url}/api/v1/events?account={quote(self._number, safe='')}"
        timeout = library.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        problem: PlatformError
        try:
            async with self.open_client().stream("GET", path, timeout=timeout) as answer:
                if answer.status_code != 200:
                    raise _stream_refusal(answer.status_code)
                yield None
                async for event in _read_events(answer.aiter_bytes()):
                    yield event
            problem = PlatformUnavailable(
                "signal-cli's daemon ended the connection.", hint="It is connected anew."
            )
        except library.HTTPError as failure:
            problem = PlatformUnavailable(
                f"The connection to signal-cli's daemon failed ({type(failure).__name__}).",
                hint="Check that the daemon runs, and base_url.",
            )
        raise problem

    async def download(self, parameters: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file, which the daemon gives as one text in base64."""
        library = import_library()
        problem: PlatformError | None = None
        try:
            async with self.open_client().stream(
                "POST", f"{self._base_url}/api/v1/rpc", **self._body("getAttachment", parameters),
                timeout=self._timeout(_READ_SECONDS),
            ) as answer:  # fmt: skip
                pieces = _read_base64(answer.aiter_bytes(65536), answer.status_code)
                async for piece in pieces:
                    yield piece
        except library.HTTPError as failure:
            problem = PlatformUnavailable(
                f"A file could not be read from signal-cli's daemon ({type(failure).__name__}).",
                hint="It is tried again.",
            )
        if problem is not None:
            raise problem

    async def _call(self, method: str, parameters: Mapping[str, Any], seconds: float) -> Any:
        url = f"{self._base_url}/api/v1/rpc"
        body = self._body(method, parameters)
        answer = await self._request("POST", url, seconds=seconds, **body)
        return read_answer(method, answer.status_code, answer.content)

    def _new_client(self) -> Any:
        # The daemon serves only programs that ask for localhost, so that no web page can.
        if urlsplit(self._base_url).hostname in _LOOPBACK:
            self._headers = {"Host": "localhost"}
        return super()._new_client()

    def _body(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        request = {
            "jsonrpc": "2.0",
            "id": str(next(self._ids)),
            "method": method,
            "params": {"account": self._number, **parameters},
        }
        # Lone surrogates, which a model can write, have no UTF-8; as JSON escapes they pass.
        content = json.dumps(request).encode()
        return {"content": content, "headers": {"Content-Type": "application/json"}}


def import_library() -> Any:
    """Return the HTTP library; raise `ConfigError` if it is not installed."""
    return load_library("Signal")


# -- answers


def read_answer(method: str, status: int, content: bytes) -> Any:
    """Return the result in an answer, or raise the error that it means."""
    answer = _decode(content)
    if status == 200 and isinstance(answer, dict):
        error = answer.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), int):
            return _read_error(method, error)
        if "result" in answer and error is None:
            return _read_result(answer["result"])
    message = f"signal-cli's daemon answered {status} to {method}, without a reason."
    if status == 413:
        raise TooLarge(message, hint="Send less.")
    if 300 <= status < 500:
        raise PlatformUnavailable(message, hint="Check base_url: is it the daemon's address?")
    raise OutcomeUnknown(message, hint="Look into the chat whether it arrived.")


def _read_result(result: Any) -> Any:
    """Return the result of a call; raise if nobody got the message."""
    outcomes = _outcomes(result)
    if outcomes and all(outcome.get("type") != "SUCCESS" for outcome in outcomes):
        raise _failure("Signal did not take the message.", outcomes)
    return result


def _read_error(method: str, error: Mapping[str, Any]) -> Any:
    """Return the result in an error, if somebody got the message; else raise its meaning."""
    code = error["code"]
    data = error.get("data")
    response = data.get("response") if isinstance(data, dict) else None
    outcomes = _outcomes(response)
    # Sent to a group: it is sent if one member has it.
    if any(outcome.get("type") == "SUCCESS" for outcome in outcomes):
        return response
    # The text of an error is not shown: it may contain what somebody wrote.
    message = f"signal-cli refused {method} with error {code}."
    if code == _WRONG_PARAMETERS and "account" in str(error.get("message", "")):
        raise AccountProblem(
            f"signal-cli has no account of this number (error {code}).",
            hint="Register or link this number in signal-cli, or correct account.",
        )
    raise _meaning(code, message, outcomes)


def _meaning(code: int, message: str, outcomes: list[Mapping[str, Any]]) -> PlatformError:
    if code == -5:
        return _rate_limit(message, outcomes)
    if code in _UNKNOWN_CODES:
        return OutcomeUnknown(message, hint="Look into the chat whether it arrived.")
    if code == -1 and outcomes:
        return _failure(message, outcomes)
    hint = _HINTS.get(code, "Check the chat: a number, a UUID or the id of a group.")
    return Refused(message, hint=hint)


def _failure(message: str, outcomes: list[Mapping[str, Any]]) -> PlatformError:
    """Return the error of a message that nobody got, by what happened to each person."""
    types = {str(outcome.get("type")) for outcome in outcomes}
    names = sorted(name for name in types if re.fullmatch(r"[A-Z_]{1,60}", name))
    message = f"{message} ({', '.join(names) or 'no reason'})"
    if types & {"RATE_LIMIT_FAILURE", "PROOF_REQUIRED_FAILURE"}:
        return _rate_limit(message, outcomes)
    if types <= {"UNREGISTERED_FAILURE"}:
        return Refused(message, hint="Nobody has Signal under this number any more.")
    if types <= {"IDENTITY_FAILURE"}:
        return Refused(message, hint="Compare the safety number, then: signal-cli trust.")
    return OutcomeUnknown(message, hint="Look into the chat whether it arrived.")


def _rate_limit(message: str, outcomes: list[Mapping[str, Any]]) -> PlatformError:
    is_captcha = any(outcome.get("token") for outcome in outcomes)
    if is_captcha or any(o.get("type") == "PROOF_REQUIRED_FAILURE" for o in outcomes):
        # The token of the challenge is a secret of the account, so it is not shown.
        return AccountProblem(
            "Signal wants a proof that this account is not a spammer.",
            hint="Solve the captcha: signal-cli submitRateLimitChallenge; its log has the token.",
        )
    pauses = [outcome.get("retryAfterSeconds") for outcome in outcomes]
    seconds = [pause for pause in pauses if isinstance(pause, int | float) and pause > 0]
    pause = float(min(max(seconds, default=_DEFAULT_PAUSE), _LONGEST_PAUSE))
    return RateLimited(message, hint="It is sent later.", retry_after=pause)


def _outcomes(result: Any) -> list[Mapping[str, Any]]:
    items = result.get("results") if isinstance(result, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _stream_refusal(status: int) -> PlatformError:
    message = f"signal-cli's daemon answered {status} to the request for messages."
    if status == 400:
        return AccountProblem(
            message, hint="Register or link this number in signal-cli, or correct account."
        )
    return PlatformUnavailable(message, hint="Check base_url, and that the daemon has --http.")


def _decode(content: bytes) -> Any:
    try:
        # Lone surrogates pass, as people may send them; bytes that are no text do not stop it.
        return json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


# -- streams


async def _read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Mapping[str, Any] | None]:
    """Yield each event of a stream, {} for one that cannot be read, None for a sign of life."""
    buffer, data = bytearray(), list[bytes]()
    async for chunk in chunks:
        buffer += chunk
        if b"\n" in chunk:
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                field, _, value = line.rstrip(b"\r").partition(b":")
                if field == b"data":
                    data.append(value.removeprefix(b" "))
                elif not line.strip() and data:
                    event = _decode(b"\n".join(data))
                    data.clear()
                    yield event if isinstance(event, dict) else {}
        if len(buffer) > MAX_EVENT_BYTES:
            raise PlatformUnavailable(
                "An event of signal-cli is too large.", hint="It is connected anew."
            )
        yield None


async def _read_base64(chunks: AsyncIterator[bytes], status: int) -> AsyncIterator[bytes]:
    """Yield the bytes in the field `data` of an answer; raise the error that it has instead."""
    head, rest, is_inside = b"", b"", False
    async for chunk in chunks:
        piece = chunk
        if not is_inside:
            head += chunk
            start = _DATA.search(head)
            if start is None or b'"error"' in head[: start.start()]:
                if len(head) > _MAX_HEAD:
                    break
                continue
            is_inside, piece = True, head[start.end() :]
        text, quote_mark, _ = (rest + piece).partition(b'"')
        text = text.replace(b"\\/", b"/")
        whole = len(text) if quote_mark else len(text) // 4 * 4
        try:
            yield base64.b64decode(text[:whole], validate=True)
        except binascii.Error:
            raise Refused("A file of Signal cannot be read.", hint="It is broken.") from None
        if quote_mark:
            return
        rest = text[whole:]
    if is_inside:
        raise PlatformUnavailable("A file of Signal broke off.", hint="It is tried again.")
    try:
        read_answer("getAttachment", status, head)
    except OutcomeUnknown as problem:
        raise PlatformUnavailable(problem.message, hint="It is tried again.") from None
    raise Refused("signal-cli does not have this file.", hint="It may be gone.")
