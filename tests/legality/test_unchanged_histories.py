"""What needs no mending stays as it is: a legal transcript, a mended one, and the beginning of a
history while its window stands still."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Settings, Source, Store
from tertulia.core.history.formats import (
    FORMATS,
    Format,
    Style,
    render,
    weigher,
)
from tertulia.core.history.repair import blocks
from tertulia.core.history.window import (
    HistoryBudget,
    fit,
)
from tertulia.core.message import Message
from tertulia.records.transcript.transcript import Transcript
from tests.legality import generated_messages
from tests.legality.validators import faults

Body = dict[str, Any]

CHATS = itertools.count()
ROOM = HistoryBudget(10_000)
PLAIN = Style()


@pytest.fixture(scope="module")
def store(new_place: Callable[[], str]) -> Iterator[Store]:
    with tertulia.open(new_place(), settings=Settings(zone="UTC", durability="fast")) as store:
        yield store


def new_talk(store: Store) -> Transcript:
    source = Source("telegram", str(next(CHATS)), user_id="7")
    return store.transcript(store.sessions.open(source).id)


def shown(
    rows: Sequence[Message],
    budget: HistoryBudget = ROOM,
    form: Format = "openai",
    style: Style = PLAIN,
) -> list[Body]:
    found = fit(blocks(rows), budget, weigher(style))
    return render(found.blocks, form, style._replace(result_limit=found.result_limit))


# -- a legal transcript

words = st.sampled_from(["Good morning.", "sí", "明天", "a\x00b", "[From: me]", " padded "])
picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
spoken = words | st.just([{"type": "text", "text": "look"}, picture])
optional_names = st.sampled_from([{}, {"name": "Ana"}])


@st.composite
def legal_transcripts(draw: st.DrawFn) -> list[Body]:
    """Whole turns as the chat completions API documents them, with everything it allows."""
    found: list[Body] = []
    ids = (f"call_{number}" for number in itertools.count())
    for _ in range(draw(st.integers(1, 6))):
        found.append({"role": "user", "content": draw(spoken), **draw(optional_names)})
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                {"id": i, "type": "function", "function": {"name": "look", "arguments": given}}
                for i, given in zip(
                    ids, draw(st.lists(st.sampled_from(["{}", "{broken"]))), strict=False
                )
            ] or [
                {"id": next(ids), "type": "function", "function": {"name": "f", "arguments": "1"}}
            ]
            step: Body = {"role": "assistant", "tool_calls": calls}
            if draw(st.booleans()):
                step["content"] = draw(st.sampled_from([None, "", "Let me see.", "\n"]))
            found.append(step)
            results = st.sampled_from(["", "sunny", "x" * 40_000]) | st.just(
                [{"type": "text", "text": "sunny"}]
            )
            found += [
                {"role": "tool", "tool_call_id": call["id"], "content": draw(results)}
                for call in calls
            ]
        answer: Body = {"role": "assistant", "content": draw(words)}
        if draw(st.booleans()):
            answer["reasoning_content"] = "because"
        found.append(answer)
    return found


@given(bodies=legal_transcripts())
def test_a_legal_transcript_comes_out_as_it_is(bodies: list[Body]) -> None:
    assert faults("openai", bodies) == []
    assert shown(generated_messages.rows_of(bodies)) == bodies


@given(bodies=legal_transcripts(), max_messages=st.integers(1, 30))
def test_only_the_window_takes_something_away(bodies: list[Body], max_messages: int) -> None:
    found = shown(generated_messages.rows_of(bodies), HistoryBudget(max_messages))
    turns = [place for place, body in enumerate(bodies) if body["role"] == "user"]
    newest = bodies[turns[-1] :]
    if len(newest) <= max_messages:
        whole = [bodies[place:] for place in turns if len(bodies) - place <= max_messages]
        assert found == whole[0], "the most turns that fit, whole"
    else:
        assert found[0] == newest[0]
        assert found[1:] == newest[len(newest) - len(found) + 1 :]


@settings(max_examples=20)
@given(bodies=legal_transcripts())
def test_through_a_store_too(store: Store, bodies: list[Body]) -> None:
    talk = new_talk(store)
    talk.extend(bodies)
    assert talk.history() == talk.load() == bodies


# -- a mended transcript


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rows=generated_messages.stored_rows())
def test_what_was_mended_needs_no_mending(rows: list[Message]) -> None:
    once = shown(rows, style=Style(authors=True))
    again = generated_messages.rows_of(once)
    if once and once[0]["role"] == "assistant":
        # It stood there as a delivery, which a message in the OpenAI form cannot say.
        again[:1] = generated_messages.rows_of(once[:1], kind="delivery")
    assert shown(again, style=Style(authors=True)) == once


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(bodies=generated_messages.transcripts())
def test_mended_and_stored_again_it_is_shown_the_same(store: Store, bodies: list[Body]) -> None:
    talk, again = new_talk(store), new_talk(store)
    talk.extend(bodies)
    once = talk.history()
    again.extend(once)
    assert again.history() == once


# -- the beginning of a history


def pieces(form: Format, messages: Sequence[Body]) -> list[str]:
    """What a provider reads one after the other; neighbours of one role are one message to it."""
    if form != "anthropic":
        return [json.dumps(message) for message in messages]
    return [
        json.dumps([message["role"], block]) for message in messages for block in message["content"]
    ]


@pytest.mark.parametrize("form", FORMATS)
@given(
    turns=st.lists(generated_messages.sound_turns(), min_size=2, max_size=8),
    style=generated_messages.timestamps,
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_new_turn_changes_nothing_before_it(
    form: Format, turns: list[list[Body]], style: Any
) -> None:
    """Also where earlier turns were cut off, and where every turn uses the same call ids."""
    rows = generated_messages.rows_of(list(itertools.chain.from_iterable(turns)))
    before: list[str] = []
    for count in range(1, len(turns) + 1):
        size = sum(map(len, turns[:count]))
        after = pieces(form, shown(rows[:size], form=form, style=Style(style)))
        assert after[: len(before)] == before
        before = after


def two_sided(count: int) -> Iterator[list[Body]]:
    for number in range(count):
        yield [
            {"role": "user", "content": f"question {number} " + "why " * (number % 7)},
            {"role": "assistant", "content": f"answer {number} " + "because " * (number % 11)},
        ]


@pytest.mark.parametrize("limits", [(200, None), (500, 2_000), (100, 3_000)])
def test_a_window_that_is_cut_begins_at_the_same_turn_for_long(
    store: Store, limits: tuple[int, int | None]
) -> None:
    talk = new_talk(store)
    moves = 0
    before: list[Body] = []
    fills = []
    for turn in two_sided(400):
        talk.extend(turn)
        found = talk.history(*limits)
        assert len(found) <= limits[0]
        if before and found[0] != before[0]:
            moves += 1
            assert found[0] in before, "it only moves on"
            fills.append(len(found) / len(before))
        else:
            assert found[: len(before)] == before
        before = found
    # It would be about three hundred moves, one at each turn, if the oldest turn went each time.
    assert 0 < moves < 60
    assert min(fills) > 0.7, "no move takes more than a quarter, and the turn that came too many"


def test_a_long_turn_is_cut_in_jumps_as_well(store: Store) -> None:
    talk = new_talk(store)
    talk.append({"role": "user", "content": "Go through all of it."})
    starts = []
    for number in range(300):
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "go", "arguments": "{}"},
        }
        talk.extend(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": f"page {number}"},
            ]
        )
        found = talk.history(max_messages=101)
        assert found[0]["content"] == "Go through all of it."
        assert found[-1]["content"] == f"page {number}"
        starts.append(found[1]["tool_calls"][0]["id"])
    assert len(set(starts)) < 60


def test_a_short_window_is_as_full_as_it_can_be(store: Store) -> None:
    talk = new_talk(store)
    for turn in two_sided(100):
        talk.extend(turn)
    assert len(talk.history(max_messages=10)) == 10
    assert len(talk.history(max_messages=51)) == 50


sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


@settings(max_examples=40)
@given(sizes=sizes, max_messages=st.integers(1, 80), max_tokens=st.none() | st.integers(20, 9000))
def test_a_history_is_the_same_as_if_all_was_read(
    store: Store, sizes: list[int], max_messages: int, max_tokens: int | None
) -> None:
    """Only the newest messages are read from the database, and they are enough."""
    talk = new_talk(store)
    for size in sizes:
        kind = "word " if size % 2 else "x"
        talk.append({"role": "user", "content": "?" + kind * (size // len(kind))})
        talk.append({"role": "assistant", "content": "So be it."})
    whole = shown(
        talk.entries(), HistoryBudget(max_messages, max_tokens), style=Style(authors=True)
    )
    assert talk.history(max_messages, max_tokens) == whole


def test_pictures_are_read_as_few_as_fit(store: Store) -> None:
    talk = new_talk(store)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}}
    for _ in range(60):
        talk.append({"role": "user", "content": [picture]})
    whole = shown(talk.entries(), HistoryBudget(500, 8_000), style=Style(authors=True))
    assert len(whole) == 9
    assert talk.history(max_tokens=8_000) == whole


def test_rows_that_are_not_shown_take_no_place(store: Store) -> None:
    talk = new_talk(store)
    talk.extend([body for turn in two_sided(20) for body in turn])
    talk.extend([{"role": "system", "content": "x" * 100}] * 200)
    assert len(talk.history(max_messages=10)) == 10
    assert len(talk.history(max_messages=100, max_tokens=200)) > 10
