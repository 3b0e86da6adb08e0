"""Callbacks around the commits of a store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tertulia
from tertulia.testing.fault_points import Moment, watch_commits
from tests.records.store_inspection import ANA, BEN, FAST, without_index


class CrashError(Exception):
    """An error at a fault point."""


def test_commits_are_counted_before_and_after(tmp_path: Path) -> None:
    moments: list[tuple[int, Moment]] = []
    with without_index(tertulia.open(tmp_path / "talk.db", settings=FAST)) as store:
        watch_commits(store, lambda number, moment: moments.append((number, moment)))
        store.sessions.open(ANA)
        store.sessions.open(BEN)
    assert moments == [(1, "before"), (1, "after"), (2, "before"), (2, "after")]


@pytest.mark.parametrize(("moment", "stored"), [("before", 0), ("after", 1)])
def test_an_error_before_a_commit_stores_nothing(
    tmp_path: Path, moment: Moment, stored: int
) -> None:
    def crash(number: int, at: Moment) -> None:
        if at == moment:
            raise CrashError

    with without_index(tertulia.open(tmp_path / "talk.db", settings=FAST)) as store:
        watch_commits(store, crash)
        with pytest.raises(CrashError):
            store.sessions.open(ANA)
    with tertulia.open(tmp_path / "talk.db", settings=FAST) as store:
        assert store.sessions.count() == stored


def test_other_threads_are_not_watched(tmp_path: Path) -> None:
    moments: list[int] = []
    with without_index(tertulia.open(tmp_path / "talk.db", settings=FAST)) as store:
        watch_commits(store, lambda number, moment: moments.append(number))
        thread = threading.Thread(target=store.sessions.open, args=(ANA,))
        thread.start()
        thread.join()
        assert store.sessions.count() == 1
    assert moments == []
