"""The history of rows that are legal as they are stored is the one that is made of any rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tertulia
from tertulia import Settings, Source, Store
from tertulia.core.history.formats import Format, Style, Timestamps, render, token_counter
from tertulia.core.history.plain import find_plain_history
from tertulia.core.history.repair import build_blocks
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import Message, from_json, to_json
from tertulia.core.text.time_head import time_head
from tertulia.storage.rows import from_micros
from tests.core.history.messages import add_row, answer, ask, calls, result
from tests.legality import generated_messages
from tests.servers.empty_stores import NewPlace

Body = dict[str, Any]

CHATS = itertools.count()
STYLE = Style(authors=True)
ROOM = HistoryBudget(1000)


@pytest.fixture(scope="module")
def store(new_place: NewPlace) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with new_place() as place, tertulia.open(place, settings=settings) as store:
        yield store


@st.composite
def plain_transcripts(draw: st.DrawFn) -> list[Body]:
    """Turns as a correct program stores them, of some lengths, perhaps with one fault."""
    turns = draw(st.lists(generated_messages.sound_turns(), max_size=4))
    bodies = [body for turn in turns for body in turn]
    if draw(st.booleans()):
        number = itertools.count()
        words = st.sampled_from(["Good morning.", "sí", "a \\ b", "line\nline"])
        bodies = []
        for _ in range(draw(st.integers(1, 50))):
            call_ids = [f"call_{next(number)}" for _ in range(draw(st.integers(0, 2)))]
            steps = [calls(*call_ids), *map(result, call_ids)] if call_ids else []
            question = ask(draw(words))
            if draw(st.booleans()):
                question["message_id"] = str(next(number))
            bodies += [question, *steps, answer(draw(words))]
    faults = draw(st.integers(0, 2)) if bodies else 0
    for _ in range(faults):
        index = draw(st.integers(0, len(bodies) - 1))
        bodies[index : index + 1] = draw(
            st.sampled_from([[], [bodies[index]] * 2])
            | generated_messages.transcripts().map(lambda rows: rows[:1])
        )
        if not bodies:
            break
    return bodies


def stored(rows: Sequence[Message]) -> list[Message]:
    """Rows with the bodies as they are read."""
    return [replace(row, body=from_json(to_json(row.body))) for row in rows]


def make_history(
    rows: Sequence[Message], budget: HistoryBudget, *, whole: bool, zone: tzinfo | None = None
) -> list[Body]:
    fitted = fit_history(build_blocks(rows), budget, token_counter(STYLE), whole=whole)
    style = STYLE._replace(result_limit=fitted.result_limit)
    if zone is not None:
        style = style._replace(timestamps="local", zone=zone)
    return render(fitted.blocks, "openai", style)


def find_history(
    rows: Sequence[Message],
    budget: HistoryBudget = ROOM,
    *,
    whole: bool = True,
    zone: tzinfo | None = None,
) -> list[Body] | None:
    def head(micros: int) -> str:
        return time_head(from_micros(micros), zone)

    columns = [(row.turn, row.role, row.micros, to_json(row.body)) for row in rows]
    first = rows[0].seq if rows else 1
    return find_plain_history(
        columns, first, budget, whole=whole, head=None if zone is None else head
    )


@given(
    bodies=plain_transcripts() | generated_messages.transcripts(),
    max_messages=st.integers(1, 60),
    odd_turns=st.lists(st.integers(0, 9), max_size=4),
    zone=st.sampled_from([None, ZoneInfo("Europe/Madrid")]),
)
def test_plain_history_is_the_one_that_is_made(
    bodies: list[Body], max_messages: int, odd_turns: list[int], zone: tzinfo | None
) -> None:
    rows = generated_messages.rows_of(bodies)
    for turn in odd_turns:
        if turn < len(rows):
            rows[turn] = generated_messages.rows_of([rows[turn].body], seq=turn + 1, turn=turn)[0]
    budget = HistoryBudget(max_messages)
    newest = stored(rows[-(max_messages + 4) :])
    is_whole = len(newest) == len(rows)
    history = find_history(newest, budget, whole=is_whole, zone=zone)
    assert history is None or history == make_history(newest, budget, whole=is_whole, zone=zone)


@settings(max_examples=20)
@given(bodies=plain_transcripts(), max_messages=st.integers(1, 60), undone=st.integers(0, 1))
def test_history_of_a_store_is_the_one_that_is_made(
    store: Store, bodies: list[Body], max_messages: int, undone: int
) -> None:
    source = Source("telegram", str(next(CHATS)), user_id="7")
    transcript = store.transcript(store.sessions.open(source).id)
    transcript.extend(bodies)
    if undone and transcript.count():
        transcript.undo()
        transcript.append(ask())
    account = transcript.account(max_messages=max_messages)
    assert transcript.history(max_messages=max_messages) == list(account.messages)


@pytest.mark.parametrize("timestamps", ["none", "user", "local", "all"])
@pytest.mark.parametrize("form", ["openai", "text"])
def test_turns_with_message_ids_and_times_are_shown_as_the_account_shows_them(
    store: Store, timestamps: Timestamps, form: Format
) -> None:
    source = Source("telegram", str(next(CHATS)), user_id="7")
    for number in range(3):
        text = f"[Message Time: never] question {number}"
        with store.turn(source, text=text, message_id=str(number)) as turn:
            turn.add_assistant("Yes.")
    transcript = store.transcript(turn.session.id)
    account = transcript.account(timestamps=timestamps, format=form)
    assert transcript.history(timestamps=timestamps, format=form) == list(account.messages)


def test_message_with_the_id_of_its_platform_is_recognised() -> None:
    rows = generated_messages.rows_of([{**ask(), "message_id": "981"}, answer()])
    assert find_history(rows) == [ask(), answer()]
    zone = ZoneInfo("Europe/Madrid")
    assert find_history(rows, zone=zone) == make_history(rows, ROOM, whole=True, zone=zone)


WHOLE = [ask(), calls("a", "b"), result("a"), result("b", ""), answer(), ask("And you?")]


def test_legal_rows_are_recognised() -> None:
    rows = generated_messages.rows_of(WHOLE)
    assert find_history(rows) == WHOLE
    assert find_history(rows[2:]) == WHOLE[-1:], "what has lost its question is not shown"


def test_long_history_is_cut_where_the_general_one_is() -> None:
    rows = generated_messages.rows_of([ask(), answer()] * 200)
    budget = HistoryBudget(100)
    newest = rows[-104:]
    history = find_history(newest, budget, whole=False)
    assert history == make_history(newest, budget, whole=False)
    assert history is not None
    assert 75 <= len(history) < 100, "it begins at a turn that rarely changes"


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([ask(), calls("a")], id="call without a result"),
        pytest.param([ask(), calls("a", "b"), result("b"), result("a")], id="other order"),
        pytest.param([ask(), calls("a"), result("b"), answer()], id="result of another call"),
        pytest.param([ask(), calls("a"), result("a"), result("a")], id="second result"),
        pytest.param([ask(), calls("a"), result("a"), calls("a"), result("a")], id="same id"),
        pytest.param([ask(), calls("x" * 41), result("x" * 41)], id="long id"),
        pytest.param([ask(), calls("é"), result("é")], id="id that is not ASCII"),
        pytest.param([ask(), calls("a", arguments="{"), result("a")], id="broken arguments"),
        pytest.param([ask(), calls("a"), ask(), result("a")], id="question before the result"),
        pytest.param([ask(" "), answer()], id="blank question"),
        pytest.param([ask(), answer("")], id="empty answer"),
        pytest.param([ask("a\x00b")], id="NUL"),
        pytest.param([ask("\ud800")], id="surrogate"),
        pytest.param([ask(name="Ana")], id="more fields"),
        pytest.param([ask([{"type": "text", "text": "x"}])], id="parts"),
        pytest.param([ask(), {"role": "system", "content": "x"}], id="other role"),
        pytest.param([{"role": "summary", "content": "x"}, ask()], id="summary"),
        pytest.param([answer()], id="no question"),
        pytest.param([], id="nothing"),
    ],
)  # fmt: skip
def test_what_needs_a_decision_is_left_to_the_general_way(bodies: list[Body]) -> None:
    assert find_history(generated_messages.rows_of(bodies)) is None


def test_turn_that_is_too_big_is_left_to_the_general_way() -> None:
    assert find_history(generated_messages.rows_of(WHOLE[:5]), HistoryBudget(4)) is None


def test_questions_of_one_turn_are_not_separated() -> None:
    rows = generated_messages.rows_of([ask(), answer(), ask(), ask("And you?"), answer()])
    rows[3] = generated_messages.rows_of([rows[3].body], seq=4, turn=rows[2].turn)[0]
    assert find_history(rows, HistoryBudget(2)) is None
    assert find_history(rows, HistoryBudget(3)) == [ask(), ask("And you?"), answer()]


def test_older_rows_are_read_if_these_do_not_fill_the_budget() -> None:
    rows = generated_messages.rows_of([result("a"), result("b"), *[ask(), answer()] * 3])
    assert find_history(rows, HistoryBudget(6), whole=False) is None
    assert find_history(rows, HistoryBudget(5), whole=False) == [ask(), answer()] * 2


def test_rows_of_other_kinds_are_left_to_the_general_way(store: Store) -> None:
    source = Source("telegram", str(next(CHATS)), user_id="7")
    transcript = store.transcript(store.sessions.open(source).id)
    transcript.append(ask())
    add_row(transcript, "command", ask("/usage"))
    assert transcript.history() == [ask()]
