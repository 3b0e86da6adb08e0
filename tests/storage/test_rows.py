"""Rows of the database converted to values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import StoreCorrupt
from tertulia.storage import rows


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_survive_the_round_trip_exactly(at: datetime) -> None:
    assert rows.from_micros(rows.to_micros(at)) == at


def test_one_microsecond_is_one() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert rows.to_micros(at + timedelta(microseconds=1)) == rows.to_micros(at) + 1


def test_time_out_of_range_is_corrupt() -> None:
    with pytest.raises(StoreCorrupt, match="a time"):
        rows.from_micros(2**63 - 1)


@pytest.mark.parametrize("ranges", ["{", "[[1]]", "7", "null"])
def test_ranges_that_cannot_be_parsed_are_corrupt(ranges: str) -> None:
    with pytest.raises(StoreCorrupt, match="a revision"):
        rows.parse_view(ranges)


def test_body_that_cannot_be_parsed_is_corrupt() -> None:
    assert rows.parse_body('{"role":"user"}') == {"role": "user"}
    with pytest.raises(StoreCorrupt, match="a message"):
        rows.parse_body('{"role":')


def test_corrupt_error_names_the_subject_and_the_reason() -> None:
    error = rows.corrupt_error("session 7", ValueError("bad json"))
    assert "session 7" in str(error)
    assert "bad json" in str(error)
    assert "store check" in (error.hint or "")


def test_source_that_comes_again_is_not_parsed_again() -> None:
    text = '{"platform": "telegram", "chat_id": "42", "chat_type": "party"}'
    first = rows.parse_source(text)
    assert (first.platform, first.chat_id, first.chat_type) == ("telegram", "42", "party")
    assert rows.parse_source(text) is first
    assert rows.parse_source(text.replace("42", "43")).chat_id == "43"
