from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import tertulia
from tertulia import Source, Usage
from tertulia.core.text import format as formats


def test_session_is_named_by_its_title_or_its_origin(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        session = store.sessions.open(Source("telegram", "42", user_name="Ana"))
        assert formats.session_name(session) == "DM with Ana"
        assert formats.session_state(session) == "current"
        store.sessions.rename(session.id, "Oslo")
        store.sessions.end(session.id, "new")
        session = store.sessions.require(session.id)
    assert formats.session_name(session) == "Oslo"
    assert formats.session_state(session) == "ended: new"


def test_time_is_shown_in_the_zone() -> None:
    time = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
    assert formats.format_time(time, ZoneInfo("Europe/Madrid")) == "2026-07-02 01:30:00"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (0.00001, "<$0.0001"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")],
)
def test_small_amounts_have_four_decimals(amount: float, text: str) -> None:
    assert formats.format_dollars(amount) == text


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(), "–"),
        (Usage(5), "unknown"),
        (Usage(5, cost_usd=2, cost_status="actual"), "$2.00"),
        (Usage(5, cost_usd=2, cost_status="estimated"), "≈ $2.00"),
        (Usage(5, cost_usd=2, cost_status="unknown"), "≥ $2.00"),
        (Usage(5, cost_usd=0, cost_status="unknown"), "unknown"),
        (Usage(5, cost_status="included"), "included"),
    ],
)
def test_cost_shows_how_certain_it_is(usage: Usage, text: str) -> None:
    assert formats.format_cost(usage) == text


def test_utc_text_ends_in_z() -> None:
    assert formats.utc_text(datetime(2026, 3, 4, 12, 30, tzinfo=UTC)) == "2026-03-04T12:30:00Z"
    assert formats.utc_text(None) is None
