"""`tertulia usage`: sums, what is unknown, and the moments people mean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tertulia.cli.usage import moment
from tertulia.errors import ConfigError
from tests.cli.conftest import Demo, Typed

MADRID = ZoneInfo("Europe/Madrid")


class TestTable:
    def test_by_model_the_largest_first(self, typed: Typed) -> None:
        lines = typed("usage", "--by", "model").stdout.splitlines()
        assert lines[0].split("  ")[0] == "model"
        assert lines[1].split() == ["nobody-knows-its-price", "10,000", "10", "0", "0", "10,010",
                                    "unknown"]  # fmt: skip
        assert lines[2].split() == ["gpt-5-mini", "812", "64", "2,048", "0", "2,924", "$0.0123"]
        assert lines[3].split() == ["total", "10,812", "74", "2,048", "0", "12,934", "≥", "$0.0123"]

    @pytest.mark.parametrize("by", ["day", "platform", "person", "session"])
    def test_every_way(self, typed: Typed, by: str) -> None:
        assert typed("usage", "--by", by).stdout.startswith(by)

    def test_an_id_is_never_cut(
        self, typed: Typed, demo: Demo, at_terminal: Callable[[int], None]
    ) -> None:
        at_terminal(80)
        lines = typed("usage", "--by", "session").stdout.splitlines()
        assert lines[0].split() == ["session", "input", "output", "cached", "total", "cost"]
        assert [line.split()[0] for line in lines[1:]] == [demo.new, demo.old, "total"]

    def test_no_calls(self, typed: Typed) -> None:
        assert "in that time" in typed("usage", "--until", "1999-12-31").stdout
        typed = Typed("new.db")
        typed("store", "migrate")
        assert typed("usage").stdout == "No model was called yet.\n"


class TestJson:
    def test_groups_and_their_sum(self, typed: Typed) -> None:
        told = typed.json("usage", "--by", "model")
        assert {group["model"] for group in told["groups"]} == {
            "gpt-5-mini",
            "nobody-knows-its-price",
        }
        assert told["total"] == {
            "input": 10_812,
            "output": 74,
            "cache_read": 2048,
            "cache_write": 0,
            "reasoning": 0,
            "total": 12_934,
            "cost_usd": 0.0123,
            "cost_status": "unknown",
        }

    def test_unknown_is_never_nothing(self, typed: Typed) -> None:
        groups = typed.json("usage", "--by", "model")["groups"]
        unknown = next(group for group in groups if group["model"] != "gpt-5-mini")
        assert (unknown["cost_usd"], unknown["cost_status"]) == (None, "unknown")

    def test_since_and_until(self, typed: Typed, demo: Demo) -> None:
        day = f"{datetime.strptime(demo.old[:8], '%Y%m%d').replace(tzinfo=UTC):%Y-%m-%d}"
        assert len(typed.json("usage")["groups"]) == 2
        only = typed.json("usage", "--since", day, "--until", day)
        assert [group["day"] for group in only["groups"]] == [day]
        assert only["since"] == f"{day}T00:00:00+00:00"


class TestMoment:
    def test_a_date_is_its_whole_day(self) -> None:
        # The 29th of March 2026 has 23 hours in Madrid.
        start = moment("2026-03-29", MADRID, option="--since")
        end = moment("2026-03-29", MADRID, option="--until", is_end=True)
        assert start.astimezone(UTC) == datetime(2026, 3, 28, 23, tzinfo=UTC)
        assert end.astimezone(UTC) == datetime(2026, 3, 29, 22, tzinfo=UTC)

    def test_a_time_is_itself(self) -> None:
        found = moment("2026-03-01T18:30", MADRID, option="--until", is_end=True)
        assert found.astimezone(UTC) == datetime(2026, 3, 1, 17, 30, tzinfo=UTC)
        told = moment("2026-03-01T18:30-05:00", MADRID, option="--since")
        assert told.astimezone(UTC) == datetime(2026, 3, 1, 23, 30, tzinfo=UTC)

    @pytest.mark.parametrize(
        "text", ["", "yesterday", "2026-13-01", "9999-12-31", "0001-01-01T00:00", "12:00"]
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="no date and no time"):
            moment(text, MADRID, option="--since")

    def test_the_error_names_the_option(self, typed: Typed) -> None:
        error = typed.error("usage", "--until", "soon", expect=2)
        assert error["message"].startswith("--until is 'soon'")
