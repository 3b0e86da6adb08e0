"""Counts, sizes, times and costs as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.cli import format
from tertulia.core.usage import Usage

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


class TestFormat:
    @pytest.mark.parametrize(
        ("count", "words"),
        [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (12_345, "12.3k"),
            (99_949, "99.9k"),
            (99_951, "100k"),
            (999_400, "999k"),
            (999_600, "1.0M"),
            (4_500_000_000, "4.5G"),
        ],
    )
    def test_short_count(self, count: int, words: str) -> None:
        assert format.short_count(count) == words

    @given(st.integers(0, 10**15))
    def test_short_count_has_at_most_five_characters(self, count: int) -> None:
        assert len(format.short_count(count)) <= 5

    @pytest.mark.parametrize(
        ("count", "words"), [(0, "0 bytes"), (999, "999 bytes"), (167_936, "168 kB")]
    )
    def test_byte_size(self, count: int, words: str) -> None:
        assert format.byte_size(count) == words

    @pytest.mark.parametrize(
        ("passed", "words"),
        [
            (timedelta(0), "just now"),
            (timedelta(minutes=1), "1 min ago"),
            (timedelta(minutes=59), "59 min ago"),
            (timedelta(hours=47), "47 h ago"),
            (timedelta(hours=48), "2 days ago"),
            (timedelta(days=29), "29 days ago"),
            (timedelta(days=40), "2026-01-29"),
            (timedelta(days=-1), "2026-03-11"),
        ],
    )
    def test_age_or_date(self, passed: timedelta, words: str) -> None:
        assert format.age_or_date(NOW - passed, NOW, ZoneInfo("UTC")) == words

    @pytest.mark.parametrize(
        ("usage", "words"),
        [
            (Usage(), "–"),
            (Usage(input=1), "unknown"),
            (Usage(input=1, cost_status="unknown"), "unknown"),
            (Usage(input=1, cost_usd=0.5, cost_status="unknown"), "≥ $0.5000"),
            (Usage(input=1, cost_usd=0.5, cost_status="estimated"), "≈ $0.5000"),
            (Usage(input=1, cost_usd=1234.5, cost_status="actual"), "$1,234.50"),
            (Usage(input=1, cost_usd=0.00001, cost_status="actual"), "<$0.0001"),
            (Usage(input=1, cost_usd=0.0, cost_status="actual"), "$0.00"),
            (Usage(input=1, cost_status="included"), "included"),
        ],
    )
    def test_cost_shows_its_certainty(self, usage: Usage, words: str) -> None:
        assert format.format_cost(usage) == words

    def test_sum_has_the_least_certain_cost_status(self) -> None:
        parts = [
            Usage(1, 2, cost_usd=0.1, cost_status="actual"),
            Usage(1, 2, cost_usd=0.2, cost_status="estimated"),
        ]
        assert format.sum_usage(parts) == Usage(2, 4, cost_usd=0.3, cost_status="estimated")
        assert format.sum_usage([]).cost_usd is None
