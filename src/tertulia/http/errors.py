"""Errors as they are told over HTTP: one form, which OpenAI's clients read too."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from starlette.responses import Response

from tertulia.errors import (
    AccessDenied,
    AgentError,
    AgentTimeout,
    AgentUnavailable,
    BudgetExceeded,
    ConfigError,
    Conflict,
    Error,
    IllegalMove,
    NotFound,
    PlaceUnavailable,
    PlatformError,
    RateLimited,
    StoreError,
)
from tertulia.http.auth import (
    TooManyRequests,
    Unauthorized,
)
from tertulia.http.encoding import encoded

log = logging.getLogger("tertulia.http")


class BodyTooLarge(Error):
    """The request is too large."""

    code = "body_too_large"


class BodyTooSlow(Error):
    """The request comes in too slowly."""

    code = "body_too_slow"
    retryable = True


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `code` is for programs, `hint` says what to do next."""

    message: str
    type: str
    code: str
    hint: str | None = None
    param: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail


# The first that fits; a more special error stands before a general one.
_STATUS: tuple[tuple[type[Error], int, str], ...] = (
    (Unauthorized, 401, "authentication_error"),
    (AccessDenied, 403, "permission_error"),
    (NotFound, 404, "not_found_error"),
    (BodyTooSlow, 408, "invalid_request_error"),
    (Conflict, 409, "conflict_error"),
    (BodyTooLarge, 413, "invalid_request_error"),
    (TooManyRequests, 429, "rate_limit_error"),
    (RateLimited, 429, "rate_limit_error"),
    (BudgetExceeded, 429, "insufficient_quota"),
    (ConfigError, 400, "invalid_request_error"),
    (IllegalMove, 400, "invalid_request_error"),
    (AgentTimeout, 504, "agent_error"),
    (AgentUnavailable, 503, "agent_error"),
    (AgentError, 502, "agent_error"),
    (PlatformError, 503, "platform_error"),
    (PlaceUnavailable, 503, "place_error"),
    (StoreError, 503, "store_error"),
)
# What a provider or a database said is for the logs.
_UNTOLD = (AgentError, StoreError)


def status_of(problem: Error) -> tuple[int, str]:
    for kind, status, name in _STATUS:
        if isinstance(problem, kind):
            return status, name
    return 500, "server_error"


def error_detail(problem: Error) -> ErrorDetail:
    _, name = status_of(problem)
    is_told = not isinstance(problem, _UNTOLD)
    return ErrorDetail(
        message=problem.message if is_told else (type(problem).__doc__ or "").strip(),
        type=name,
        code=problem.code,
        hint=problem.hint if is_told else "Look at the log of the gateway.",
        param=problem.data.get("field"),
    )


def refusal(problem: Error) -> Response:
    """The response for an error."""
    status, _ = status_of(problem)
    if status >= 500:
        log.warning("a request failed: %s", problem)
    headers = {}
    after = problem.data.get("retry_after")
    if after is None and problem.retryable:
        after = 1
    if after is not None:
        headers["Retry-After"] = str(max(1, round(after)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(ErrorBody(error_detail(problem)), status, headers)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, media_type="application/json")
