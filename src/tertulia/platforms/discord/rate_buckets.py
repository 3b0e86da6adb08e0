"""The limits of Discord's REST API, as the headers of its answers tell them.

A route belongs to a bucket that Discord names; a bucket is counted for each channel, server or
webhook. A global limit stops everything. Too many refused requests ban the address of the machine
(10,000 in ten minutes), so that they are counted here, and all requests pause long before that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final

# The pause after a 429 that names none.
DEFAULT_PAUSE: Final = 5.0
_MAX_REFUSED: Final = 5_000
_WINDOW_SECONDS: Final = 600.0
_MAX_BUCKETS: Final = 10_000


class Route:
    """A method and a path without its ids, and the id that its limit is counted for."""

    __slots__ = ("key", "major")

    def __init__(self, key: str, major: str = "") -> None:
        self.key = key
        self.major = major


class RateBuckets:
    """How much of each limit is left. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._left: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._global_until = 0.0
        self._refused: deque[float] = deque()

    def pause(self, route: Route, now: float) -> float:
        """Return the seconds to wait before a request; 0 if it may be sent now."""
        left, until = self._left.get(self._bucket(route), (1, 0.0))
        end = self._global_until if left > 0 else max(until, self._global_until)
        while self._refused and self._refused[0] <= now - _WINDOW_SECONDS:
            self._refused.popleft()
        if len(self._refused) >= _MAX_REFUSED:
            end = max(end, self._refused[0] + _WINDOW_SECONDS)
        return max(0.0, end - now)

    def take(self, route: Route, now: float) -> None:
        """Count a request that is sent now."""
        bucket = self._bucket(route)
        left, until = self._left.get(bucket, (0, 0.0))
        if until > now:
            self._left[bucket] = left - 1, until

    def learn(
        self, route: Route, status: int, headers: Mapping[str, str], body: Any, now: float
    ) -> None:
        """Take over what an answer says about the limits."""
        name = headers.get("x-ratelimit-bucket")
        if name:
            self._names[route.key] = name
        left = _number(headers.get("x-ratelimit-remaining"))
        seconds = _number(headers.get("x-ratelimit-reset-after"))
        if left is not None and seconds is not None:
            self._store(route, int(left), now + seconds)
        if status in (401, 403, 429) and headers.get("x-ratelimit-scope") != "shared":
            self._refused.append(now)
        if status == 429:
            until = now + retry_after(headers, body)
            if is_global(headers, body):
                self._global_until = max(self._global_until, until)
            else:
                self._store(route, 0, until)

    def _bucket(self, route: Route) -> tuple[str, str]:
        return self._names.get(route.key, route.key), route.major

    def _store(self, route: Route, left: int, until: float) -> None:
        bucket = self._bucket(route)
        self._left[bucket] = left, until
        self._left.move_to_end(bucket)
        while len(self._left) > _MAX_BUCKETS:
            self._left.popitem(last=False)


def retry_after(headers: Mapping[str, str], body: Any) -> float:
    """Return the pause that a 429 asks for, in seconds."""
    value = body.get("retry_after") if isinstance(body, dict) else None
    seconds = _number(value)
    if seconds is None:
        seconds = _number(headers.get("retry-after"))
    return DEFAULT_PAUSE if seconds is None else max(0.05, seconds)


def is_global(headers: Mapping[str, str], body: Any) -> bool:
    """Return whether a 429 stops the whole bot. One without a reason comes from before the API."""
    if not isinstance(body, dict):
        return True
    return body.get("global") is True or headers.get("x-ratelimit-global") == "true"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < 1e7 else None
