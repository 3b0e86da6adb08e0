"""Times in every form that other systems write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.transfer.importers.timestamps import (
    AWARE,
    NAIVE,
    NUMBER,
    TimestampParser,
    time_in_session_id,
)

MADRID = TimestampParser(ZoneInfo("Europe/Madrid"))
NOON = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("2026-03-28T12:00:00Z", AWARE),
        ("2026-03-28T13:00:00+01:00", AWARE),
        ("2026-03-28T13:00:00", NAIVE),
        (" 2026-03-28 13:00 ", NAIVE),
        (NOON // 1_000_000, NUMBER),
        (NOON // 1_000, NUMBER),
        (NOON, NUMBER),
        (str(NOON // 1_000_000), NUMBER),
    ],
)
def test_one_moment_in_every_form(value: object, form: str) -> None:
    assert MADRID.parse(value) == (NOON, form)
    assert MADRID.micros(value) == NOON


@pytest.mark.parametrize(
    "value", [None, True, "", "yesterday", -1, 1e30, float("nan"), [], "9999-99-99"]
)
def test_other_values_are_no_times(value: object) -> None:
    assert MADRID.parse(value) is None
    assert MADRID.micros(value) is None


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
)
def test_aware_times_keep_their_moment(moment: datetime, offset: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    timestamp = MADRID.parse(aware.isoformat())
    assert timestamp is not None
    assert datetime.fromtimestamp(0, UTC) + timedelta(microseconds=timestamp.micros) == aware


def test_session_id_begins_with_its_time() -> None:
    zone = ZoneInfo("Europe/Madrid")
    assert time_in_session_id("20260328_130000_59532831", zone) == NOON
    assert time_in_session_id("no_time_at_all", zone) is None


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_session_id_with_an_impossible_year_has_no_time(zone: str) -> None:
    assert time_in_session_id("00010101_000000_59532831", ZoneInfo(zone)) is None
    assert time_in_session_id("99991231_235959_59532831", ZoneInfo(zone)) in (
        None,
        253_402_268_399_000_000,
    )
