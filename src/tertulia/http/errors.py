"""Error responses: one JSON form for all errors, which OpenAI's clients read too."""

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
    LimitExceeded,
    NotFound,
    PlaceUnavailable,
    PlatformError,
    ProcessCheckFailed,
    RateLimited,
    StoreError,
    TooLarge,
)
from tertulia.http.auth import TooManyRequests, Unauthorized
from tertulia.http.encoding import encode_json

log = logging.getLogger("tertulia.http")


class BodyTooLarge(Error):
    """The request body is too large."""

    code = "body_too_large"


class BodyTooSlow(Error):
    """The request body did not arrive in time."""

    code = "body_too_slow"
    retryable = True


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One error. `code` is for programs; `hint` is the next step for a person."""

    message: str
    type: str
    code: str
    hint: str | None = None
    param: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorDetail


# The first matching class counts, so a subclass must come before its base class.
_STATUS: tuple[tuple[type[Error], int, str], ...] = (
    (Unauthorized, 401, "authentication_error"),
    (AccessDenied, 403, "permission_error"),
    (NotFound, 404, "not_found_error"),
    (BodyTooSlow, 408, "invalid_request_error"),
    (Conflict, 409, "conflict_error"),
    (BodyTooLarge, 413, "invalid_request_error"),
    (TooLarge, 413, "invalid_request_error"),
    (TooManyRequests, 429, "rate_limit_error"),
    (RateLimited, 429, "rate_limit_error"),
    (LimitExceeded, 429, "rate_limit_error"),
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
# Messages of these may quote a provider, a database or code; they go to the log only.
_LOG_ONLY = (AgentError, ProcessCheckFailed, StoreError)


def status_of(problem: Error) -> tuple[int, str]:
    """Return the status code and the error type of an error."""
    for kind, status, name in _STATUS:
        if isinstance(problem, kind):
            return status, name
    return 500, "server_error"


def error_detail(problem: Error) -> ErrorDetail:
    """Return the part of an error that a client may see."""
    _, name = status_of(problem)
    is_public = not isinstance(problem, _LOG_ONLY)
    return ErrorDetail(
        message=problem.message if is_public else (type(problem).__doc__ or "").strip(),
        type=name,
        code=problem.code,
        hint=problem.hint if is_public else "The log of the gateway has the details.",
        param=problem.field if isinstance(problem, ConfigError) else None,
    )


def error_response(problem: Error) -> Response:
    """Return the response for an error, and log it if the fault is on this side."""
    status, _ = status_of(problem)
    if status >= 500:
        log.warning("HTTP request failed, answering %d: %s", status, problem)
    headers = {}
    seconds = problem.retry_after
    if seconds is None and problem.retryable:
        seconds = 1
    if seconds is not None:
        headers["Retry-After"] = str(max(1, round(seconds)))
    if _may_not_retry(problem, status):
        headers["x-should-retry"] = "false"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(ErrorBody(error_detail(problem)), status, headers)


def _may_not_retry(problem: Error, status: int) -> bool:
    """Return whether a client that retries by itself, as OpenAI's do, must not.

    After a fault of the agent the message is stored; sent again it would stand there twice.
    """
    return (status >= 500 or status == 429) and (
        not problem.retryable or isinstance(problem, AgentError)
    )


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response."""
    return Response(encode_json(value), status, headers, media_type="application/json")
