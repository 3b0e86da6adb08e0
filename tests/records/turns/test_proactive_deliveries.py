"""What an agent says unasked, it knows of when the person answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import HomeChannel, Settings, Source, Store, ToolCall
from tertulia.testing import FakeClock, Handles
from tertulia.testing.fixtures import run_in_threads
from tests.legality.validators import faults
from tests.records.store_inspection import ANA, BEN, FAST

GOOD_MORNING = "Good morning. Shall I book the table?"


@pytest.fixture
def handles(where: str, tmp_path: Path) -> Iterator[Handles]:
    """As for the other turns, but that here a history may begin with what the agent said."""

    def connect(place: Path, settings: Settings, clock: FakeClock) -> Store:
        return tertulia.open(where, settings=settings, clock=clock)

    handles = Handles(tmp_path, connect, FAST)
    yield handles
    assert handles.open().check() == []
    handles.close()


def told(store: Store, source: Source) -> list[str]:
    """What the next turn there shows its agent, the person's answer last."""
    with store.turn(source, "Yes, please.") as turn:
        shown = turn.history()
        assert faults("openai", shown) == []
        assert faults("anthropic", turn.history(format="anthropic")) == []
        turn.add_assistant("Done.")
    return [message["content"] for message in shown]


def test_unprompted_message_leads_the_history(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.add_assistant(GOOD_MORNING, deliver="origin")
    assert told(store, ANA) == [GOOD_MORNING, "Yes, please."]


def test_tools_may_be_called_before_an_unprompted_message(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.add_assistant(None, tool_calls=[ToolCall("c", "tables", {})])
        turn.add_tool_result("c", "one is free")
        turn.add_assistant(GOOD_MORNING, deliver="origin")
    assert told(store, ANA) == [GOOD_MORNING, "Yes, please."]


def test_answer_is_not_stored_as_unprompted(store: Store) -> None:
    with store.turn_control(ANA, "hello") as turn:
        turn.add_assistant("hi")
    with store.turn_control(BEN) as turn:
        turn.extend([{"role": "user", "content": "hello"}])
        turn.add_assistant("hi")
    for source in (ANA, BEN):
        session = store.sessions.open(source)
        assert [row.kind for row in store.transcript(session.id).entries()] == [None, None]


@pytest.mark.parametrize("target", ["telegram:42", "telegram"])
def test_delivery_to_another_conversation_is_recorded_there(handles: Handles, target: str) -> None:
    store = handles.open(homes={"telegram": HomeChannel("42", "Ana")})
    with store.turn(BEN, "Tell Ana that I am late.") as turn:
        turn.deliver("Ben is late.", target)
        turn.add_assistant("Done.")
    (parcel,) = store.outbox.claim()
    assert (parcel.chat_id, parcel.session_id) == ("42", turn.session.id)
    assert told(store, ANA) == ["Ben is late.", "Yes, please."]
    assert len(store.transcript(turn.session.id).load()) == 2  # there, and nowhere else


def test_answer_delivered_elsewhere_is_recorded_there(store: Store) -> None:
    with store.turn(BEN, "Tell Ana.") as turn:
        turn.add_assistant("Ben is late.", deliver="telegram:42")
    assert told(store, ANA) == ["Ben is late.", "Yes, please."]


def test_repeated_delivery_is_recorded_once(store: Store) -> None:
    with store.turn(BEN, "Tell Ana that I am late.") as turn:
        for _ in range(2):
            turn.deliver("Ben is late.", "telegram:42", delivery="late")
        turn.add_assistant("Done.")
    assert told(store, ANA) == ["Ben is late.", "Yes, please."]


def test_delivery_to_origin_or_a_file_is_not_recorded(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        for target in ("origin", "telegram:42", "local"):
            turn.deliver("a note", target)
        turn.add_assistant("hi")
    assert store.sessions.count() == 1
    assert [m["content"] for m in store.transcript(turn.session.id).load()] == ["hello", "hi"]


def test_a_thread_of_the_same_group_is_another_conversation(store: Store) -> None:
    group = Source("telegram", "-1", chat_type="group", user_id="42")
    with store.turn(group, "hello") as turn:
        turn.deliver("news", "telegram:-1:7")
        turn.add_assistant("hi")
    thread = Source("telegram", "-1", chat_type="group", user_id="42", thread_id="7")
    assert told(store, thread) == ["news", "Yes, please."]


def test_policy_of_the_target_conversation_is_applied(handles: Handles, clock: FakeClock) -> None:
    asked: list[str] = []

    def is_running(key: str) -> bool:
        asked.append(key)
        return True

    store = handles.open(has_active_processes=is_running)
    before = store.sessions.open(ANA)
    clock.forward(days=1, hours=1)
    with store.turn(BEN, "Tell Ana that I am late.") as turn:
        turn.deliver("Ben is late.", "telegram:42")
        turn.add_assistant("Done.")
    assert asked == [before.key]
    assert [m["content"] for m in store.transcript(before.id).load()] == ["Ben is late."]


def test_notice_waits_for_the_user(store: Store, other: Store, clock: FakeClock) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi")
    before = turn.session
    clock.forward(days=2)
    with store.turn(BEN, "Tell Ana that I am late.") as turn:
        turn.deliver("Ben is late.", "telegram:42")
        turn.add_assistant("Done.")
    assert store.sessions.require(before.id).end_reason == "idle"
    with other.turn(ANA, "Is he?") as turn:
        assert turn.notice is not None
        assert (turn.notice.session_id, turn.notice.had_activity) == (before.id, True)
        assert turn.history()[0]["content"] == "Ben is late."
        turn.add_assistant("Yes.")
    with store.turn(ANA, "How late?") as turn:
        assert turn.notice is None
        turn.add_assistant("Very.")


def test_cross_posts_in_both_directions_do_not_deadlock(store: Store, other: Store) -> None:
    def write(store: Store, source: Source, target: str) -> None:
        for number in range(5):
            with store.turn(source, "hello") as turn:
                turn.deliver(f"{target} {number}", target)
                turn.add_assistant("hi")

    run_in_threads(
        lambda: write(store, ANA, "telegram:43"),
        lambda: write(other, BEN, "telegram:42"),
    )
    for source, target in ((ANA, "telegram:42"), (BEN, "telegram:43")):
        texts = [m["content"] for m in store.transcript(store.sessions.open(source).id).load()]
        assert [text for text in texts if text.startswith("tele")] == [
            f"{target} {number}" for number in range(5)
        ]
