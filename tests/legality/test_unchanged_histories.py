"""A legal transcript, a repaired one, and the beginning of a history stay unchanged."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Settings, Source, Store
from tertulia.core.history.formats import FORMATS, Format, Style, render, token_counter
from tertulia.core.history.repair import build_blocks
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import Message
from tertulia.records.transcript.transcript import Transcript
from tests.legality import generated_messages
from tests.legality.validators import faults
from tests.servers.empty_stores import NewPlace

Body = dict[str, Any]

CHATS = itertools.count()
ROOM = HistoryBudget(10_000)
PLAIN = Style()


@pytest.fixture(scope="module")
def store(new_place: NewPlace) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with new_place() as place, tertulia.open(place, settings=settings) as store:
        yield store


def new_transcript(store: Store) -> Transcript:
    source = Source("telegram", str(next(CHATS)), user_id="7")
    return store.transcript(store.sessions.open(source).id)


def render_history(
    rows: Sequence[Message],
    budget: HistoryBudget = ROOM,
    form: Format = "openai",
    style: Style = PLAIN,
) -> list[Body]:
    fitted = fit_history(build_blocks(rows), budget, token_counter(style))
    return render(fitted.blocks, form, style._replace(result_limit=fitted.result_limit))


# -- a legal transcript

words = st.sampled_from(["Good morning.", "sí", "明天", "[From: me]", " padded "])
picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
spoken = words | st.just([{"type": "text", "text": "look"}, picture])
optional_names = st.sampled_from([{}, {"name": "Ana"}])


@st.composite
def legal_transcripts(draw: st.DrawFn) -> list[Body]:
    """Whole turns as the chat completions API documents them, with everything it allows."""
    messages: list[Body] = []
    ids = (f"call_{number}" for number in itertools.count())
    for _ in range(draw(st.integers(1, 6))):
        messages.append({"role": "user", "content": draw(spoken), **draw(optional_names)})
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                {"id": i, "type": "function", "function": {"name": "look", "arguments": given}}
                for i, given in zip(
                    ids, draw(st.lists(st.sampled_from(["{}", '{"at": [1, "x"]}']))), strict=False
                )
            ] or [
                {"id": next(ids), "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ]
            step: Body = {"role": "assistant", "tool_calls": calls}
            if draw(st.booleans()):
                step["content"] = draw(st.sampled_from([None, "", "Let me see.", "\n"]))
            messages.append(step)
            results = st.sampled_from(["", "sunny", "x" * 40_000]) | st.just(
                [{"type": "text", "text": "sunny"}]
            )
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": draw(results)}
                for call in calls
            ]
        answer: Body = {"role": "assistant", "content": draw(words)}
        if draw(st.booleans()):
            answer["reasoning_content"] = "because"
        messages.append(answer)
    return messages


@given(bodies=legal_transcripts())
def test_legal_transcript_is_unchanged(bodies: list[Body]) -> None:
    assert faults("openai", bodies) == []
    assert render_history(generated_messages.rows_of(bodies)) == bodies


@given(bodies=legal_transcripts(), max_messages=st.integers(1, 30))
def test_only_the_window_removes_messages(bodies: list[Body], max_messages: int) -> None:
    messages = render_history(generated_messages.rows_of(bodies), HistoryBudget(max_messages))
    turns = [index for index, body in enumerate(bodies) if body["role"] == "user"]
    newest = bodies[turns[-1] :]
    if len(newest) <= max_messages:
        whole = [bodies[index:] for index in turns if len(bodies) - index <= max_messages]
        assert messages == whole[0], "the most turns that fit, whole"
    else:
        assert messages[0] == newest[0]
        assert messages[1:] == newest[len(newest) - len(messages) + 1 :]


@settings(max_examples=20)
@given(bodies=legal_transcripts())
def test_legal_transcript_is_unchanged_through_a_store(store: Store, bodies: list[Body]) -> None:
    transcript = new_transcript(store)
    transcript.extend(bodies)
    assert transcript.history() == transcript.load() == bodies


# -- a mended transcript


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rows=generated_messages.stored_rows())
def test_repaired_history_needs_no_repair(rows: list[Message]) -> None:
    once = render_history(rows, style=Style(authors=True))
    again = generated_messages.rows_of(once)
    if once and once[0]["role"] == "assistant":
        # It stood there as a delivery, which a message in the OpenAI form cannot say.
        again[:1] = generated_messages.rows_of(once[:1], kind="delivery")
    assert render_history(again, style=Style(authors=True)) == once


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(bodies=generated_messages.transcripts())
def test_repaired_history_stored_again_is_unchanged(store: Store, bodies: list[Body]) -> None:
    transcript, again = new_transcript(store), new_transcript(store)
    transcript.extend(bodies)
    once = transcript.history()
    again.extend(once)
    assert again.history() == once


# -- the beginning of a history


def pieces(form: Format, messages: Sequence[Body]) -> list[str]:
    """Return the parts a provider reads; it reads adjacent messages of one role as one."""
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
def test_new_turn_changes_nothing_before_it(
    form: Format, turns: list[list[Body]], style: Any
) -> None:
    """Even if earlier turns were cut off, and if every turn uses the same call ids."""
    rows = generated_messages.rows_of(list(itertools.chain.from_iterable(turns)))
    before: list[str] = []
    for count in range(1, len(turns) + 1):
        size = sum(map(len, turns[:count]))
        after = pieces(form, render_history(rows[:size], form=form, style=Style(style)))
        assert after[: len(before)] == before
        before = after


def two_sided(count: int) -> Iterator[list[Body]]:
    for number in range(count):
        yield [
            {"role": "user", "content": f"question {number} " + "why " * (number % 7)},
            {"role": "assistant", "content": f"answer {number} " + "because " * (number % 11)},
        ]


@pytest.mark.parametrize(
    "limits",
    [
        (100, 3_000),
        pytest.param((200, None), marks=pytest.mark.check),
        pytest.param((500, 2_000), marks=pytest.mark.check),
    ],
)
def test_beginning_of_a_cut_window_moves_rarely(
    store: Store, limits: tuple[int, int | None]
) -> None:
    transcript = new_transcript(store)
    moves = 0
    before: list[Body] = []
    fills = []
    for turn in two_sided(400):
        transcript.extend(turn)
        messages = transcript.history(*limits)
        assert len(messages) <= limits[0]
        if before and messages[0] != before[0]:
            moves += 1
            assert messages[0] in before, "it only moves on"
            fills.append(len(messages) / len(before))
        else:
            assert messages[: len(before)] == before
        before = messages
    # It would be about three hundred moves, one at each turn, if the oldest turn went each time.
    assert 0 < moves < 60
    assert min(fills) > 0.7, "no move takes more than a quarter, and the turn that came too many"


def test_beginning_of_a_cut_turn_moves_rarely(store: Store) -> None:
    transcript = new_transcript(store)
    transcript.append({"role": "user", "content": "Go through all of it."})
    starts = []
    for number in range(300):
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "go", "arguments": "{}"},
        }
        transcript.extend(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": f"page {number}"},
            ]
        )
        messages = transcript.history(max_messages=101)
        assert messages[0]["content"] == "Go through all of it."
        assert messages[-1]["content"] == f"page {number}"
        starts.append(messages[1]["tool_calls"][0]["id"])
    assert len(set(starts)) < 60


def test_short_window_uses_the_whole_budget(store: Store) -> None:
    transcript = new_transcript(store)
    for turn in two_sided(100):
        transcript.extend(turn)
    assert len(transcript.history(max_messages=10)) == 10
    assert len(transcript.history(max_messages=51)) == 50


sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


@settings(max_examples=40)
@given(sizes=sizes, max_messages=st.integers(1, 80), max_tokens=st.none() | st.integers(20, 9000))
def test_history_equals_that_of_all_messages(
    store: Store, sizes: list[int], max_messages: int, max_tokens: int | None
) -> None:
    """Only the newest messages are read from the database, and they are enough."""
    transcript = new_transcript(store)
    for size in sizes:
        kind = "word " if size % 2 else "x"
        transcript.append({"role": "user", "content": "?" + kind * (size // len(kind))})
        transcript.append({"role": "assistant", "content": "So be it."})
    whole = render_history(
        transcript.entries(), HistoryBudget(max_messages, max_tokens), style=Style(authors=True)
    )
    assert transcript.history(max_messages, max_tokens) == whole


def test_images_within_the_budget(store: Store) -> None:
    transcript = new_transcript(store)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}}
    for _ in range(60):
        transcript.append({"role": "user", "content": [picture]})
    whole = render_history(
        transcript.entries(), HistoryBudget(500, 8_000), style=Style(authors=True)
    )
    assert len(whole) == 9
    assert transcript.history(max_tokens=8_000) == whole


def test_hidden_rows_do_not_count_towards_the_limit(store: Store) -> None:
    transcript = new_transcript(store)
    transcript.extend([body for turn in two_sided(20) for body in turn])
    transcript.extend([{"role": "system", "content": "x" * 100}] * 200)
    assert len(transcript.history(max_messages=10)) == 10
    assert len(transcript.history(max_messages=100, max_tokens=200)) > 10
