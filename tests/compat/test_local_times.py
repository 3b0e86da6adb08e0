"""Naive local times and aware times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tertulia.compat.local_times import to_local, to_utc
from tertulia.errors import ConfigError

TOO_EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize("month", [1, 7])
def test_local_time_round_trips(month: int) -> None:
    moment = datetime(2026, month, 4, 12, 30, tzinfo=UTC)
    assert to_local(moment).tzinfo is None
    assert to_utc(to_local(moment)) == moment


def test_aware_time_keeps_its_moment() -> None:
    moment = datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=9)))
    assert to_utc(moment) == moment
    assert to_utc(moment).tzinfo is UTC


@pytest.mark.parametrize("value", ["2026-03-04", None, TOO_EARLY])
def test_time_that_cannot_be_stored_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="cannot be stored"):
        to_utc(value)  # type: ignore[arg-type]
