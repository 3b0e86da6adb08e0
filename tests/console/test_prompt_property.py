"""A property: the prompt page shows what the agent was given, with cuts, repairs and summaries."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import Source, ToolCall
from tertulia.console.prompt_page import history_texts

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["W" * 5_000, "\u202e\x00\u2028 <b>", "é🌿 " * 300, "short"]),
)
# What happened in a session: an exchange with so many calls, of which so many have a result.
EXCHANGES = st.tuples(TEXTS, st.lists(TEXTS, max_size=3), st.integers(0, 3), st.booleans())
CHANGES = st.sampled_from(["undo", "redo", "compact", "remove", "clear"])
OPTIONS = st.fixed_dictionaries(
    {
        "max_messages": st.sampled_from([1, 2, 5, 500]),
        "max_tokens": st.sampled_from([None, 1, 50, 400, 4_000]),
        "timestamps": st.sampled_from(["none", "local"]),
        "format": st.sampled_from(["openai", "anthropic", "responses"]),
    }
)


def add_exchange(turn: tertulia.Turn, calls: list[str], results: int, is_answered: bool) -> None:
    """Let the agent call tools, get some of the results, and perhaps answer."""
    if calls:
        turn.add_assistant(
            None, tool_calls=[ToolCall(f"{n}", "look", {"x": text}) for n, text in enumerate(calls)]
        )
        for number, text in enumerate(calls[:results]):
            turn.add_tool_result(f"{number}", text)
    if is_answered:
        turn.add_assistant("An answer. " * 20)


def change(store: tertulia.Store, session: str, kind: str) -> None:
    """Change a transcript as a person may; what cannot be done now is left out."""
    transcript = store.transcript(session)
    try:
        if kind == "compact":
            transcript.compact(keep_turns=1)
        elif kind == "remove":
            transcript.remove(transcript.entries()[0].seq)
        else:
            getattr(transcript, kind)()
    except (tertulia.Error, IndexError):
        return


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tertulia.Store]:
    path = tmp_path_factory.mktemp("prompt") / "talk.db"
    with tertulia.open(path, settings=tertulia.Settings(durability="fast")) as opened:
        yield opened


@given(steps=st.lists(st.one_of(EXCHANGES, CHANGES), max_size=6), question=TEXTS, options=OPTIONS)
def test_the_page_shows_what_the_agent_was_given(
    store: tertulia.Store, steps: list[Any], question: str, options: dict[str, Any]
) -> None:
    numbers = itertools.count()
    session = store.sessions.open(ANA, force_new=True).id
    for step in steps:
        if isinstance(step, str):
            change(store, session, step)
            continue
        text, calls, results, is_answered = step
        with store.turn(ANA, text, message_id=f"{session} {next(numbers)}") as turn:
            add_exchange(turn, calls, results, is_answered)
    with store.turn(ANA, question, message_id=f"{session} last") as turn:
        given_to_agent = turn.history(**options)
        transcript = store.transcript(session)
        seq = transcript.entries()[-1].seq
        while_it_runs = transcript.account(**options).messages
        turn.add_assistant("Done.")
    afterwards = transcript.account(**options, upto=seq).messages
    expected = history_texts(given_to_agent)
    assert history_texts(while_it_runs) == expected
    assert history_texts(afterwards) == expected
    assert [json.loads(text) for _, text in expected] == given_to_agent
