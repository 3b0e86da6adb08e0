"""The queue of a conversation: waiting turns are let in by their tickets."""

from __future__ import annotations

import pytest

from tertulia import SessionBusy, Store
from tertulia.testing import Handles
from tests.records.store_inspection import ANA, BEN, contents, open_beside, tickets
from tests.records.turns.exchanges import Broken, exchange


@pytest.mark.parametrize("wait", [0, 0.05])
def test_session_busy_is_raised_after_wait_seconds(store: Store, other: Store, wait: float) -> None:
    with store.turn(ANA, "one") as turn:
        with pytest.raises(SessionBusy) as caught, other.turn(ANA, "two", wait=wait):
            pass
        assert caught.value.retryable
        assert caught.value.key == turn.session.key
        assert contents(store, turn.session) == ["one"]
        turn.add_assistant("1")
    assert tickets(store) == 0
    exchange(other, "two", "2", wait=0)


def test_turns_of_other_sessions_do_not_wait(store: Store) -> None:
    waiting = store.turn_control(ANA, "three")
    with store.turn_control(ANA, "one") as first:
        assert not waiting.try_enter()
        with store.turn_control(BEN, "two", wait=0) as second:
            second.add_assistant("2")
        first.add_assistant("1")
    waiting.leave_queue()


def test_waiting_duplicate_does_not_block_the_queue(handles: Handles, store: Store) -> None:
    """Its ticket would have to lapse first."""
    apart = open_beside(handles)
    turn = store.turn_control(ANA, "one", message_id="1")
    again = apart.turn_control(ANA, "one", message_id="1")
    after = apart.turn_control(ANA, "two")
    with turn:
        assert not again.try_enter()
        assert not after.try_enter()
        turn.add_assistant("1")
    assert after.try_enter()
    after.add_assistant("2")
    after.leave()
    assert again.try_enter()
    assert (again.duplicate, again.answer) == (True, "1")
    apart.close()


def test_duplicate_in_the_queue_leaves_it(handles: Handles, store: Store) -> None:
    apart = open_beside(handles)
    one, again = (apart.turn_control(ANA, "one", message_id="1") for _ in range(2))
    with store.turn_control(ANA, "zero") as turn:
        assert not one.try_enter()
        assert not again.try_enter()
        turn.add_assistant("0")
    assert one.try_enter()
    one.add_assistant("1")
    one.leave()
    assert again.try_enter()
    assert again.duplicate
    assert tickets(store) == 0
    apart.close()


def test_an_error_in_entering_leaves_the_queue(
    handles: Handles, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Broken

    apart = open_beside(handles)
    waiting = apart.turn_control(ANA, "two")
    with store.turn_control(ANA, "one") as turn:
        assert not waiting.try_enter()
        assert tickets(store) == 1
        with monkeypatch.context() as patched:
            patched.setattr(handles.clock, "now", fail)
            with pytest.raises(Broken):
                waiting.__enter__()
        assert tickets(store) == 0
        turn.add_assistant("1")
    apart.close()
