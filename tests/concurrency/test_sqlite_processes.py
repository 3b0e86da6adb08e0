"""Several processes with several threads each, on one file."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings
from tertulia.testing import FakeClock
from tests.storage.child_process import ChildProcess
from tests.storage.child_programs import source

pytestmark = pytest.mark.check

SOURCES = 50


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(10, marks=pytest.mark.slow)], ids=["briefly", "long"]
)
def test_concurrent_opens_give_one_session_per_key_and_lose_nothing(
    tmp_path: Path, seconds: int
) -> None:
    """4 processes × 8 threads: one session per key, no error, no lost message, no lost usage."""
    path = tmp_path / "talk.db"
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("converse", str(path), f"p{n}", 8, SOURCES, seconds))
            for n in range(4)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        reports = [child.read() for child in children]
    assert [report["problems"] for report in reports] == [[]] * 4
    ids: dict[int, set[str]] = defaultdict(set)
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        assert report["messages"]
        for number, session_id, text in report["messages"]:
            ids[number].add(session_id)
            texts[session_id][text] += 1
    assert all(len(session_ids) == 1 for session_ids in ids.values())
    with tertulia.open(path, settings=Settings(zone="UTC")) as store:
        assert store.sessions.count() == len(ids)
        ledger = store.usage.sum("session")
        for session in store.sessions.find(limit=100).items:
            count = texts[session.id].total()
            stored = Counter(m["content"] for m in store.transcript(session.id).load())
            assert stored == texts[session.id]
            assert (session.usage.input, session.usage.output) == (count, count)
            assert session.cost_usd == ledger[session.id].cost_usd == round(count * 0.003, 9)
        assert store.check() == []


def test_concurrent_first_opens_create_one_session_per_key(tmp_path: Path) -> None:
    """All processes open a session for the first time at the same moment."""
    path = tmp_path / "talk.db"
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("converse", str(path), f"p{n}", 8, 3, 0.3))
            for n in range(4)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        reports = [child.read() for child in children]
    assert [report["problems"] for report in reports] == [[]] * 4
    assert len({session_id for report in reports for _, session_id, _ in report["messages"]}) == 3


def test_each_notice_is_given_to_exactly_one_process(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    clock = FakeClock()
    with tertulia.open(path, settings=Settings(zone="UTC"), clock=clock) as store:
        before = {n: store.sessions.open(source(n)).id for n in range(SOURCES)}
    later = clock.forward(days=3).isoformat()
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("come_back", str(path), later, SOURCES))
            for _ in range(4)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        answers = [report for child in children for report in child.read_all()]
    assert len(answers) == 4 * SOURCES
    assert len({session_id for _, session_id, _ in answers}) == SOURCES
    notices = sorted((number, about) for number, _, about in answers if about is not None)
    assert notices == sorted(before.items())


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["a few", "many"]
)
def test_concurrent_first_opens_create_one_store(tmp_path: Path, rounds: int) -> None:
    """80 first opens at once, from 8 processes: none fails, and all open the same store."""
    paths = [str(tmp_path / f"{n}.db") for n in range(rounds)]
    with ExitStack() as stack:
        children = [stack.enter_context(ChildProcess("open_first", paths, 10)) for _ in range(8)]
        for child in children:
            assert child.read() == "ready"
        for path in paths:
            for child in children:
                child.resume()
            reports = [child.read() for child in children]
            assert [report["problems"] for report in reports] == [[]] * 8
            # The secret of the installation is created with the file, by one of them.
            assert len({tuple(report["secrets"]) for report in reports}) == 1
            with tertulia.open(path) as store:
                assert store.sessions.count() == 80
                assert store.check() == []


def test_closing_a_second_handle_drops_no_lock(tmp_path: Path) -> None:
    """Closing a file drops every lock that the process has on it, whichever thread took them.

    SQLite avoids that; so no other code of the process may open the file of a store.
    """
    path = tmp_path / "talk.db"

    def is_locked() -> bool:
        with ChildProcess("try_to_lock", str(path)) as child:
            return bool(child.read() == "locked")

    with tertulia.open(path, settings=Settings(zone="UTC")) as store:
        store.sessions.open(source(1))
        assert is_locked()
        with tertulia.open(path, settings=Settings(zone="UTC")) as second:
            second.sessions.open(source(2))
            assert is_locked()
        with pytest.raises(tertulia.ConfigError):
            store.backup(path)
        store.backup(tmp_path / "copy.db")
        store.check()
        store.vacuum()
        assert is_locked()
    assert not is_locked()
