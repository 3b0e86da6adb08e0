"""Days and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.schedule import Once, next_after, parse_rule
from tertulia.core.time_phrases import parse_plan, parse_span
from tertulia.errors import ConfigError

# A Tuesday.
NOW = datetime(2026, 11, 17, 10, 30, tzinfo=UTC)
MADRID = ZoneInfo("Europe/Madrid")


@pytest.mark.parametrize(
    ("text", "first", "days"),
    [
        ("today", "2026-11-17", 1),
        ("Yesterday", "2026-11-16", 1),
        ("monday", "2026-11-16", 1),
        ("last tue", "2026-11-10", 1),
        ("20 nov", "2025-11-20", 1),
        ("Nov 3", "2026-11-03", 1),
        ("17 november", "2026-11-17", 1),
        ("29 feb", "2024-02-29", 1),
        ("3 november 2020", "2020-11-03", 1),
    ],
)
def test_day_points_back(text: str, first: str, days: int) -> None:
    span = parse_span(text, NOW, UTC)
    begin = datetime.fromisoformat(f"{first}T00:00+00:00")
    assert span == (begin, begin + timedelta(days=days))


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("7d", timedelta(days=7)),
        ("2h ago", timedelta(hours=2)),
        ("90 min", timedelta(minutes=90)),
        ("3 weeks ago", timedelta(weeks=3)),
    ],
)
def test_span_is_a_moment_in_the_past(text: str, passed: timedelta) -> None:
    assert parse_span(text, NOW, MADRID) == (NOW - passed, NOW - passed)


def test_day_begins_at_midnight_of_the_zone() -> None:
    span = parse_span("today", datetime(2026, 11, 16, 23, 30, tzinfo=UTC), MADRID)
    assert span is not None
    assert span[0].isoformat() == "2026-11-17T00:00:00+01:00"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tomorrow at 9", "at 2026-11-18 09:00"),
        ("tomorrow 9:15", "at 2026-11-18 09:15"),
        ("today at 6 pm", "at 2026-11-17 18:00"),
        ("friday at noon", "at 2026-11-20 12:00"),
        ("tuesday at 9", "at 2026-11-24 09:00"),
        ("tuesday at 11", "at 2026-11-17 11:00"),
        ("20 nov at 9", "at 2026-11-20 09:00"),
        ("3 march, at 12am", "at 2027-03-03 00:00"),
        ("every monday 9:00", "cron 0 9 * * MON"),
        ("every mon, thu at 9", "cron 0 9 * * MON,THU"),
        ("mondays and fridays at 8:30", "cron 30 8 * * MON,FRI"),
        ("daily at 09:00", "cron 0 9 * * *"),
        ("every day at 7pm", "cron 0 19 * * *"),
        ("weekdays at 8", "cron 0 8 * * MON-FRI"),
        ("20 min", "in 20 min"),
        ("hourly", "every 1h"),
    ],
)
def test_plan_points_ahead(text: str, rule: str) -> None:
    assert parse_plan(text, NOW, UTC) == rule
    assert parse_rule(text, now=NOW, zone="UTC") == parse_rule(rule, now=NOW, zone="UTC")


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "monday", "tomorrow at 25", "at", "every", "every monday", "soon at 9",
     "tomorrow at 9 or so", "every monday and soon at 9", "13 pm", "tomorrow at 13 pm", "2h ago",
     "32 nov at 9"],
)  # fmt: skip
def test_what_is_not_understood_whole_is_refused(text: str) -> None:
    assert parse_plan(text, NOW, UTC) is None
    with pytest.raises(ConfigError):
        parse_rule(text, now=NOW, zone="UTC")


def test_rule_is_in_the_time_of_its_zone() -> None:
    rule = parse_rule("tomorrow at 9", now=NOW, zone="Europe/Madrid")
    assert rule == Once(datetime(2026, 11, 18, 8, 0, tzinfo=UTC))
    assert next_after(rule, NOW) == rule.at


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parse_span(text, NOW, UTC)
    parse_plan(text, NOW, UTC)
