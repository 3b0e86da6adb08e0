from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tertulia import ConfigError
from tertulia.core.clock import SystemClock, UtcClock

TOKYO = timezone(timedelta(hours=9))


class FixedClock:
    def __init__(self, time: datetime) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


def test_system_clock_is_in_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert before <= now <= datetime.now(UTC)
    assert now.tzinfo is UTC


def test_supplied_clock_is_converted_to_utc() -> None:
    clock = UtcClock(FixedClock(datetime(2026, 5, 1, 6, tzinfo=TOKYO)))
    assert clock.now() == datetime(2026, 4, 30, 21, tzinfo=UTC)
    assert clock.now().tzinfo is UTC


def test_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="no time zone") as caught:
        UtcClock(FixedClock(datetime(2026, 5, 1, 6))).now()
    assert caught.value.field == "clock"


@pytest.mark.parametrize("value", [None, 5, "2026-05-01"])
def test_clock_that_returns_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="clock") as caught:
        UtcClock(FixedClock(value)).now()
    assert caught.value.field == "clock"


@pytest.mark.parametrize("clock", [5, datetime(2026, 5, 1, tzinfo=UTC).isoformat(), []])
def test_object_without_now_is_no_clock(clock: Any) -> None:
    with pytest.raises(ConfigError, match="clock") as caught:
        UtcClock.of(clock)
    assert caught.value.field == "clock"
