"""The page of usage: sums of some days, and the sessions of one day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import tertulia
from tertulia import Source, Usage
from tertulia.console.usage_page import sum_models
from tertulia.testing import FakeClock
from tests.console.served_console import served_console
from tests.console.test_app import fill_list


def test_sessions_are_listed_for_one_day(tmp_path: Path) -> None:
    """There are no sums by session, so those of a month would be read call by call."""
    fill_list(tmp_path / "talk.db")
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        page = client.get("/console/usage").text
        assert "By person" in page
        assert "By session" not in page
        assert "For the sessions of a day" in page
        today = f"{datetime.now().astimezone():%Y-%m-%d}"
        page = client.get("/console/usage", params={"since": today, "until": today}).text
        assert "By session" in page
        assert "Trains to Madrid, plan" in page
        assert "For the sessions of a day" not in page


def test_sums_of_models_are_those_of_their_days(tmp_path: Path) -> None:
    clock = FakeClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    with tertulia.open(tmp_path / "talk.db", clock=clock) as store:
        session = store.sessions.open(Source("telegram", "1", user_id="1"))
        costs: dict[str, list[float | None]] = {
            "a": [0.5, 0.25],
            "b": [None, 0.1],
            "c": [None, None],
            "d": [0.0, 0.0],
        }
        for day in range(2):
            for model, prices in costs.items():
                price = prices[day]
                store.usage.add(
                    session.id,
                    Usage(
                        input=10 + day,
                        output=3,
                        cache_read=2,
                        model=model,
                        cost_usd=price,
                        cost_status="unknown" if price is None else "actual",
                    ),
                )
            clock.forward(days=1)
        expected = store.usage.sum(by="model")
        sums = sum_models(store.usage.by_day("model"))
    assert {name: usage.cost_usd for name, usage in sums.items()} == pytest.approx(
        {name: usage.cost_usd for name, usage in expected.items()}
    )
    for name, usage in expected.items():
        assert (sums[name].total, sums[name].cost_status) == (usage.total, usage.cost_status)
