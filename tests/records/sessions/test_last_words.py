"""The last words of sessions: the newest visible message with a text, on each database."""

from __future__ import annotations

import tertulia
from tertulia import Source, ToolCall


def test_last_words_are_the_newest_that_are_visible(where: str) -> None:
    with tertulia.open(where) as store:
        ids = []
        for chat in ("a", "b", "c", "d"):
            with store.turn(Source("telegram", chat, user_id=chat), f"Hello {chat}") as turn:
                turn.add_assistant(f"Hi {chat}" + "!" * 1_000)
            ids.append(turn.session.id)
        first, second, third, fourth = ids
        with store.turn(Source("telegram", "a", user_id="a"), "And now?") as turn:
            turn.add_assistant(None, tool_calls=[ToolCall("1", "look", {})])
            turn.add_tool_result("1", "a result is no words")
        store.transcript(second).undo()
        with store.turn(Source("telegram", "c", user_id="c"), "W" * 100_000) as turn:
            pass
        empty = store.sessions.open(Source("telegram", "e", user_id="e")).id
        fork = store.sessions.fork(fourth).id
        words = store.sessions.last_words([*ids, empty, fork, "nothing"])
        assert set(words) == {first, third, fourth, fork}
        assert (words[first].role, words[first].text) == ("user", "And now?")
        assert words[third].text == "W" * 200
        assert words[fourth].role == "assistant"
        assert words[fourth].text.startswith("Hi d!!")
        assert len(words[fourth].text) == 200
        assert words[fork].text == words[fourth].text
        store.transcript(second).redo()
        assert store.sessions.last_words([second])[second].text.startswith("Hi b!")
        assert store.sessions.last_words([]) == {}
