"""What a turn costs in transactions, each of which is a wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tertulia import Store, Turn, Usage
from tertulia.testing import FakeClock, Handles
from tertulia.testing.fault_points import watch_commits
from tests.records.store_inspection import ANA, call, open_beside
from tests.storage.store_internals import sqlite_of
from tests.transfer.filled_stores import program


@pytest.fixture
def where(tmp_path: Path) -> str:
    """SQLite only: its hooks and counters are what counts here."""
    return str(tmp_path / "talk.db")


class Count:
    """Write transactions and commits of a handle."""

    def __init__(self, store: Store) -> None:
        self.writes = 0
        self.commits = 0
        watch_commits(store, self._write)
        sqlite_of(store)._writer.set_commit_hook(self._commit)

    def _write(self, number: int, moment: str) -> None:
        self.writes += moment == "after"

    def _commit(self) -> bool:
        self.commits += 1
        return False


def test_a_turn_without_tools_is_two_transactions(store: Store, clock: FakeClock) -> None:
    count = Count(store)
    for number in range(1, 4):
        with store.turn(ANA, "hello", message_id=number) as turn:
            turn.history()
            assert turn.context_prompt
            turn.add_assistant("hi", usage=Usage(10, 2), deliver="origin")
        assert (count.writes, count.commits) == (2 * number, 2 * number)
        clock.forward(days=number - 1)  # a new session costs no more


def test_running_process_is_checked_in_the_same_transaction(store: Store, clock: FakeClock) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi")
    first = turn.session.id
    store.processes.begin(replace(program(store), key=turn.session.key))
    clock.forward(hours=36)  # its policy would end it by now
    count = Count(store)
    with store.turn(ANA, "still there?") as turn:
        turn.add_assistant("yes")
    assert (count.writes, count.commits) == (2, 2)
    assert turn.session.id == first


def test_turn_with_tools_is_one_transaction_per_step(
    store: Store,
) -> None:
    count = Count(store)
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call("c1"), call("c2")], usage=Usage(5))
        turn.add_tool_result("c1", "blue")
        turn.add_tool_result("c2", "cold")
        turn.add_usage(Usage(1))
        turn.deliver("one moment")
        turn.add_assistant("Blue and cold.", usage=Usage(9))
    assert (count.writes, count.commits) == (7, 7)


def test_each_write_after_the_answer_is_one_transaction(store: Store) -> None:
    count = Count(store)
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi")
        turn.deliver("hi")
        turn.add_usage(Usage(1))
    assert count.commits == 4


@pytest.mark.parametrize(
    "ending", [lambda turn: None, lambda turn: turn.add_assistant("hi", more=True)]
)
def test_turn_without_an_answer_is_closed_in_one_transaction(
    store: Store, ending: Callable[[Turn], None]
) -> None:
    count = Count(store)
    with store.turn(ANA, "hello") as turn:
        ending(turn)
        before = count.commits
    assert count.commits == before + 1


def test_a_duplicate_commits_once_and_writes_nothing(store: Store) -> None:
    with store.turn(ANA, "hello", message_id="1") as turn:
        turn.add_assistant("hi")
    changes = sqlite_of(store)._writer.total_changes()
    count = Count(store)
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert turn.duplicate
    assert count.writes == 1
    assert sqlite_of(store)._writer.total_changes() == changes


def test_waiting_turn_writes_only_its_ticket(handles: Handles, store: Store) -> None:
    """However often it looks."""
    apart = open_beside(handles)
    with store.turn_control(ANA, "one") as turn:
        waiting = apart.turn_control(ANA, "two")
        changes = sqlite_of(apart)._writer.total_changes()
        for _ in range(50):
            assert not waiting.try_enter()
        assert sqlite_of(apart)._writer.total_changes() <= changes + 3
        turn.add_assistant("1")
    waiting.leave_queue()
    apart.close()


def test_renewing_is_one_transaction(store: Store) -> None:
    with store.turn_control(ANA, "one") as turn:
        count = Count(store)
        assert turn.renew()
        assert (count.writes, count.commits) == (1, 1)
        turn.add_assistant("1")
        assert turn.renew()
        assert (count.writes, count.commits) == (2, 2)
