"""Fixtures of the contract suites."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles
from tertulia.testing.fixtures import dm, outcomes, run_in_threads, texts, turn, wait_until


def connect(folder: Path, settings: Settings, clock: FakeClock) -> Store:
    return tertulia.open(folder / "talk.db", settings=settings, clock=clock)


def test_handles_share_a_database_and_a_clock(tmp_path: Path) -> None:
    handles = Handles(tmp_path, connect, Settings(zone="UTC", durability="fast"))
    first, second = handles.open(), handles.open(zone="Asia/Tokyo")
    session = first.sessions.open(dm("anna"))
    first.transcript(session.id).extend(turn("one"))
    assert texts(second.transcript(session.id)) == ["one", "re one"]
    assert handles.clock.forward(hours=1) == first.now() == second.now()
    assert second.context.settings.zone == "Asia/Tokyo"
    handles.close()
    with pytest.raises(tertulia.StoreError):
        first.sessions.count()


def test_results_keep_the_order_of_the_calls() -> None:
    second_ran = threading.Event()

    def first() -> str:
        assert second_ran.wait(60)
        return "first"

    def second() -> str:
        second_ran.set()
        return "second"

    assert run_in_threads(first, second) == ["first", "second"]


def test_an_error_is_raised_after_all_calls_have_finished() -> None:
    finished: list[bool] = []

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_threads(fail, lambda: finished.append(True))
    assert finished == [True]


def test_refusals_are_returned_beside_the_results() -> None:
    def refuse() -> int:
        raise KeyError("no")

    results, refused = outcomes(lambda: 1, refuse, refusals=KeyError)
    assert results == [1]
    assert [str(error) for error in refused] == ["'no'"]
    with pytest.raises(KeyError):
        outcomes(refuse, refusals=ValueError)


def test_until_waits_for_the_condition() -> None:
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), "the third answer")
    assert next(answers, None) is None
