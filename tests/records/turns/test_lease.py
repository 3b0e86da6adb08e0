"""A lease that runs out: whoever was replaced can store nothing, whoever was not goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tertulia
from tertulia import LeaseLost, SessionBusy, Settings, Store, StoreError, Usage
from tertulia.records.turns.control import TurnControl
from tertulia.testing.fixtures import wait_until
from tests.records.store_inspection import (
    ANA,
    BEN,
    PATIENCE,
    ask,
    call,
    contents,
    faults_of,
    interrupted,
    let_lease_run_out,
    log_of,
    now_in,
    open_apart,
    turn_states,
    unanswered,
)
from tests.records.turns.turn_processes import (
    Child,
    opened,
    stop_and_answer,
    stop_in_a_write,
    stop_inside,
)
from tests.servers.postgres import Server

# Short enough to be waited for, long enough for a child to get inside.
LEASE = 0.5


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_apart(where) as store:
        yield store
        assert store.check() == []


@pytest.fixture
def other(where: str, store: Store) -> Iterator[Store]:
    """A handle as in another process."""
    with open_apart(where) as other:
        yield other


def lease_left(store: Store) -> int:
    """Microseconds until the lease of the only session runs out, by the database's clock."""
    found = ask(store, "select lease_until from sessions")
    assert isinstance(found, int)
    return found - now_in(store)


WRITES: dict[str, Callable[[TurnControl], object]] = {
    "answer": lambda turn: turn.add_assistant("hi", usage=Usage(1), deliver="origin"),
    "part": lambda turn: turn.add_assistant("hi", more=True),
    "calls": lambda turn: turn.add_assistant(None, tool_calls=[call("c2")]),
    "result": lambda turn: turn.add_tool_result("c1", "blue"),
    "usage": lambda turn: turn.add_usage(Usage(1)),
    "delivery": lambda turn: turn.deliver("hi"),
    "leaving": lambda turn: turn.leave(),
}


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "still inside"])
def test_process_stopped_past_its_lease_stores_nothing(
    store: Store, where: str, is_answered: bool
) -> None:
    with Child(stop_inside, where, LEASE) as child:
        assert child.hear() == "inside"
        with store.turn_control(ANA, "hello?", message_id="2", wait=PATIENCE) as turn:
            assert faults_of(turn.history()) == []
            if is_answered:
                turn.add_assistant("Yes.")
            before = log_of(store, turn.session)
            version = store.sessions.require(turn.session.id).version
            child.go_on()
            outcomes = child.hear()
            assert outcomes == dict.fromkeys(WRITES, "lease_lost")
            assert child.end() == 0
            assert log_of(store, turn.session) == before
            assert store.sessions.require(turn.session.id).version == version
            if not is_answered:
                turn.add_assistant("Yes.")
    rows = log_of(store, turn.session)
    assert [row.content for row in rows if row.kind is None] == [
        "look",
        None,
        "blue",
        "hello?",
        "Yes.",
    ]
    assert interrupted(rows) == ["c2"]
    assert store.outbox.find().items == ()
    assert store.sessions.require(turn.session.id).usage.total == 0
    assert turn_states(store) == ["interrupted", "answered"]
    assert "interrupted" in store.sessions.explain(turn.session.id)


def test_message_of_a_stopped_process_is_resumed_by_another(store: Store, where: str) -> None:
    with Child(stop_inside, where, LEASE) as child:
        assert child.hear() == "inside"
        with store.turn_control(ANA, "look", message_id="1", wait=PATIENCE) as turn:
            assert not turn.duplicate
            assert [message["role"] for message in turn.history()] == [
                "user",
                "assistant",
                "tool",
                "tool",
            ]
            turn.add_assistant("Blue, I think.")
        child.go_on()
        assert child.hear() == dict.fromkeys(WRITES, "lease_lost")
    assert turn_states(store) == ["answered"]
    with store.turn_control(ANA, "look", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "Blue, I think.")


def test_stopped_process_that_was_not_replaced_continues(where: str, store: Store) -> None:
    with Child(stop_and_answer, where, LEASE) as child:
        assert child.hear() == "inside"
        wait_until(lambda: lease_left(store) < 0, "the lease runs out")
        child.go_on()
        assert child.hear() == "answered"
        assert child.end() == 0
    (session,) = store.sessions.find().items
    assert contents(store, session) == ["look", None, "blue", "Blue."]
    assert turn_states(store) == ["answered"]


@pytest.mark.parametrize("write", WRITES)
def test_every_kind_of_write_is_refused_after_a_takeover(
    store: Store, other: Store, write: str
) -> None:
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    turn.add_assistant(None, tool_calls=[call()])
    let_lease_run_out(store, turn.session)
    with other.turn_control(ANA, "hello?", wait=0) as following:
        before = log_of(store, turn.session)
        with pytest.raises(LeaseLost) as caught:
            WRITES[write](turn)
        assert caught.value.hint
        assert caught.value.session_id == turn.session.id
        assert not caught.value.retryable
        assert log_of(store, turn.session) == before
        turn.leave(failed=True)
        assert log_of(store, turn.session) == before
        assert not TurnControl.renew(turn) or turn._turn is None
        following.add_assistant("Yes.")
    assert store.outbox.find().items == ()
    assert store.sessions.require(turn.session.id).usage.total == 0
    assert turn_states(store) == ["interrupted", "answered"]
    assert unanswered(log_of(store, turn.session)) == []


