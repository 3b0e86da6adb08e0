"""The lease of a process that has ended is taken over at once; that of a running one never is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tertulia import LeaseLost, Policies, ResetPolicy, SessionBusy, Settings, Source, Store
from tertulia.process_identity import own_identity
from tertulia.testing import FakeClock
from tests.records.store_inspection import ANA, PATIENCE, ask, execute, open_apart, turn_states
from tests.records.turns.turn_processes import Child, stop_inside

if sys.platform != "linux":
    pytest.skip("only Linux tells that a process has ended", allow_module_level=True)

# No test waits so long: whoever gets in does so because the holder has ended.
LEASE = 3600.0


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_apart(where, Settings(zone="UTC", durability="fast", lease_seconds=LEASE)) as store:
        yield store
        assert store.check() == []


@pytest.fixture
def other(where: str, store: Store) -> Iterator[Store]:
    """A handle as in another process."""
    with open_apart(where, store.settings) as other:
        yield other


@pytest.fixture
def ended() -> str:
    """The identity of a process that has ended."""
    code = "from tertulia.process_identity import own_identity; print(own_identity())"
    program = [sys.executable, "-c", code]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip()


def kill(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    assert child.end() == -signal.SIGKILL


def set_holder(store: Store, identity: str | None) -> None:
    execute(store, "update sessions set lease_holder = ?", identity)


def test_conversation_of_a_killed_process_goes_on_at_once(store: Store, where: str) -> None:
    with Child(stop_inside, where, LEASE) as child:
        assert child.hear() == "inside"
        with pytest.raises(SessionBusy), store.turn(ANA, "hello?", wait=0):
            pass  # it is stopped, but it runs
        kill(child)
        with store.turn(ANA, "hello?", message_id="2", wait=0) as turn:
            turn.add_assistant("Yes.")
    assert turn_states(store) == ["interrupted", "answered"]


def test_message_of_a_killed_process_is_resumed_at_once(store: Store, where: str) -> None:
    with Child(stop_inside, where, LEASE) as child:
        assert child.hear() == "inside"
        with pytest.raises(SessionBusy), store.turn(ANA, "look", message_id="1", wait=0):
            pass
        kill(child)
        with store.turn(ANA, "look", message_id="1", wait=0) as turn:
            assert not turn.duplicate
            turn.add_assistant("Blue.")
    assert turn_states(store) == ["answered"]


def test_who_waits_gets_in_when_the_holder_is_killed(store: Store, where: str) -> None:
    with Child(stop_inside, where, LEASE) as child:
        assert child.hear() == "inside"
        turn = store.turn_control(ANA, "hello?", wait=PATIENCE)
        assert not turn.try_enter()
        kill(child)
        with turn:
            turn.add_assistant("Yes.")


def test_process_that_was_wrongly_taken_for_ended_stores_nothing(
    store: Store, other: Store, ended: str
) -> None:
    turn = store.turn_control(ANA, "look", message_id="1")
    turn.enter()
    set_holder(store, ended)
    with other.turn(ANA, "hello?", message_id="2", wait=0) as second:
        second.add_assistant("Yes.")
    with pytest.raises(LeaseLost):
        turn.add_assistant("Blue.")
    with pytest.raises(LeaseLost):
        turn.leave()
    texts = [message["content"] for message in store.transcript(turn.session.id).load()]
    assert "Blue." not in texts
    assert turn_states(store) == ["interrupted", "answered"]


@pytest.mark.parametrize("message_id", ["1", "2"], ids=["the same message", "another one"])
@pytest.mark.parametrize("change", ["own", "elsewhere", "unknown"])
def test_lease_of_a_process_that_may_run_is_left_alone(
    store: Store, other: Store, ended: str, change: str, message_id: str
) -> None:
    parts = ended.split(":")
    elsewhere = ":".join([*parts[:2], "0123456789abcdef", parts[3]])
    holder = {"own": own_identity(), "elsewhere": elsewhere, "unknown": None}[change]
    with store.turn(ANA, "look", message_id="1") as turn:
        assert ask(store, "select lease_holder from sessions") == own_identity()
        set_holder(store, holder)
        with (
            pytest.raises(SessionBusy),
            other.turn(ANA, "look", message_id=message_id, wait=0),
        ):
            pass
        turn.add_assistant("Blue.")


def test_each_turn_names_its_own_process(store: Store, other: Store, ended: str) -> None:
    for number in range(2):  # by the general path, then by the fast one
        with store.turn(ANA, "look", message_id=f"{number}") as turn:
            turn.add_assistant("Blue.")
        assert ask(store, "select lease_holder from sessions") == own_identity()
        set_holder(store, ended)


def test_policy_waits_for_a_running_parent_only(where: str, ended: str) -> None:
    """A session that a policy ended with a turn inside does not hold up the next one for ever."""
    clock = FakeClock()
    idle = Policies(default=ResetPolicy(mode="idle", idle_minutes=1))
    settings = Settings(zone="UTC", durability="fast", lease_seconds=LEASE, policies=idle)
    ben = Source("telegram", "7", user_id="7")
    with (
        open_apart(where, settings, clock=clock) as store,
        open_apart(where, settings, clock=clock) as other,
        store.turn_control(ben, "look", message_id="1") as turn,
    ):
        set_holder(store, ended)
        clock.forward(minutes=5)
        with other.turn(ben, "hello?", message_id="2", wait=0) as second:
            assert second.session.id != turn.session.id
            second.add_assistant("Yes.")
