"""What other terminals do: found in the transcript, and shown once."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Iterator

import pytest

from tertulia import Source, Store, aio
from tertulia import open as open_store
from tertulia.cli.transcript_follower import TranscriptFollower
from tertulia.platforms.base import StreamUpdate
from tertulia.platforms.terminal.adapter import TerminalAdapter
from tertulia.platforms.terminal.incoming import OtherMessage

TERMINAL = Source.local()


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_store(where) as store:
        yield store


@pytest.fixture
def terminal() -> TerminalAdapter:
    return TerminalAdapter(stdin=io.StringIO(), stdout=io.StringIO())


def _answer(store: Store, text: str, message_id: str) -> None:
    with store.turn(TERMINAL, text, message_id=message_id) as turn:
        turn.add_assistant(f"You said {text}.")


def _look(follower: TranscriptFollower, store: Store) -> list[str]:
    messages, _ = follower._look(store)
    return [message.text for message in messages]


def _follower(where: str, terminal: TerminalAdapter) -> TranscriptFollower:
    async def make() -> TranscriptFollower:
        async with aio.open(where) as store:
            return TranscriptFollower(store, terminal)

    return asyncio.run(make())


@pytest.fixture
def follower(where: str, store: Store, terminal: TerminalAdapter) -> TranscriptFollower:
    _answer(store, "before", "0")
    follower = _follower(where, terminal)
    assert _look(follower, store) == []
    return follower


def test_what_redo_restores_is_no_news(where: str, store: Store, terminal: TerminalAdapter) -> None:
    _answer(store, "plums", "1")
    key = store.sessions.key(TERMINAL)
    session = store.sessions.current(key)
    assert session is not None
    store.transcript(session.id).undo()
    follower = _follower(where, terminal)
    assert _look(follower, store) == []
    store.transcript(session.id).redo()
    assert _look(follower, store) == []
    _answer(store, "pears", "2")
    assert _look(follower, store) == ["pears", "You said pears."]


def test_turns_of_others_are_found_once(store: Store, follower: TranscriptFollower) -> None:
    _answer(store, "plums", "1")
    assert _look(follower, store) == ["plums", "You said plums."]
    assert _look(follower, store) == []


def test_turns_that_ran_here_are_not(
    store: Store, follower: TranscriptFollower, terminal: TerminalAdapter
) -> None:
    terminal.typed_ids.add("1")
    terminal.answered_here.add("1")
    _answer(store, "plums", "1")
    assert _look(follower, store) == []


def test_answer_of_another_program_to_what_was_typed_here(
    store: Store, follower: TranscriptFollower, terminal: TerminalAdapter
) -> None:
    terminal.typed_ids.add("1")
    _answer(store, "plums", "1")
    messages, _ = follower._look(store)
    assert [(message.text, message.is_to_typed) for message in messages] == [
        ("You said plums.", True)
    ]


def test_resumed_session_is_not_shown_again(store: Store, follower: TranscriptFollower) -> None:
    key = store.sessions.conversation(TERMINAL)
    old = store.sessions.current(key)
    assert old is not None
    store.sessions.reset(key)
    _answer(store, "in a new session", "1")
    assert _look(follower, store) == ["in a new session", "You said in a new session."]
    store.sessions.switch(key, old.id)
    assert _look(follower, store) == []
    _answer(store, "back", "2")
    assert _look(follower, store) == ["back", "You said back."]


def test_what_others_wrote_is_shown_before_the_own_turn(where: str, store: Store) -> None:
    """Two terminals show the same order: that of the transcript."""
    shown: list[str] = []

    class Shown(TerminalAdapter):
        def show_others(self, messages: Iterable[OtherMessage], *, is_busy: bool) -> None:
            shown.extend(message.text for message in messages)

    async def play() -> None:
        async with aio.open(where) as opened:
            terminal = Shown(stdin=io.StringIO(), stdout=io.StringIO())
            await TranscriptFollower(opened, terminal).look()
            _answer(store, "of another", "1")
            update = StreamUpdate(kind="began", turn="2", message_id="2")
            await terminal.show(TERMINAL, update)
            assert shown == ["of another", "You said of another."]

    _answer(store, "before", "0")
    asyncio.run(play())


def test_turn_in_progress_elsewhere_is_noticed(store: Store, follower: TranscriptFollower) -> None:
    store.inbox.put(TERMINAL, "plums", message_id="1")
    assert not follower._look(store)[1]
    store.inbox.claim()
    assert follower._look(store)[1]


def test_plain_terminal_says_who_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"TERM": "dumb"})
    stdin, stdout = io.StringIO(), io.StringIO()
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(stdout, "isatty", lambda: True)
    terminal = TerminalAdapter(stdin=stdin, stdout=stdout)
    texts = [("plums", False), ("Plums it is.", True)]
    terminal.show_others(
        [OtherMessage("1:1", text, is_answer, is_to_typed=False) for text, is_answer in texts],
        is_busy=False,
    )
    assert stdout.getvalue() == (
        "From another terminal, You: plums\nFrom another terminal, Agent: Plums it is.\n"
    )