@pytest.mark.parametrize("write", WRITES)
def test_expired_lease_that_nobody_took_is_taken_again(
    store: Store, other: Store, write: str
) -> None:
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    turn.add_assistant(None, tool_calls=[call()])
    let_lease_run_out(store, turn.session)
    WRITES[write](turn)
    if write not in ("answer", "leaving"):
        assert lease_left(store) > 0
        with pytest.raises(SessionBusy), other.turn_control(ANA, "hello?", wait=0):
            pass
    turn.leave()
    with other.turn_control(ANA, "hello?", wait=0) as following:
        following.add_assistant("Yes.")


def test_leaving_without_an_answer_after_a_takeover_raises(store: Store, other: Store) -> None:
    with pytest.raises(LeaseLost), store.turn_control(ANA, "look") as turn:
        _replace(store, other, turn)


def _replace(store: Store, other: Store, turn: TurnControl) -> None:
    let_lease_run_out(store, turn.session)
    with other.turn_control(ANA, "hello?", wait=0) as following:
        following.add_assistant("Yes.")


def test_renewal_of_an_old_lease_does_nothing(store: Store, other: Store) -> None:
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    _replace(store, other, turn)
    assert lease_left(store) < 0
    assert not TurnControl.renew(turn)  # `let_lease_run_out` has replaced its own
    assert lease_left(store) < 0
    turn.leave(failed=True)


def test_a_renewal_after_the_answer_takes_no_lease(store: Store, other: Store) -> None:
    with store.turn_control(ANA, "look") as turn:
        turn.add_assistant("Blue.")
        turn._is_open = True  # as a thread sees it that looked before the answer was stored
        turn.renew()
        turn._is_open = False
        with other.turn_control(ANA, "hello?", wait=0) as following:
            following.add_assistant("Yes.")


def test_lease_is_renewed_during_a_long_call(where: str) -> None:
    # Renewed after a third of it. There is all of it left then: a busy machine may take its time.
    settings = Settings(zone="UTC", durability="fast", lease_seconds=6)
    until_when = "select lease_until from sessions"
    with open_apart(where, settings) as store, open_apart(where) as other:
        with store.turn_control(ANA, "think long") as turn:
            ends = ask(store, until_when)
            wait_until(lambda: ask(store, until_when) > ends, "the lease is renewed")
            with pytest.raises(SessionBusy), other.turn_control(ANA, "hello?", wait=0):
                pass
            turn.add_assistant("Done.")
        with other.turn_control(ANA, "hello?", wait=0):
            pass
        assert contents(store, turn.session) == ["think long", "Done.", "hello?"]


def test_each_turn_is_renewed_at_its_own_interval(where: str) -> None:
    """A handle with a short lease beside one with a long one, whose pauses would be too long."""
    short = Settings(zone="UTC", durability="fast", lease_seconds=2)
    long = Settings(zone="UTC", durability="fast", lease_seconds=10 * PATIENCE)
    sql = "select lease_until from sessions where id = ?"
    with (
        tertulia.open(where, settings=long) as store,
        tertulia.open(where, settings=short) as other,
        store.turn_control(ANA, "one") as first,
        other.turn_control(BEN, "two") as second,
    ):
        ends = ask(store, sql, second.session.id)
        wait_until(lambda: ask(store, sql, second.session.id) > ends, "the short one is renewed")
        second.add_assistant("2")
        first.add_assistant("1")


def test_turn_that_lost_its_session_blocks_no_local_turn(where: str) -> None:
    """In one process turns hold each other back; a turn that was replaced holds back nobody."""
    short = Settings(zone="UTC", durability="fast", lease_seconds=0.3)
    with tertulia.open(where, settings=short) as store, open_apart(where) as elsewhere:
        hung = store.turn_control(ANA, "look")
        assert hung.try_enter()
        wait_until(lambda: _is_replaced(hung, elsewhere), "somebody takes it over")
        with store.turn_control(ANA, "and now?", wait=PATIENCE) as turn:
            turn.add_assistant("Here.")
        hung.leave(failed=True)
        assert contents(store, turn.session)[-2:] == ["and now?", "Here."]


def _is_replaced(hung: TurnControl, elsewhere: Store) -> bool:
    """As if its process had been stopped: the lease ends before it is renewed."""
    let_lease_run_out(elsewhere, hung.session)
    turn = elsewhere.turn_control(ANA, "hello?")
    if not turn.try_enter():
        turn.leave_queue()
        return False
    turn.add_assistant("Yes.")
    turn.leave()
    return True


@pytest.mark.parametrize("asks", [True, False], ids=["asking", "sending"])
def test_process_stopped_in_a_write_blocks_nobody(postgres: Server, asks: bool) -> None:
    """In PostgreSQL it has the conversation's lane; SQLite has one writer, and everybody waits."""
    where = postgres.database(postgres.template)
    with (
        opened(where, lease_seconds=LEASE) as store,
        Child(stop_in_a_write, where, LEASE, asks) as child,
    ):
        assert child.hear() == "inside"
        with store.turn_control(ANA, "hello?", wait=PATIENCE) as turn:
            turn.add_assistant("Yes.")
    postgres.drop(where)
    assert turn.answer == "Yes."


def test_turn_left_in_a_closed_store_blocks_nobody(where: str) -> None:
    """Closing the store gives its lease back: the next turn need not wait for the end of it."""
    settings = Settings(zone="UTC")
    left = tertulia.open(where, settings=settings)
    turn = left.turn_control(ANA, "a")
    turn.__enter__()
    left.close()
    assert not turn.renew()
    with (
        tertulia.open(where, settings=settings) as again,
        again.turn_control(ANA, "b", wait=0) as next_turn,
    ):
        next_turn.add_assistant("hi")
        with pytest.raises(StoreError, match="The store is closed"):
            turn.add_assistant("too late")
        turn.leave()
        assert contents(again, next_turn.session) == ["a", "b", "hi"]
