"""Promises of transcripts: messages are stored unchanged, and no command destroys one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove, NotFound
from tertulia.records.transcript.transcript import Transcript
from tertulia.store import Store
from tertulia.testing.fixtures import (
    Handles,
    assistant_message,
    dm,
    run_in_threads,
    texts,
    turn,
    user_message,
)

NOWHERE = "20260101_000000_00000000"

# Messages that platforms and models may send; each is read back unchanged.
STRANGE: dict[str, dict[str, Any]] = {
    "unknown fields": {"role": "user", "content": "x", "my_field": {"deep": [1, None, {"a": 0.1}]}},
    "no content": {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
    "nothing": {"role": "assistant", "content": None},
    "a tool result": {"role": "tool", "tool_call_id": "call_0", "name": "f", "content": "{}"},
    "an unknown role": {"role": "narrator", "content": "meanwhile"},
    "numbers": {"role": "user", "n": [0, -1, 2**53 + 1, 2**63, -(2**70), 1e-300, 0.1 + 0.2]},
    "booleans": {"role": "user", "content": "", "yes": True, "no": False},
    "zero characters": {"role": "user", "content": "a\x00b", "\x00": "\x00"},
    "half a pair": {"role": "user", "content": "\ud83d", "\udc00": ["\udfff x \ud800"]},
    "emoji": {"role": "user", "content": "👩‍👩‍👧‍👦 🏳️‍🌈"},
    "bidirectional": {"role": "user", "content": "\u202eabc\u2066"},
    "an empty key": {"role": "user", "": {"": ""}},
    "parts": {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
    "a large text": {"role": "tool", "content": "é" * 2_500_000},
    "large parts": {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "B" * 100_000}},
        ],
    },
    "large and half a pair": {
        "role": "user",
        "content": "\ud800" + "x\x00" * 50_000,
        "k": "\ud801",
    },
    "many small parts": {"role": "user", "content": [{"text": "x" * 100} for _ in range(1000)]},
    "nested": {"role": "user", "deep": [[[[[[[[[["x"]]]]]]]]]]},
}


class TranscriptPromises:
    """Promises of appending, reading and revisions; every other change is a revision."""

    @pytest.fixture
    def transcript(self, store: Store) -> Transcript:
        return store.transcript(store.sessions.open(dm("anna")).id)

    @pytest.fixture
    def three(self, transcript: Transcript) -> Transcript:
        """Return a transcript of three turns, the messages 1 to 6."""
        for text in ("a", "b", "c"):
            transcript.extend(turn(text))
        return transcript

    # -- adding and reading

    def test_messages_are_numbered_and_read_in_order(
        self, handles: Handles, transcript: Transcript, other: Store
    ) -> None:
        assert transcript.load() == []
        assert transcript.append(user_message("a")) == 1
        moment = handles.clock.now()
        handles.clock.forward(hours=-5)  # a clock that steps back changes no order
        assert transcript.extend([assistant_message("re a"), user_message("b")]) == 3
        assert transcript.extend(message for message in turn("c")) == 5
        twin = other.transcript(transcript.session_id)
        assert twin.load() == [
            user_message("a"),
            assistant_message("re a"),
            user_message("b"),
            user_message("c"),
            assistant_message("re c"),
        ]
        entries = twin.entries()
        assert [(entry.seq, entry.turn, entry.role) for entry in entries] == [
            (1, 1, "user"),
            (2, 1, "assistant"),
            (3, 2, "user"),
            (4, 3, "user"),
            (5, 3, "assistant"),
        ]
        assert (entries[0].at, entries[1].at) == (moment, handles.clock.now())
        assert transcript.count() == twin.count() == 5

    def test_only_the_newest_messages_can_be_read(self, three: Transcript) -> None:
        three.remove(5)
        for count in (1, 2, 3, 5, 9):
            expected = ["a", "re a", "b", "re b", "re c"][-count:]
            assert [message["content"] for message in three.load(newest=count)] == expected
            assert [entry.body["content"] for entry in three.entries(newest=count)] == expected
        assert three.load(newest=0) == []

    @pytest.mark.parametrize("name", STRANGE)
    def test_a_message_comes_back_as_it_was_given(
        self, transcript: Transcript, other: Store, name: str
    ) -> None:
        transcript.extend([user_message("before"), STRANGE[name], assistant_message("after")])
        twin = other.transcript(transcript.session_id)
        assert twin.load()[1] == STRANGE[name]
        assert twin.entries()[1].body == STRANGE[name]
        # The search index and a fork accept it too.
        other.settle()
        fork = other.sessions.fork(transcript.session_id)
        other.sessions.delete(transcript.session_id)
        assert other.transcript(fork.id).load()[1] == STRANGE[name]

    def test_an_invalid_message_refuses_the_whole_batch(self, transcript: Transcript) -> None:
        nested: Any = "x"
        for _ in range(2000):
            nested = [nested]
        wrong: list[Any] = [
            {},
            {"content": "no role"},
            {"role": ""},
            {"role": 1},
            "text",
            None,
            {"role": "user", "content": object()},
            {"role": "user", "content": {1, object()}},
            {"role": "user", "content": "\ud800", "more": object()},
            {"role": "user", "content": nested},
        ]
        for message in wrong:
            with pytest.raises(IllegalMove) as caught:
                transcript.extend([user_message("first"), message], Usage(input=1))
            assert caught.value.hint
            with pytest.raises(IllegalMove):
                transcript.rewrite([user_message("first"), message])
        assert transcript.load() == []
        assert len(transcript.revisions()) == 1

    def test_no_message_makes_a_transcript_unreadable(self, store: Store) -> None:
        """An accepted message can be read at any call depth of the reading program."""
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        accepted = 0
        for depth in (10, 50, 99, 200, 400, 800, 950):
            nested: Any = "x"
            for _ in range(depth):
                nested = [nested]
            try:
                transcript.append({"role": "user", "content": nested})
            except IllegalMove:
                continue
            accepted += 1

        def deep(frames: int) -> int:
            return deep(frames - 1) if frames else len(transcript.load())

        assert accepted >= 3
        assert deep(500) == accepted
        store.settle()

    def test_a_missing_session_raises_not_found(self, store: Store) -> None:
        nowhere = store.transcript(NOWHERE)
        calls: list[Callable[[], object]] = [
            partial(nowhere.append, user_message("a")),
            partial(nowhere.extend, [user_message("a")], Usage(input=1)),
            partial(nowhere.extend, []),
            nowhere.load,
            nowhere.entries,
            nowhere.count,
            nowhere.revisions,
            nowhere.clear,
            nowhere.undo,
            nowhere.redo,
            partial(nowhere.rewrite, []),
            partial(nowhere.keep_recent, 1),
            partial(nowhere.edit, 1, user_message("a")),
            partial(nowhere.remove, 1),
            partial(nowhere.at, 1),
            partial(nowhere.restore, 1),
            partial(store.sessions.fork, NOWHERE),
        ]
        for call in calls:
            with pytest.raises(NotFound):
                call()
        assert store.usage.sum() == {}

    def test_two_handles_lose_nothing(
        self, store: Store, other: Store, transcript: Transcript
    ) -> None:
        def write(handle: Store, name: str) -> list[int]:
            twin = handle.transcript(transcript.session_id)
            return [
                twin.extend([user_message(f"{name} {n}"), assistant_message("ok")])
                for n in range(25)
            ]

        names = [f"writer {number}" for number in range(6)]
        works = (partial(write, (store, other)[i % 2], name) for i, name in enumerate(names))
        ends = [end for part in run_in_threads(*works) for end in part]
        assert sorted(ends) == list(range(2, 301, 2))
        stored_texts = texts(transcript)
        assert stored_texts[1::2] == ["ok"] * 150
        for name in names:
            assert [text for text in stored_texts if text.startswith(name)] == [
                f"{name} {n}" for n in range(25)
            ]

    # -- changing the visible messages

    def test_rewrite_replaces_the_visible_messages(self, three: Transcript) -> None:
        three.rewrite(iter([user_message("x"), assistant_message("y")]))
        assert texts(three) == ["x", "y"]
        three.append(user_message("z"))
        assert texts(three) == ["x", "y", "z"]
        three.rewrite([])
        assert texts(three) == []
        three.append(user_message("again"))
        assert texts(three) == ["again"]

    def test_clear_shows_nothing(self, three: Transcript, other: Store) -> None:
        three.clear()
        assert (texts(three), three.count()) == ([], 0)
        assert other.transcript(three.session_id).append(user_message("d")) == 7
        assert texts(three) == ["d"]
        assert three.at(1) == [*turn("a"), *turn("b"), *turn("c")]

    def test_undo_takes_back_whole_turns(self, three: Transcript) -> None:
        assert three.undo() == 1
        assert texts(three) == ["a", "re a", "b", "re b"]
        assert three.undo(5) == 2
        assert texts(three) == []
        revisions = len(three.revisions())
        assert three.undo() == 0
        assert len(three.revisions()) == revisions
        with pytest.raises(IllegalMove):
            three.undo(0)

    def test_a_turn_may_be_very_long(self, three: Transcript) -> None:
        three.extend(
            [user_message("d"), *(assistant_message(f"step {number}") for number in range(450))]
        )
        three.keep_recent(7)
        assert len(three.load()) == 451
        assert three.undo() == 1
        assert texts(three) == []
        three.restore(1)
        assert three.undo(2) == 2
        assert texts(three) == ["a", "re a", "b", "re b"]

    def test_undo_keeps_messages_before_the_first_turn(self, transcript: Transcript) -> None:
        transcript.append(assistant_message("good morning"))
        transcript.extend(turn("a"))
        assert transcript.undo(2) == 1
        assert texts(transcript) == ["good morning"]
        assert transcript.undo() == 0

    def test_redo_restores_what_undo_took_back(self, three: Transcript) -> None:
        three.undo()
        three.undo()
        assert three.redo()
        assert texts(three) == ["a", "re a", "b", "re b"]
        assert three.redo()
        assert texts(three) == ["a", "re a", "b", "re b", "c", "re c"]
        assert not three.redo()
        three.append(user_message("d"))
        assert texts(three)[-1] == "d"

    def test_redo_does_nothing_after_a_new_message(self, three: Transcript) -> None:
        three.undo()
        three.append(user_message("d"))
        assert not three.redo()
        assert texts(three) == ["a", "re a", "b", "re b", "d"]
        three.clear()
        assert not three.redo()

    def test_keep_recent_begins_with_a_turn(self, three: Transcript) -> None:
        three.keep_recent(9)
        three.keep_recent(6)
        assert len(three.revisions()) == 1
        three.keep_recent(3)
        assert texts(three) == ["b", "re b", "c", "re c"]
        three.keep_recent(2)
        assert texts(three) == ["c", "re c"]
        three.extend(turn("d"))
        three.keep_recent(1)
        assert texts(three) == ["d", "re d"]
        three.keep_recent(0)
        assert texts(three) == []

    def test_edit_shows_another_message_in_its_place(self, three: Transcript) -> None:
        three.edit(2, assistant_message("better a"))
        three.edit(6, assistant_message("better c"))
        three.edit(1, user_message("A"))
        three.append(user_message("d"))
        assert texts(three) == ["A", "better a", "b", "re b", "c", "better c", "d"]
        with pytest.raises(NotFound):
            three.edit(1, user_message("it is not seen any more"))
        with pytest.raises(NotFound):
            three.edit(99, user_message("it never was"))

    def test_an_edited_message_stays_in_its_turn(self, three: Transcript) -> None:
        three.edit(4, assistant_message("better b"))
        three.edit(3, user_message("B"))
        assert three.undo() == 1
        assert texts(three) == ["a", "re a", "B", "better b"]
        assert three.undo() == 1
        assert texts(three) == ["a", "re a"]
        three.redo()
        three.keep_recent(1)
        assert texts(three) == ["B", "better b"]

    def test_an_answer_that_was_edited_stays_with_its_question(self, three: Transcript) -> None:
        three.edit(2, assistant_message("better a"))
        three.remove(3)
        three.remove(4)
        three.undo()
        assert texts(three) == ["a", "better a"]

    def test_remove_hides_one_message(self, three: Transcript) -> None:
        three.remove(6)
        three.remove(1)
        three.remove(3)
        assert texts(three) == ["re a", "re b", "c"]
        with pytest.raises(NotFound):
            three.remove(3)
        three.append(assistant_message("d"))
        assert texts(three) == ["re a", "re b", "c", "d"]

    # -- revisions

    def test_pop_returns_and_hides_the_newest_message(self, three: Transcript) -> None:
        popped = three.pop()
        assert popped is not None
        assert (popped.seq, popped.body) == (6, assistant_message("re c"))
        assert texts(three) == ["a", "re a", "b", "re b", "c"]
        three.append(assistant_message("other"))
        assert [three.pop(), three.pop()] != [None, None]
        assert texts(three) == ["a", "re a", "b", "re b"]
        assert [message["content"] for message in three.at(1)][-1] == "re c"
        three.clear()
        assert three.pop() is None

    def test_every_revision_stays_readable(self, three: Transcript, other: Store) -> None:
        visible = {1: three.load()}

        def note() -> None:
            visible[len(visible) + 1] = three.load()

        three.undo()
        three.append(user_message("d"))
        note()
        three.rewrite(turn("x"))
        note()
        three.edit(8, user_message("X"))
        note()
        three.clear()
        three.append(user_message("y"))
        note()
        three.restore(1)
        three.append(user_message("z"))
        note()
        three.keep_recent(1)
        note()
        three.remove(three.entries()[-1].seq)
        note()
        twin = other.transcript(three.session_id)
        assert {n: twin.at(n) for n in visible} == visible
        assert [
            (
                revision.number,
                revision.made_by,
                revision.made_from,
                revision.messages,
                revision.is_current,
            )
            for revision in twin.revisions()
        ] == [
            (1, "start", None, 6, False),
            (2, "undo", 1, 5, False),
            (3, "rewrite", 2, 2, False),
            (4, "edit", 3, 2, False),
            (5, "clear", 4, 1, False),
            (6, "restore", 5, 7, False),
            (7, "keep_recent", 6, 1, False),
            (8, "remove", 7, 0, True),
        ]
        for n, messages in visible.items():
            twin.restore(n)
            assert three.load() == messages

    def test_an_unknown_revision_raises_not_found(self, three: Transcript) -> None:
        for number in (0, -1, 2, 2**40):
            with pytest.raises(NotFound):
                three.at(number)
            with pytest.raises(NotFound):
                three.restore(number)

    # -- forks

    def test_a_fork_has_the_same_past_and_its_own_future(
        self, store: Store, three: Transcript
    ) -> None:
        parent = store.sessions.require(three.session_id)
        fork = store.sessions.fork(parent.id)
        assert (fork.key, fork.origin, fork.parent_id) == (parent.key, parent.origin, parent.id)
        assert fork.parent_kind == "fork"
        assert store.sessions.require(parent.id).end_reason == "fork"
        assert store.sessions.open(dm("anna")).id == fork.id
        branch = store.transcript(fork.id)
        assert branch.load() == three.load()
        three.append(user_message("on the trunk"))
        branch.append(user_message("on the branch"))
        three.undo(2)
        branch.edit(1, user_message("A"))
        assert texts(three) == ["a", "re a", "b", "re b"]
        assert texts(branch) == ["A", "re a", "b", "re b", "c", "re c", "on the branch"]
        assert branch.undo(2) == 2
        assert texts(branch) == ["A", "re a", "b", "re b"]
        branch.clear()
        assert texts(three) == ["a", "re a", "b", "re b"]

    def test_a_fork_begins_at_a_message(self, store: Store, three: Transcript) -> None:
        branch = store.transcript(store.sessions.fork(three.session_id, at=3).id)
        assert texts(branch) == ["a", "re a", "b"]
        branch.extend([assistant_message("other"), user_message("d")])
        assert branch.undo() == 1
        assert texts(branch) == ["a", "re a", "b", "other"]
        three.undo()
        for at in (0, 5, 99):
            with pytest.raises(NotFound):
                store.sessions.fork(three.session_id, at=at)

    def test_a_fork_begins_within_what_is_seen(self, store: Store, three: Transcript) -> None:
        three.edit(1, user_message("A"))  # now the first message has the highest number
        branch = store.transcript(store.sessions.fork(three.session_id, at=2).id)
        assert texts(branch) == ["A", "re a"]
        for number in range(10):
            branch.append(user_message(f"b{number}"))
        branch.remove(7)  # sequence numbers are unique in the fork, also for the copied messages
        branch.extend(turn("d"))
        visible = texts(branch)
        assert visible == ["re a", *(f"b{number}" for number in range(10)), "d", "re d"]
        store.sessions.delete(three.session_id)
        assert texts(branch) == visible
        assert [message["content"] for message in branch.at(1)] == ["A", *visible[:-2]]
        empty = store.sessions.open(dm("ben"))
        assert store.transcript(store.sessions.fork(empty.id).id).load() == []

    def test_forks_outlive_their_source(
        self, handles: Handles, store: Store, three: Transcript
    ) -> None:
        big = "x" * 100_000
        three.append(user_message(big))
        first = store.sessions.fork(three.session_id)
        branch = store.transcript(first.id)
        branch.append(assistant_message("d"))
        branch.undo()
        second = store.sessions.fork(first.id, at=4)
        twig = store.transcript(second.id)
        twig.append(user_message("e"))
        visible = [branch.at(1), branch.at(2), branch.load(), twig.load()]
        store.sessions.delete(three.session_id)
        assert [branch.at(1), branch.at(2), branch.load(), twig.load()] == visible
        assert store.sessions.require(first.id).parent_id is None
        store.sessions.delete(first.id)
        assert twig.load() == visible[-1]
        branch = store.transcript(store.sessions.fork(second.id).id)
        branch.append(user_message("f"))
        store.sessions.delete(second.id)
        assert texts(branch) == ["a", "re a", "b", "re b", "e", "f"]
        assert handles.open().check() == []
