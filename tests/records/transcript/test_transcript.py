"""Transcript: the public calls on the messages of one session."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import ConfigError, IllegalMove, NotFound, Store, Usage
from tertulia.records.transcript.transcript import Transcript
from tests.records.store_inspection import ANA


@pytest.fixture
def transcript(store: Store) -> Transcript:
    return store.transcript(store.sessions.open(ANA).id)


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def visible(transcript: Transcript) -> list[str]:
    return [body["content"] for body in transcript.load()]


def test_extend_stores_messages_and_usage_together(store: Store, transcript: Transcript) -> None:
    with pytest.raises(ConfigError):
        transcript.extend([message("a")], Usage(-1))
    assert transcript.load() == []
    assert transcript.extend([message("a"), message("b", "assistant")], Usage(3)) == 2
    assert store.usage.sum("session")[transcript.session_id].input == 3


def test_newest_limits_what_is_loaded(transcript: Transcript) -> None:
    transcript.extend([message(str(number)) for number in range(5)])
    assert [body["content"] for body in transcript.load(newest=2)] == ["3", "4"]
    assert [entry.seq for entry in transcript.entries(newest=2)] == [4, 5]
    assert transcript.count() == 5


def test_edit_shows_the_new_message_in_the_same_turn(transcript: Transcript) -> None:
    transcript.extend([message("a"), message("b", "assistant"), message("c")])
    transcript.edit(2, message("B", "assistant"))
    assert visible(transcript) == ["a", "B", "c"]
    assert [entry.turn for entry in transcript.entries()] == [1, 1, 2]
    with pytest.raises(NotFound):
        transcript.edit(2, message("again"))


def test_pop_hides_the_newest_message_and_what_is_skipped(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.add_assistant("unprompted")
    transcript = store.transcript(turn.session.id)
    (entry,) = transcript.entries()
    assert entry.kind is not None
    assert transcript.pop(skip=[entry.kind]) is None
    assert visible(transcript) == ["unprompted"]
    popped = transcript.pop()
    assert popped is not None
    assert popped.seq == entry.seq
    assert transcript.load() == []
    assert transcript.pop() is None


def test_undo_needs_at_least_one_turn(transcript: Transcript) -> None:
    with pytest.raises(IllegalMove):
        transcript.undo(0)
    assert transcript.undo() == 0


@pytest.mark.parametrize(
    "wrong",
    [{"max_messages": 0}, {"max_tokens": -1}, {"timestamps": "some"}, {"format": "xml"}],
    ids=str,
)
def test_history_refuses_invalid_arguments(transcript: Transcript, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        transcript.history(**wrong)


@pytest.mark.parametrize("budget", [{"max_messages": 10**30}, {"max_tokens": 10**30}], ids=str)
def test_history_may_be_of_any_length(transcript: Transcript, budget: dict[str, Any]) -> None:
    transcript.extend([{"role": "user", "content": f"{number}"} for number in range(40)])
    assert len(transcript.history(**budget)) == 40
    with_times = transcript.history(**budget, timestamps="local")
    assert len(with_times) == 40
