"""The limits of Discord's REST API: what a header says, and how long a request waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tertulia.platforms.discord.rate_buckets import (
    DEFAULT_PAUSE,
    RateBuckets,
    Route,
    is_global,
    retry_after,
)

SEND = Route("POST /channels/#/messages", "1")


def limits(left: object, seconds: object, bucket: str = "") -> dict[str, str]:
    headers = {"x-ratelimit-remaining": str(left), "x-ratelimit-reset-after": str(seconds)}
    return headers | ({"x-ratelimit-bucket": bucket} if bucket else {})


def test_used_up_limit_is_waited_for_in_its_channel_only() -> None:
    buckets = RateBuckets()
    assert buckets.pause(SEND, 0.0) == 0
    buckets.learn(SEND, 200, limits(0, 5), {}, 100.0)
    assert buckets.pause(SEND, 102.0) == 3
    assert buckets.pause(Route(SEND.key, "2"), 102.0) == 0
    assert buckets.pause(SEND, 105.0) == 0


def test_requests_use_up_what_is_left() -> None:
    buckets = RateBuckets()
    buckets.learn(SEND, 200, limits(2, 5), {}, 100.0)
    for _ in range(2):
        assert buckets.pause(SEND, 101.0) == 0
        buckets.take(SEND, 101.0)
    assert buckets.pause(SEND, 101.0) == 4
    buckets.take(SEND, 106.0)  # the limit has begun anew
    assert buckets.pause(SEND, 106.0) == 0


def test_routes_of_one_bucket_share_its_limit() -> None:
    buckets, edit = RateBuckets(), Route("PATCH /channels/#/messages/#", "1")
    buckets.learn(edit, 200, limits(5, 5, "shared"), {}, 100.0)
    buckets.learn(SEND, 200, limits(0, 5, "shared"), {}, 100.0)
    assert buckets.pause(edit, 100.0) == 5


def test_global_limit_stops_every_route() -> None:
    buckets = RateBuckets()
    buckets.learn(SEND, 429, {}, {"retry_after": 7.5, "global": True}, 100.0)
    assert buckets.pause(Route("GET /users/@me"), 101.0) == 6.5
    assert buckets.pause(Route("GET /users/@me"), 108.0) == 0


def test_refusal_of_one_channel_does_not_stop_the_others() -> None:
    buckets = RateBuckets()
    buckets.learn(SEND, 429, {}, {"retry_after": 7.5}, 100.0)
    assert buckets.pause(SEND, 100.0) == 7.5
    assert buckets.pause(Route(SEND.key, "2"), 100.0) == 0


def test_too_many_refused_requests_pause_everything() -> None:
    """10,000 of them in ten minutes ban the address of the machine."""
    buckets, other = RateBuckets(), Route("GET /users/@me")
    for number in range(4_999):
        buckets.learn(SEND, 403, {}, {}, number / 100)
    buckets.learn(SEND, 429, {"x-ratelimit-scope": "shared"}, {"retry_after": 0.1}, 50.0)
    assert buckets.pause(other, 50.0) == 0  # a limit that others share is not counted
    buckets.learn(SEND, 401, {}, {}, 50.0)
    assert buckets.pause(other, 50.0) == 550
    assert buckets.pause(other, 601.0) == 0


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({}, {"retry_after": 1.5}, 1.5),
        ({"retry-after": "9"}, {"retry_after": 1.5}, 1.5),
        ({"retry-after": "9"}, "<html>", 9.0),
        ({}, {"retry_after": 0}, 0.05),
        ({}, {"retry_after": True}, DEFAULT_PAUSE),
        ({"retry-after": "soon"}, {"retry_after": -1}, DEFAULT_PAUSE),
        ({}, {"retry_after": "nan"}, DEFAULT_PAUSE),
        ({}, {"retry_after": 1e300}, DEFAULT_PAUSE),
        ({}, None, DEFAULT_PAUSE),
    ],
)
def test_pause_that_is_asked_for(headers: Mapping[str, str], body: Any, seconds: float) -> None:
    assert retry_after(headers, body) == seconds


def test_refusal_without_a_reason_comes_from_before_the_api() -> None:
    assert is_global({}, "<html>")
    assert is_global({"x-ratelimit-global": "true"}, {})
    assert not is_global({}, {"global": "yes"})


@pytest.mark.parametrize("headers", [limits("x", 5), limits(0, "x"), limits(0, "inf"), {}])
def test_headers_that_say_nothing_stop_nothing(headers: dict[str, str]) -> None:
    buckets = RateBuckets()
    buckets.learn(SEND, 200, headers, {}, 100.0)
    assert buckets.pause(SEND, 100.0) == 0
