"""A property: the prompt page shows what the agent was given, with cuts, repairs and summaries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import Source, ToolCall
from tests.console.served_console import served_console
from tests.console.test_prompt_page import messages_in
from tests.servers.empty_stores import NewPlace

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
        "format": st.sampled_from(["openai", "anthropic", "responses"]),
    }
)


class Reader(NamedTuple):
    """A store, and a browser that is signed in at its console."""

    store: tertulia.Store
    client: httpx2.Client

    def prompt(self, session: str, **options: Any) -> list[dict[str, Any]]:
        """Return the messages on the page, read as a browser reads them."""
        values = {name: str(value) for name, value in options.items() if value is not None}
        page = self.client.get(f"/console/sessions/{session}/prompt", params=values)
        assert page.status_code == 200, page.text
        return messages_in(page.text)


@pytest.fixture(scope="module")
def reader(new_place: NewPlace) -> Iterator[Reader]:
    with (
        new_place() as place,
        served_console(place) as console,
        console.client() as client,
        tertulia.open(place, settings=tertulia.Settings(durability="fast")) as store,
    ):
        yield Reader(store, client)


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


@given(steps=st.lists(st.one_of(EXCHANGES, CHANGES), max_size=6), question=TEXTS, options=OPTIONS)
def test_the_page_shows_what_the_agent_was_given(
    reader: Reader, steps: list[Any], question: str, options: dict[str, Any]
) -> None:
    store, numbers = reader.store, itertools.count()
    session = store.sessions.open(ANA, force_new=True).id
    for step in steps:
        if isinstance(step, str):
            change(store, session, step)
            continue
        text, calls, results, is_answered = step
        with store.turn(ANA, text, message_id=f"{session} {next(numbers)}") as turn:
            add_exchange(turn, calls, results, is_answered)
    with store.turn(ANA, question, message_id=f"{session} last") as turn:
        given_to_agent = turn.history(**options, timestamps="local")
        seq = store.transcript(session).entries()[-1].seq
        while_it_runs = reader.prompt(session, **options)
        turn.add_assistant("Done.")
    assert while_it_runs == given_to_agent
    assert reader.prompt(session, **options, upto=seq) == given_to_agent
