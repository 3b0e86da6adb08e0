"""`tertulia usage`: sums, unknown costs, and the times of --since and --until."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tertulia.cli.usage import parse_time
from tertulia.errors import ConfigError
from tests.cli.conftest import CommandLine, Demo

MADRID = ZoneInfo("Europe/Madrid")


class TestTable:
    def test_by_model_sorts_by_total(self, cli: CommandLine) -> None:
        lines = cli("usage", "--by", "model").stdout.splitlines()
        assert lines[0].split("  ")[0] == "model"
        assert lines[1].split() == ["nobody-knows-its-price", "10,000", "10", "0", "0", "10,010",
                                    "unknown"]  # fmt: skip
        assert lines[2].split() == ["gpt-5-mini", "812", "64", "2,048", "0", "2,924", "$0.0123"]
        assert lines[3].split() == ["total", "10,812", "74", "2,048", "0", "12,934", "≥", "$0.0123"]

    @pytest.mark.parametrize("by", ["day", "platform", "person", "session"])
    def test_every_grouping(self, cli: CommandLine, by: str) -> None:
        assert cli("usage", "--by", by).stdout.startswith(by)

    def test_session_ids_are_never_cut(
        self, cli: CommandLine, demo: Demo, set_width: Callable[[int], None]
    ) -> None:
        set_width(80)
        lines = cli("usage", "--by", "session").stdout.splitlines()
        assert lines[0].split() == ["session", "input", "output", "cached", "total", "cost"]
        assert [line.split()[0] for line in lines[1:]] == [demo.new, demo.old, "total"]

    def test_no_model_calls(self, cli: CommandLine) -> None:
        assert "in that time" in cli("usage", "--until", "1999-12-31").stdout
        cli = CommandLine("new.db")
        cli("store", "migrate")
        assert cli("usage").stdout == "No model was called yet.\n"


class TestJson:
    def test_groups_and_total(self, cli: CommandLine) -> None:
        text = cli.json("usage", "--by", "model")
        assert {group["model"] for group in text["groups"]} == {
            "gpt-5-mini",
            "nobody-knows-its-price",
        }
        assert text["total"] == {
            "input": 10_812,
            "output": 74,
            "cache_read": 2048,
            "cache_write": 0,
            "reasoning": 0,
            "total": 12_934,
            "cost_usd": 0.0123,
            "cost_status": "unknown",
        }

    def test_unknown_cost_is_not_zero(self, cli: CommandLine) -> None:
        groups = cli.json("usage", "--by", "model")["groups"]
        unknown = next(group for group in groups if group["model"] != "gpt-5-mini")
        assert (unknown["cost_usd"], unknown["cost_status"]) == (None, "unknown")

    def test_since_and_until(self, cli: CommandLine, demo: Demo) -> None:
        day = f"{datetime.strptime(demo.old[:8], '%Y%m%d').replace(tzinfo=UTC):%Y-%m-%d}"
        assert len(cli.json("usage")["groups"]) == 2
        only = cli.json("usage", "--since", day, "--until", day)
        assert [group["day"] for group in only["groups"]] == [day]
        assert only["since"] == f"{day}T00:00:00+00:00"


class TestParseTime:
    def test_date_means_its_whole_day(self) -> None:
        # The 29th of March 2026 has 23 hours in Madrid.
        start = parse_time("2026-03-29", MADRID, option="--since")
        end = parse_time("2026-03-29", MADRID, option="--until", is_end=True)
        assert start.astimezone(UTC) == datetime(2026, 3, 28, 23, tzinfo=UTC)
        assert end.astimezone(UTC) == datetime(2026, 3, 29, 22, tzinfo=UTC)

    def test_time_keeps_its_zone(self) -> None:
        found = parse_time("2026-03-01T18:30", MADRID, option="--until", is_end=True)
        assert found.astimezone(UTC) == datetime(2026, 3, 1, 17, 30, tzinfo=UTC)
        text = parse_time("2026-03-01T18:30-05:00", MADRID, option="--since")
        assert text.astimezone(UTC) == datetime(2026, 3, 1, 23, 30, tzinfo=UTC)

    @pytest.mark.parametrize("text", ["", "someday", "2026-13-01", "12:00"])
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="not a date and not a time"):
            parse_time(text, MADRID, option="--since")

    @pytest.mark.parametrize("text", ["9999-12-31", "9999-12-31T00:00", "0001-01-01T00:00"])
    def test_time_that_is_too_far_away_is_refused_as_such(self, text: str) -> None:
        with pytest.raises(ConfigError, match="before 1970 or after 9998"):
            parse_time(text, MADRID, option="--since")

    def test_error_names_the_option(self, cli: CommandLine) -> None:
        error = cli.error("usage", "--until", "soon", expect=2)
        assert error["message"].startswith("--until is 'soon'")
