"""Promises of turns that many threads and handles run at the same time."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import NoReturn

from tertulia.core.source import Source
from tertulia.store import Store
from tertulia.testing.fixtures import dm, run_in_threads, texts

_THREADS = 6  # of each handle
_TURNS = 8  # of each thread


def answer(store: Store, source: Source, text: str) -> bool:
    """Run a turn whose message id is its text; return whether it was answered now."""
    with store.turn(source, text, message_id=text) as turn:
        if not turn.duplicate:
            turn.add_assistant(f"re {text}")
    return not turn.duplicate


def fail() -> NoReturn:
    raise RuntimeError("The agent has failed.")


def with_answers(questions: list[str]) -> list[str]:
    """Return the texts of a transcript in which each question was answered at once."""
    return [text for question in questions for text in (question, f"re {question}")]


def texts_of(store: Store, source: Source) -> list[str]:
    return texts(store.transcript(store.sessions.open(source).id))


class TurnPromises:
    """The promises of turns beside each other."""

    def test_turns_beside_each_other_are_stored_once_and_in_order(
        self, store: Store, other: Store
    ) -> None:
        """Both handles are given every message, as after a lost acknowledgement."""
        people = [dm(f"person{number}") for number in range(_THREADS)]
        messages = [f"question {number}" for number in range(_TURNS)]

        def write(handle: Store, person: Source) -> int:
            return sum(answer(handle, person, text) for text in messages)

        counts = run_in_threads(
            *(partial(write, handle, person) for handle in (store, other) for person in people)
        )
        assert sum(counts) == _THREADS * _TURNS
        for person in people:
            assert texts_of(store, person) == with_answers(messages)
        assert store.check() == []

    def test_turns_in_one_conversation_never_interleave(self, store: Store, other: Store) -> None:
        group = Source("telegram", "family", chat_type="group")

        def write(handle: Store, writer: int) -> None:
            for number in range(_TURNS):
                assert answer(handle, group, f"{writer}/{number}")

        handles = (store, other) * 3
        run_in_threads(*(partial(write, handle, index) for index, handle in enumerate(handles)))
        contents = texts_of(store, group)
        assert contents == with_answers(contents[::2])
        assert Counter(contents[::2]) == Counter(
            f"{writer}/{number}" for writer in range(len(handles)) for number in range(_TURNS)
        )

    def test_turn_that_fails_does_not_affect_those_beside_it(
        self, store: Store, other: Store
    ) -> None:
        people = [dm(f"person{number}") for number in range(_THREADS)]
        questions = [f"question {number}" for number in range(_TURNS)]

        def write(handle: Store, index: int) -> None:
            for text in questions:
                if index % 2:
                    answer(handle, people[index], text)
                    continue
                with (
                    suppress(RuntimeError),
                    handle.turn(people[index], text, message_id=text),
                ):
                    fail()

        handles = (store, other) * (_THREADS // 2)
        run_in_threads(*(partial(write, handle, index) for index, handle in enumerate(handles)))
        for index, person in enumerate(people):
            assert texts_of(store, person) == (with_answers(questions) if index % 2 else questions)
        assert store.check() == []
