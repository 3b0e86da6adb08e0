"""The clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tertulia.testing import FakeClock


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    start = clock.now()
    assert clock.now() == start
    assert clock.forward(days=1, hours=2, minutes=3, seconds=4) == clock.now()
    assert clock.now() - start == timedelta(days=1, hours=2, minutes=3, seconds=4)


def test_a_negative_number_moves_the_clock_back() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.forward(hours=-1) == datetime(2025, 12, 31, 23, tzinfo=UTC)
