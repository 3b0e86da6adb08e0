"""Pauses of accounts that their platform refuses, for example because a token was revoked.

A paused account sends nothing, so its deliveries wait and use up no tries. After the pause one
delivery is tried; if it is sent, or the platform is heard again, the account goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from tertulia.core.backoff import JITTER
from tertulia.errors import PlatformError
from tertulia.gateway import retries
from tertulia.gateway.adapters import describe
from tertulia.records.queues.outbox import AccountKey

log = logging.getLogger("tertulia.gateway")


class _Pause(msgspec.Struct):
    problem: str
    failures: int
    until: float


class AccountPauses:
    """The accounts of one node that are paused."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[AccountKey, _Pause] = {}

    def pause(self, key: AccountKey, problem: PlatformError) -> float:
        """Pause an account, longer each time; return for how many seconds."""
        before = self._pauses.get(key)
        if before is not None and before.until > self._clock():
            return before.until - self._clock()
        failures = 1 if before is None else before.failures + 1
        seconds = problem.retry_after or retries.ACCOUNT_BACKOFF.delay(failures, JITTER.random())
        self._pauses[key] = _Pause(problem.message, failures, self._clock() + seconds)
        log.error(
            "%s is paused, trying again in %.0f s; its messages wait: %s",
            describe(key), seconds, problem,
        )  # fmt: skip
        return seconds

    def end(self, key: AccountKey) -> None:
        """End the pause of an account that works."""
        if self._pauses.pop(key, None) is not None:
            log.info("%s works again", describe(key))

    def limit(self, key: AccountKey, room: int) -> int:
        """Return how many sends may begin: none in a pause, one after it, then `room`."""
        pause = self._pauses.get(key)
        if pause is None:
            return room
        return 0 if pause.until > self._clock() else min(room, 1)

    def seconds_left(self, longest: float) -> float:
        """Return the seconds until the next pause ends, at most `longest`."""
        now = self._clock()
        ends = (pause.until - now for pause in self._pauses.values() if pause.until > now)
        return min([longest, *ends])

    def problem(self, key: AccountKey) -> str | None:
        """Return why an account is paused, or None if it is not."""
        pause = self._pauses.get(key)
        return None if pause is None else pause.problem
