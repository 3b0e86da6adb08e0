"""Budgets: which usage counts for a limit, and when it starts at zero again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Budget, BudgetExceeded, Settings, Source, Store, Usage
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")
BEN = Source("telegram", "43", user_id="43")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talk.db"


def open_limited(path: Path, clock: FakeClock, *budgets: Budget) -> Store:
    settings = Settings(zone="UTC", durability="fast", budgets=budgets)
    return tertulia.open(path, settings=settings, clock=clock)


def spend(store: Store, source: Source, tokens: int) -> None:
    with store.turn(source, "think") as turn:
        turn.add_assistant("done", usage=Usage(tokens))


@pytest.fixture
def limited(path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_limited(path, clock, Budget(per="person", tokens=10)) as store:
        yield store


def test_spent_budget_refuses_the_next_turn_of_that_person(limited: Store) -> None:
    spend(limited, ANA, 10)
    with pytest.raises(
        BudgetExceeded, match=r"10 of 10 tokens \(this person, this day\)"
    ) as caught:
        spend(limited, ANA, 1)
    assert "next day" in (caught.value.hint or "")
    assert (caught.value.per, caught.value.period) == ("person", "day")
    spend(limited, BEN, 1)


def test_budget_starts_at_zero_with_the_next_day(limited: Store, clock: FakeClock) -> None:
    spend(limited, ANA, 10)
    clock.forward(days=1)
    spend(limited, ANA, 10)
    with pytest.raises(BudgetExceeded):
        spend(limited, ANA, 1)


def test_usage_from_before_the_budget_counts_once(path: Path, clock: FakeClock) -> None:
    with open_limited(path, clock) as store:
        spend(store, ANA, 6)
    for _ in range(2):  # each opening adds up only the rows that are new
        with open_limited(path, clock, Budget(per="everyone", period="ever", tokens=10)) as store:
            spend(store, BEN, 2)
    with (
        open_limited(path, clock, Budget(per="everyone", period="ever", tokens=10)) as store,
        pytest.raises(BudgetExceeded, match="everyone together"),
    ):
        spend(store, ANA, 1)


def test_budget_of_a_session_ends_with_it(path: Path, clock: FakeClock) -> None:
    with open_limited(path, clock, Budget(per="session", tokens=5)) as store:
        spend(store, ANA, 5)
        with pytest.raises(BudgetExceeded, match="this session"):
            spend(store, ANA, 1)
        store.sessions.reset(store.sessions.key(ANA))
        spend(store, ANA, 1)


def test_budget_for_one_person_does_not_apply_to_others(path: Path, clock: FakeClock) -> None:
    only_ana = Budget(per="person", tokens=0, only="telegram:42")
    with open_limited(path, clock, only_ana) as store:
        spend(store, BEN, 99)
        with pytest.raises(BudgetExceeded):
            spend(store, ANA, 1)
