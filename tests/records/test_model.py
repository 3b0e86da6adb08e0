"""A store driven by arbitrary operations does what a few lists in memory do.

The model keeps every revision of every session as a list of entries. It knows nothing of ranges,
logs, blobs or an index; it says what a person would say who watched. After each step the session
that was touched is compared, and at the end everything: each revision of each session, what is
current, what is found by search, and what `check` says.

The same machine then drives SQLite and PostgreSQL side by side: every call is made on both, and
both must give the same result or the same error.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tertulia
from tertulia import Duplicate, NotFound, Settings, Source
from tertulia.core.message import Message
from tertulia.core.session import Page
from tertulia.records import session_rows
from tertulia.records.transcript.transcript import Transcript
from tertulia.testing import FakeClock
from tests.records.store_inspection import without_index
from tests.servers.postgres import Server

WORDS = ("amber", "basalt", "cobalt", "dolomite")
SOURCES = (
    Source("telegram", "anna", user_id="anna"),
    Source("telegram", "g", chat_type="group", user_id="anna"),  # the same owner, another key
    Source("telegram", "g", chat_type="group"),
)
# Long enough to be kept apart from its message.
LARGE = "filler " * 5_000


class Entry(NamedTuple):
    """A message that is seen: in whose log it lies, and under which number."""

    home: str
    seq: int
    turn: int
    role: str
    text: str


class Revision:
    def __init__(self, entries: list[Entry], made_by: str, made_from: int | None, at: int) -> None:
        self.entries = entries
        self.made_by = made_by
        self.made_from = made_from
        self.at = at


class Sitting:
    """The model of a session."""

    def __init__(self, session_id: str, key: str, owner: str, entries: list[Entry]) -> None:
        self.id = session_id
        self.key = key
        self.owner = owner
        self.title: str | None = None
        self.is_current = True
        self.last_seq = max((entry.seq for entry in entries), default=0)
        self.turns = entries[-1].turn if entries else 0
        self.revisions = [Revision(entries, "start", None, self.last_seq)]
        self.number = 1

    @property
    def revision(self) -> Revision:
        return self.revisions[self.number - 1]

    @property
    def seen(self) -> list[Entry]:
        return self.revision.entries

    def make(self, role: str, text: str) -> Entry:
        self.last_seq += 1
        self.turns += role == "user"
        return Entry(self.id, self.last_seq, self.turns, role, text)

    def revise(self, entries: list[Entry], made_by: str) -> None:
        self.revisions.append(Revision(entries, made_by, self.number, self.last_seq))
        self.number = len(self.revisions)

    def turn_starts(self, turns: int) -> list[int]:
        """Where the newest turns begin among what is seen, newest first."""
        starts: list[int] = []
        turn = -1
        for place in range(len(self.seen) - 1, -1, -1):
            entry = self.seen[place]
            if entry.turn == turn:
                starts[-1] = place
            elif len(starts) == turns or entry.turn == 0:
                break
            else:
                turn = entry.turn
                starts.append(place)
        return starts


messages = st.tuples(
    st.sampled_from(("user", "assistant", "tool")),
    st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join),
    st.integers(0, 20).map(lambda number: number == 0),
).map(lambda drawn: (drawn[0], f"{drawn[1]} {LARGE}" if drawn[2] else drawn[1]))

picks = st.integers(0, 2**16)


class StoreMachine(RuleBasedStateMachine):
    """The store and its model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tertulia-model-"))
        self.clock = FakeClock()
        self.store: Any = self.opened()
        self.sittings: dict[str, Sitting] = {}
        self.touched: str | None = None

    def opened(self) -> Any:
        return self.opened_at(str(self.folder / "talk.db"))

    def opened_at(self, where: str) -> tertulia.Store:
        return tertulia.open(
            where, settings=Settings(zone="UTC", durability="fast"), clock=self.clock
        )

    def teardown(self) -> None:
        try:
            self.compare_everything()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    # -- choosing

    def one(self, pick: int) -> Sitting:
        """Mostly one of the newest two: a few that much happens to are of more interest."""
        among = list(self.sittings.values())
        if pick % 4:
            among = among[-2:]
        sitting = among[pick // 4 % len(among)]
        self.touched = sitting.id
        return sitting

    def entry(self, sitting: Sitting, pick: int) -> tuple[int, Entry]:
        place = pick % len(sitting.seen)
        return place, sitting.seen[place]

    def transcript(self, sitting: Sitting) -> Any:
        return self.store.transcript(sitting.id)

    # -- sessions

    def begin(self, session: tertulia.Session, entries: list[Entry]) -> None:
        for sitting in self.sittings.values():
            if sitting.key == session.key:
                sitting.is_current = False
        owner = "anna" if session.origin.user_id == "anna" else session.key
        self.sittings[session.id] = Sitting(session.id, session.key, owner, entries)
        self.touched = session.id

    def current(self, key: str) -> Sitting | None:
        found = [one for one in self.sittings.values() if one.key == key and one.is_current]
        assert len(found) <= 1
        return found[0] if found else None

    @initialize()
    def first_contact(self) -> None:
        self.begin(self.store.sessions.open(SOURCES[0]), [])

    @rule(source=st.sampled_from(SOURCES))
    def open(self, source: Source) -> None:
        session = self.store.sessions.open(source)
        current = self.current(session.key)
        if current is None:
            assert session.id not in self.sittings
            self.begin(session, [])
        else:
            assert session.id == current.id

    @rule(pick=picks)
    @precondition(lambda self: self.sittings)
    def reset(self, pick: int) -> None:
        session = self.store.sessions.reset(self.one(pick).key)
        assert session is not None
        assert session.id not in self.sittings
        self.begin(session, [])

    @rule(pick=picks)
    @precondition(lambda self: self.sittings)
    def switch(self, pick: int) -> None:
        wanted = self.one(pick)
        session = self.store.sessions.switch(wanted.key, wanted.id)
        assert (session.id, session.ended_at) == (wanted.id, None)
        for sitting in self.sittings.values():
            if sitting.key == wanted.key:
                sitting.is_current = sitting is wanted

    @rule(pick=picks)
    @precondition(lambda self: self.sittings)
    def end(self, pick: int) -> None:
        sitting = self.one(pick)
        self.store.sessions.end(sitting.id, "done")
        sitting.is_current = False

    @rule(pick=picks, title=st.sampled_from((None, "One", "Two")))
    @precondition(lambda self: self.sittings)
    def rename(self, pick: int, title: str | None) -> None:
        sitting = self.one(pick)
        others = [one for one in self.sittings.values() if one is not sitting]
        if title and any(one.owner == sitting.owner and one.title == title for one in others):
            with pytest.raises(Duplicate):
                self.store.sessions.rename(sitting.id, title)
            return
        assert self.store.sessions.rename(sitting.id, title).title == title
        sitting.title = title

    @rule(pick=picks, at=st.none() | picks)
    @precondition(lambda self: self.sittings)
    def fork(self, pick: int, at: int | None) -> None:
        parent = self.one(pick)
        entries = list(parent.seen)
        if at is not None and entries:
            place, entry = self.entry(parent, at)
            session = self.store.sessions.fork(parent.id, at=entry.seq)
            entries = entries[: place + 1]
        else:
            session = self.store.sessions.fork(parent.id)
        self.begin(session, entries)

    @rule(pick=picks)
    @precondition(lambda self: len(self.sittings) > 1)
    def delete(self, pick: int) -> None:
        gone = self.one(pick)
        self.store.sessions.delete(gone.id)
        del self.sittings[gone.id]
        # What forks saw of it is theirs now.
        for sitting in self.sittings.values():
            for revision in sitting.revisions:
                revision.entries = [
                    entry._replace(home=sitting.id) if entry.home == gone.id else entry
                    for entry in revision.entries
                ]
        self.touched = None

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()

    # -- transcripts

    @rule(pick=picks, message=messages)
    @precondition(lambda self: self.sittings)
    def append(self, pick: int, message: tuple[str, str]) -> None:
        sitting = self.one(pick)
        role, text = message
        seq = self.transcript(sitting).append({"role": role, "content": text})
        sitting.seen.append(sitting.make(role, text))
        assert seq == sitting.last_seq

    @rule(pick=picks, given=st.lists(messages, max_size=6))
    @precondition(lambda self: self.sittings)
    def extend(self, pick: int, given: list[tuple[str, str]]) -> None:
        sitting = self.one(pick)
        self.transcript(sitting).extend({"role": role, "content": text} for role, text in given)
        sitting.seen.extend([sitting.make(role, text) for role, text in given])

    @rule(pick=picks, turns=st.integers(1, 4))
    @precondition(lambda self: self.sittings)
    def undo(self, pick: int, turns: int) -> None:
        sitting = self.one(pick)
        starts = sitting.turn_starts(turns)
        assert self.transcript(sitting).undo(turns) == len(starts)
        if starts:
            sitting.revise(sitting.seen[: starts[-1]], "undo")

    @rule(pick=picks)
    @precondition(lambda self: self.sittings)
    def redo(self, pick: int) -> None:
        sitting = self.one(pick)
        revision = sitting.revision
        can = revision.made_by == "undo" and revision.at == sitting.last_seq
        assert self.transcript(sitting).redo() == can
        if can:
            assert revision.made_from is not None
            sitting.number = revision.made_from

    @rule(pick=picks, given=st.lists(messages, max_size=3))
    @precondition(lambda self: self.sittings)
    def rewrite(self, pick: int, given: list[tuple[str, str]]) -> None:
        sitting = self.one(pick)
        self.transcript(sitting).rewrite({"role": role, "content": text} for role, text in given)
        sitting.revise([sitting.make(role, text) for role, text in given], "rewrite")

    @rule(pick=picks)
    @precondition(lambda self: self.sittings)
    def clear(self, pick: int) -> None:
        sitting = self.one(pick)
        self.transcript(sitting).clear()
        sitting.revise([], "clear")

    @rule(pick=picks, count=st.integers(-1, 8))
    @precondition(lambda self: self.sittings)
    def keep_recent(self, pick: int, count: int) -> None:
        sitting = self.one(pick)
        self.transcript(sitting).keep_recent(count)
        if count <= 0:
            sitting.revise([], "keep_recent")
        elif count < len(sitting.seen):
            start = len(sitting.seen) - count
            while start > 0 and sitting.seen[start - 1].turn == sitting.seen[start].turn:
                start -= 1
            sitting.revise(sitting.seen[start:], "keep_recent")

    @rule(pick=picks, at=picks, message=messages)
    @precondition(lambda self: self.sittings)
    def edit(self, pick: int, at: int, message: tuple[str, str]) -> None:
        sitting = self.one(pick)
        role, text = message
        if not sitting.seen:
            with pytest.raises(NotFound):
                self.transcript(sitting).edit(at, {"role": role, "content": text})
            return
        place, entry = self.entry(sitting, at)
        self.transcript(sitting).edit(entry.seq, {"role": role, "content": text})
        sitting.last_seq += 1
        another = Entry(sitting.id, sitting.last_seq, entry.turn, role, text)
        sitting.revise([*sitting.seen[:place], another, *sitting.seen[place + 1 :]], "edit")

    @rule(pick=picks, at=picks)
    @precondition(lambda self: self.sittings)
    def remove(self, pick: int, at: int) -> None:
        sitting = self.one(pick)
        if not sitting.seen:
            with pytest.raises(NotFound):
                self.transcript(sitting).remove(at)
            return
        place, entry = self.entry(sitting, at)
        self.transcript(sitting).remove(entry.seq)
        sitting.revise([*sitting.seen[:place], *sitting.seen[place + 1 :]], "remove")

    @rule(pick=picks, number=picks)
    @precondition(lambda self: self.sittings)
    def restore(self, pick: int, number: int) -> None:
        sitting = self.one(pick)
        number = number % len(sitting.revisions) + 1
        self.transcript(sitting).restore(number)
        sitting.revise(list(sitting.revisions[number - 1].entries), "restore")

    # -- comparing

    @rule(word=st.sampled_from(WORDS))
    def search(self, word: str) -> None:
        self.compare_search(word)

    @invariant()
    def the_touched_session_is_the_same(self) -> None:
        if self.touched is not None:
            self.compare(self.sittings[self.touched])
            self.touched = None

    def compare(self, sitting: Sitting) -> None:
        found = [
            (entry.seq, entry.role, entry.body["content"])
            for entry in self.transcript(sitting).entries()
        ]
        assert found == [(entry.seq, entry.role, entry.text) for entry in sitting.seen]
        assert self.transcript(sitting).count() == len(sitting.seen)

    def compare_search(self, word: str) -> None:
        expected = set()
        entries = {entry for one in self.sittings.values() for entry in one.seen}
        for entry in entries:
            if word in entry.text.split():
                homes = [one.id for one in self.sittings.values() if entry in one.seen]
                # Shown with the session it was said in; where that hides it, with a fork.
                shown_in = entry.home if entry.home in homes else homes[-1]
                expected.add((shown_in, entry.seq))
        hits = self.store.search(word, limit=200).items
        assert len(hits) == len({(hit.session_id, hit.seq) for hit in hits})
        assert {(hit.session_id, hit.seq) for hit in hits} == expected

    def compare_everything(self) -> None:
        listed = {one.id: one for one in self.store.sessions.find(limit=1000).items}
        assert set(listed) == set(self.sittings)
        for sitting in self.sittings.values():
            assert (listed[sitting.id].ended_at is None) == sitting.is_current
            assert listed[sitting.id].title == sitting.title
            self.compare(sitting)
            transcript = self.transcript(sitting)
            told = transcript.revisions()
            assert [one.is_current for one in told].index(True) + 1 == sitting.number
            assert len(told) == len(sitting.revisions)
            for revision, one in zip(sitting.revisions, told, strict=True):
                shown = [(entry.role, entry.text) for entry in revision.entries]
                assert one.messages == len(shown)
                found = transcript.at(one.number)
                assert [(message["role"], message["content"]) for message in found] == shown
        self.store.settle()
        for word in WORDS:
            self.compare_search(word)
        assert self.store.check() == []


class Twins:
    """Two of a kind on two databases, which are told the same and must answer the same."""

    def __init__(self, one: Any, other: Any, seeds: random.Random) -> None:
        self._both = (one, other)
        self._seeds = seeds

    def __getattr__(self, name: str) -> Twins:
        one, other = (getattr(thing, name) for thing in self._both)
        return Twins(one, other, self._seeds)

    def __call__(self, *given: Any, **named: Any) -> Any:
        # What is made from chance, such as the id of a session, is the same on both sides too.
        seed = self._seeds.random()
        given = tuple(list(part) if hasattr(part, "__next__") else part for part in given)
        one, other = (_outcome(call, seed, given, named) for call in self._both)
        if isinstance(one, Transcript):
            return Twins(one, other, self._seeds)
        assert _plain(one) == _plain(other)
        if isinstance(one, Exception):
            raise one
        return one


def _outcome(call: Callable[..., Any], seed: float, given: Any, named: Any) -> Any:
    chance = SimpleNamespace(urandom=random.Random(seed).randbytes)
    with mock.patch.object(session_rows, "os", chance):
        try:
            return call(*given, **named)
        except tertulia.Error as problem:
            return problem


def _plain(found: Any) -> Any:
    """What has to be the same: scores have no scale, and errors may name their database.

    SQLite gives the number of a deleted row to the next session; no caller sees that number.
    """
    if isinstance(found, tertulia.Error):
        return found.code
    if isinstance(found, Page) and found.items and hasattr(found.items[0], "score"):
        return {(hit.session_id, hit.seq, hit.role, hit.snippet, hit.at) for hit in found.items}
    if isinstance(found, list) and found and isinstance(found[0], Message):
        return [msgspec.structs.replace(message, session=0) for message in found]
    return found


class TwinMachine(StoreMachine):
    """SQLite, PostgreSQL and the model, side by side."""

    server: ClassVar[Server]

    def __init__(self) -> None:
        self.database = self.server.empty_store()
        self.address = self.database.__enter__()
        self.seeds = random.Random(7)
        super().__init__()

    def opened(self) -> Any:
        # An index that is brought up to date meanwhile would make PostgreSQL try things twice.
        one, other = (
            without_index(self.opened_at(where))
            for where in (str(self.folder / "talk.db"), self.address)
        )
        return Twins(one, other, self.seeds)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.database.__exit__(None, None, None)


def run(machine: type[StoreMachine], runs: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=runs, stateful_step_count=50),
    )


@pytest.mark.examples
def test_the_store_does_what_its_model_does() -> None:
    # A step is some transactions on disk; so there are fewer runs than of other properties.
    run(StoreMachine, settings().max_examples // 4)


@pytest.mark.examples
def test_both_databases_do_what_the_model_does(postgres: Server) -> None:
    # A run makes a database of its own, and a step waits for a server.
    TwinMachine.server = postgres
    run(TwinMachine, max(4, settings().max_examples // 13))
