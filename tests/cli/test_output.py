"""What is printed: nothing that acts, and figures that people can read."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.cli import (
    format,
    output,
)
from tertulia.core.usage import Usage

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
ANYTHING = st.text(st.characters())


class TestHarmless:
    @given(ANYTHING)
    def test_nothing_acts_on_a_terminal(self, text: str) -> None:
        shown = output.harmless(text)
        assert all(unicodedata.category(char) != "Cc" or char == "\n" for char in shown)
        assert all(unicodedata.category(char) != "Cs" for char in shown)
        assert all(
            unicodedata.bidirectional(char) not in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI",
                                                    "RLI", "FSI", "PDI") for char in shown
        )  # fmt: skip
        shown.encode()

    @given(ANYTHING, st.integers(1, 40))
    def test_one_line_is_one_and_short(self, text: str, limit: int) -> None:
        line = output.one_line(text, limit)
        assert len(line.splitlines()) <= 1
        assert len(line) <= limit

    @given(ANYTHING)
    def test_twice_is_once(self, text: str) -> None:
        assert output.harmless(output.harmless(text)) == output.harmless(text)

    @pytest.mark.parametrize("text", ["[red]x[/red]", "¿Qué?\n- 漢字", "👩‍👩‍👧", "שלום", "a  b"])
    def test_ordinary_text_stays(self, text: str) -> None:
        assert output.harmless(text) == text

    def test_what_stood_there_is_seen(self) -> None:
        assert output.harmless("\x1b[31mred\x07\x7f\x9b\ud800\r\nend\tx") == (
            "␛[31mred␇␡\ufffd\ufffd\nend    x"
        )


class TestJson:
    @given(st.recursive(ANYTHING, lambda inner: st.lists(inner) | st.dictionaries(ANYTHING, inner)))
    def test_it_reads_back_and_is_safe_to_show(self, value: object) -> None:
        text = output.to_json(value)
        assert json.loads(text) == value
        assert all(unicodedata.category(char) not in ("Cc", "Cs") or char == "\n" for char in text)
        assert "\u202e" not in text

    def test_it_reads_well(self) -> None:
        assert output.to_json({"name": "Ana López"}, indent=None) == '{"name": "Ana López"}'


class TestFigures:
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
    def test_counts(self, count: int, words: str) -> None:
        assert format.short(count) == words

    @given(st.integers(0, 10**15))
    def test_a_count_is_short(self, count: int) -> None:
        assert len(format.short(count)) <= 5

    @pytest.mark.parametrize(
        ("count", "words"), [(0, "0 bytes"), (999, "999 bytes"), (167_936, "168 kB")]
    )
    def test_sizes(self, count: int, words: str) -> None:
        assert format.size(count) == words

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
    def test_moments(self, passed: timedelta, words: str) -> None:
        assert format.when(NOW - passed, NOW, ZoneInfo("UTC")) == words

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
    def test_costs(self, usage: Usage, words: str) -> None:
        assert format.cost(usage) == words

    def test_a_sum_is_as_certain_as_its_weakest_part(self) -> None:
        parts = [
            Usage(1, 2, cost_usd=0.1, cost_status="actual"),
            Usage(1, 2, cost_usd=0.2, cost_status="estimated"),
        ]
        assert format.total(parts) == Usage(2, 4, cost_usd=0.3, cost_status="estimated")
        assert format.total([]).cost_usd is None
