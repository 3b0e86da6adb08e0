"""The usage ledger on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import tertulia
from tertulia import ConfigError, NotFound, Settings, Source, Store, Usage
from tertulia.core import prices
from tertulia.records.usage import charge
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store


def test_sum_of_priced_and_unpriced_calls_is_marked_unknown(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.usage.add(session.id, Usage(10, 1, cost_usd=0.5))
    assert store.usage.sum("session")[session.id].cost_status == "actual"
    store.usage.add(session.id, Usage(5, 1, model="no such model"))
    total = store.usage.sum("session")[session.id]
    assert (total.input, total.output, total.cost_usd) == (15, 2, 0.5)
    assert total.cost_status == "unknown"


def test_days_and_times_limit_the_sum(store: Store, clock: FakeClock) -> None:
    session = store.sessions.open(ANA)
    store.usage.add(session.id, Usage(1))
    tomorrow = clock.forward(days=1)
    store.usage.add(session.id, Usage(2))
    assert {day: usage.input for day, usage in store.usage.sum("day").items()} == {
        "2026-03-04": 1,
        "2026-03-05": 2,
    }
    assert store.usage.sum("person", since=tomorrow)["telegram:42"].input == 2
    before = tomorrow - timedelta(hours=1)
    assert store.usage.sum("person", until=before)["telegram:42"].input == 1


def test_wrong_arguments_are_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="Allowed: day, model"):
        store.usage.sum("hour")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no time zone"):
        store.usage.sum(since=datetime(2026, 3, 4))
    with pytest.raises(NotFound):
        store.usage.add("nobody", Usage(1))
    with pytest.raises(ConfigError, match="Give Usage"):
        store.usage.add(store.sessions.open(ANA).id, 5)  # type: ignore[arg-type]


def test_reported_cost_is_kept_and_missing_cost_is_estimated() -> None:
    prices._get_rates.cache_clear()  # another test may have hidden the price list
    reported = charge(Usage(1_000_000, model="gpt-4o", cost_usd=0.25, cost_source="invoice"))
    assert (reported["cost"], reported["cost_source"]) == (250_000_000, "invoice")
    estimated = charge(Usage(1_000_000, model="gpt-4o"))
    assert estimated["cost"] > 0
    assert estimated["cost_source"] == prices.SOURCE
    assert charge(Usage(1, model="no such model"))["cost"] is None
