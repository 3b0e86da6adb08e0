"""Answers and errors of a homeserver."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.http_library import PathMissing
from tertulia.platforms.matrix.client_api import _retry_after, encode, error_of


def test_lone_surrogates_are_replaced() -> None:
    assert json.loads(encode({"body": "a\ud800b"})) == {"body": "a?b"}


@pytest.mark.parametrize(
    ("status", "code", "error", "read_error"),
    [
        (429, "M_LIMIT_EXCEEDED", RateLimited, RateLimited),
        (429, "", RateLimited, RateLimited),
        (401, "M_UNKNOWN_TOKEN", AccountProblem, AccountProblem),
        (401, "M_MISSING_TOKEN", AccountProblem, AccountProblem),
        (403, "M_USER_DEACTIVATED", AccountProblem, AccountProblem),
        (403, "M_FORBIDDEN", Refused, Refused),
        (404, "M_NOT_FOUND", Refused, Refused),
        (400, "M_BAD_JSON", Refused, Refused),
        (413, "M_TOO_LARGE", TooLarge, TooLarge),
        (413, "", TooLarge, TooLarge),
        (403, "M_RESOURCE_LIMIT_EXCEEDED", PlatformUnavailable, PlatformUnavailable),
        (404, "", PlatformUnavailable, PathMissing),
        (405, "", PlatformUnavailable, PathMissing),
        (401, "", PlatformUnavailable, PlatformUnavailable),
        (301, "", PlatformUnavailable, PlatformUnavailable),
        (500, "M_UNKNOWN", OutcomeUnknown, PlatformUnavailable),
        (502, "", OutcomeUnknown, PlatformUnavailable),
    ],
)
def test_status_and_code_decide_what_becomes_of_a_message(
    status: int, code: str, error: type[PlatformError], read_error: type[PlatformError]
) -> None:
    response, answer = httpx2.Response(status), {"errcode": code} if code else None
    assert type(error_of(response, answer, is_read=False)) is error
    assert type(error_of(response, answer, is_read=True)) is read_error


@pytest.mark.parametrize(
    ("answer", "header", "seconds"),
    [({"retry_after_ms": 2500}, "", 2.5), ({}, "7", 7.0), ({}, "soon", 1.0),
     ({"retry_after_ms": "x"}, "", 1.0), ({"retry_after_ms": 10**9}, "", 3600.0),
     ({"retry_after_ms": 10**400}, "", 3600.0), ({}, "9" * 5000, 3600.0), ({}, "²", 1.0),
     ({}, "0", 1.0), ({}, "Wed, 21 Oct 2026 07:28:00 GMT", 1.0)],
)  # fmt: skip
def test_homeserver_says_how_long_to_wait(
    answer: dict[str, Any], header: str, seconds: float
) -> None:
    response = httpx2.Response(429, headers=[(b"retry-after", header.encode("latin-1"))])
    assert _retry_after(response, answer) == seconds
