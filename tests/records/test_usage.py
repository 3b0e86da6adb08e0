"""The usage ledger on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import ConfigError, NotFound, Settings, Source, Store, Usage
from tertulia.core import prices
from tertulia.records.usage import GROUPINGS, charge
from tertulia.testing import FakeClock
from tests.storage.store_internals import sqlite_of

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


@given(
    calls=st.lists(st.integers(0, 4000), min_size=1, max_size=12),
    since=st.none() | st.integers(-10, 4010),
    length=st.none() | st.integers(-5, 4010),
)
def test_sum_of_any_range_is_that_of_its_calls(
    calls: list[int], since: int | None, length: int | None
) -> None:
    """The limits may divide a quarter of an hour, or both lie in one."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(zone="UTC", durability="fast")
        clock = FakeClock()
        begin = clock.now()
        with tertulia.open(Path(folder, "talk.db"), settings=settings, clock=clock) as store:
            session = store.sessions.open(ANA)
            for number, second in enumerate(sorted(calls)):
                clock.forward(seconds=second - (clock.now() - begin).total_seconds())
                store.usage.add(session.id, Usage(2**number, model=f"m{number % 2}"))
            until = None if length is None else (since or 0) + length
            expected = sum(
                2**number
                for number, second in enumerate(sorted(calls))
                if (since is None or second >= since) and (until is None or second < until)
            )
            limits = {
                name: begin + timedelta(seconds=value)
                for name, value in (("since", since), ("until", until))
                if value is not None
            }
            for by in GROUPINGS:
                sums = store.usage.sum(by, **limits)
                assert sum(usage.input for usage in sums.values()) == expected, by
            assert store.check() == []


def test_sum_does_not_read_the_ledger(store: Store, clock: FakeClock) -> None:
    session = store.sessions.open(ANA)
    for _ in range(3):
        store.usage.add(session.id, Usage(1, model="m"))
        clock.forward(minutes=20)
    store.settle()
    sqlite_of(store)._writer.execute("delete from usage_kept")
    assert store.usage.sum("model")["m"].input == 3
