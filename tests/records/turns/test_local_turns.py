"""Turns of one process wait for and wake each other."""

from __future__ import annotations

import threading

import pytest

from tertulia import SessionBusy, Store, Turn
from tertulia.records.turns import control
from tertulia.testing.fixtures import wait_until
from tests.records.store_inspection import ANA, PATIENCE, contents, tickets
from tests.records.turns.exchanges import exchange


def test_turn_holds_its_session_to_the_end_of_its_block(store: Store, other: Store) -> None:
    """So that what follows its answer comes before the next message."""
    with store.turn(ANA, "one") as turn:
        turn.add_assistant("1")
        with pytest.raises(SessionBusy), other.turn(ANA, "two", wait=0):
            pass
        turn.add_assistant("1, to be precise")
    exchange(other, "two", "2", wait=0)
    assert contents(store, turn.session) == ["one", "1", "1, to be precise", "two", "2"]


def test_waiting_turn_of_the_same_process_is_woken(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And need not look for itself: here it would look again far too late."""
    monkeypatch.setattr(control, "_RETRY_DELAYS", (10 * PATIENCE,))
    done: list[Turn] = []
    waiting = threading.Thread(
        target=lambda: done.append(exchange(other, "two", "2", wait=20 * PATIENCE)), daemon=True
    )
    with store.turn(ANA, "one") as turn:
        waiting.start()
        wait_until(lambda: tickets(store) == 1, "it waits")
        turn.add_assistant("1")
    wait_until(lambda: done, "it is woken")
    waiting.join()
    assert contents(store, turn.session) == ["one", "1", "two", "2"]
