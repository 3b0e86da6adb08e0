"""Promises of sessions: the current session of a source, and the operations on sessions."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from tertulia.core.source import Source
from tertulia.errors import AccessDenied, ConfigError, Duplicate, NotFound, StaleWrite
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import (
    Handles,
    dm,
    outcomes,
    run_in_threads,
    texts,
    turn,
    user_message,
)


class SessionPromises:
    """One current session per key; an ended session stays ended until it is resumed by its id."""

    def test_the_first_message_begins_a_session(self, handles: Handles, store: Store) -> None:
        source = dm("anna", user_name="Anna", chat_name="Anna's chat")
        session = store.sessions.open(source)
        assert re.fullmatch(r"20260304_120000_[0-9a-f]{8}", session.id)
        assert (session.key, session.agent) == ("agent:main:telegram:dm:anna", "main")
        assert (session.origin, session.display_name) == (source, "Anna's chat")
        assert session.created_at == session.updated_at == handles.clock.now()
        assert (session.ended_at, session.end_reason, session.notice) == (None, None, None)
        assert (session.parent_id, session.title, session.version) == (None, None, 1)
        assert (session.usage.total, session.cost_usd, session.cost_status) == (0, None, "unknown")
        assert dict(session.metadata) == {}
        assert store.sessions.get(session.id) == session

    def test_an_id_tells_the_time_in_utc(self, handles: Handles) -> None:
        handles.clock = FakeClock(datetime(2026, 3, 5, 1, 30, tzinfo=timezone(timedelta(hours=9))))
        store = handles.open()
        with store.turn(dm("anna"), "hello") as entered:
            entered.add_assistant("hi")
        assert entered.session.id.startswith("20260304_163000_")
        assert store.sessions.open(dm("bob")).id.startswith("20260304_163000_")
        handles.clock = FakeClock(datetime(2026, 3, 5, 1, 30))  # noqa: DTZ001
        with pytest.raises(ConfigError, match="has no time zone"):
            handles.open().sessions.open(dm("anna"))

    def test_the_next_message_continues_the_session(
        self, handles: Handles, store: Store, other: Store
    ) -> None:
        first = store.sessions.open(dm("anna"))
        later = handles.clock.forward(minutes=5)
        again = other.sessions.open(dm("anna"))
        assert (again.id, again.created_at, again.updated_at) == (first.id, first.created_at, later)
        assert again.version > first.version
        assert store.sessions.get(first.id) == again

    def test_other_sources_have_other_sessions(self, store: Store) -> None:
        sources = [
            dm("anna"),
            dm("ben"),
            dm("anna", "signal"),
            dm("anna", account="second"),
            dm("anna", thread_id="t"),
            Source("telegram", "anna", chat_type="group", user_id="anna"),
            Source("telegram", "anna", chat_type="group", user_id="ben"),
        ]
        ids = {store.sessions.open(source).id for source in sources}
        assert len(ids) == store.sessions.count() == len(sources)

    def test_ids_of_any_kind_are_kept(self, store: Store, other: Store) -> None:
        strange = ["\x00", "a:b", "\ud800", "\udc00\ud800", "𝔘", "\n", "%", "~", "ß\u0301", "'; --"]
        sources = [
            Source(
                "chat" + text,
                text,
                chat_type="group",
                user_id=text,
                user_name=text,
                chat_name=text,
                thread_id=text,
                account=text,
            )
            for text in strange
        ]
        for source in sources:
            session = store.sessions.open(source)
            assert other.sessions.open(source).id == session.id
            assert store.sessions.require(session.id).origin == source
        assert store.sessions.count() == len(strange)

    def test_two_handles_that_race_get_one_session(self, store: Store, other: Store) -> None:
        for number in range(10):
            source = dm(f"anna{number}")
            opens = (partial(handle.sessions.open, source) for handle in (store, other) * 4)
            assert len({session.id for session in run_in_threads(*opens)}) == 1
        assert store.sessions.count() == 10

    def test_a_new_session_can_be_forced(self, handles: Handles, store: Store) -> None:
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(minutes=1)
        second = store.sessions.open(dm("anna"), force_new=True)
        assert second.id != first.id
        assert (second.parent_id, second.parent_kind, second.notice) == (first.id, "reset", None)
        ended = store.sessions.require(first.id)
        assert (ended.end_reason, ended.ended_at) == ("new", handles.clock.now())
        assert ended.updated_at == first.updated_at
        assert store.sessions.open(dm("anna")).id == second.id

    def test_current_does_not_open_a_session(self, handles: Handles, store: Store) -> None:
        key = store.sessions.key(dm("anna"))
        assert store.sessions.current(key) is None
        session = store.sessions.open(dm("anna"))
        handles.clock.forward(days=9)
        assert store.sessions.current(key) == session
        store.sessions.end(session.id, "done")
        assert store.sessions.current(key) is None

    def test_require_raises_if_get_returns_none(self, store: Store) -> None:
        assert store.sessions.get("20260101_000000_00000000") is None
        with pytest.raises(NotFound) as caught:
            store.sessions.require("20260101_000000_00000000")
        assert caught.value.session_id == "20260101_000000_00000000"

    # -- reset

    def test_reset_ends_and_begins(self, handles: Handles, store: Store, other: Store) -> None:
        first = store.sessions.open(dm("anna"))
        second = other.sessions.reset(first.key)
        assert second is not None
        assert (second.key, second.origin, second.parent_id) == (first.key, first.origin, first.id)
        assert store.sessions.require(first.id).end_reason == "new"
        handles.clock.forward(minutes=1)
        assert store.sessions.open(dm("anna")).id == second.id

    def test_reset_of_an_unknown_key_is_nothing(self, store: Store) -> None:
        assert store.sessions.reset("agent:main:telegram:dm:nobody") is None
        assert not store.sessions.has_any()

    def test_reset_after_an_end_begins_too(self, store: Store) -> None:
        first = store.sessions.open(dm("anna"))
        store.sessions.end(first.id, "done")
        second = store.sessions.reset(first.key)
        assert second is not None
        assert (second.origin, second.parent_id) == (first.origin, first.id)
        assert store.sessions.require(first.id).end_reason == "done"

    # -- switch

    def test_switch_goes_back_to_an_earlier_session(self, handles: Handles, store: Store) -> None:
        first = store.sessions.open(dm("anna"))
        store.transcript(first.id).extend(turn("one"))
        second = store.sessions.open(dm("anna"), force_new=True)
        later = handles.clock.forward(days=30)
        resumed = store.sessions.switch(first.key, first.id)
        assert (resumed.id, resumed.ended_at, resumed.end_reason) == (first.id, None, None)
        assert resumed.updated_at == later
        assert store.sessions.require(second.id).end_reason == "switch"
        assert store.sessions.open(dm("anna")).id == first.id
        store.transcript(first.id).append(user_message("two"))
        assert texts(store.transcript(first.id)) == ["one", "re one", "two"]

    def test_switch_to_the_same_session_changes_nothing(
        self, handles: Handles, store: Store
    ) -> None:
        session = store.sessions.open(dm("anna"))
        handles.clock.forward(minutes=1)
        assert store.sessions.switch(session.key, session.id) == session
        assert store.sessions.get(session.id) == session

    def test_switch_to_the_session_of_another_is_refused(self, store: Store) -> None:
        anna = store.sessions.open(dm("anna"))
        ben = store.sessions.open(dm("ben"))
        store.sessions.end(ben.id, "done")
        before = store.sessions.find().items
        with pytest.raises(AccessDenied):
            store.sessions.switch(anna.key, ben.id)
        with pytest.raises(NotFound):
            store.sessions.switch(anna.key, "20260101_000000_00000000")
        assert store.sessions.find().items == before

    def test_switch_races_with_open(self, store: Store, other: Store) -> None:
        first = store.sessions.open(dm("anna"))
        for _ in range(10):
            store.sessions.open(dm("anna"), force_new=True)
            run_in_threads(
                partial(store.sessions.switch, first.key, first.id),
                partial(other.sessions.open, dm("anna")),
            )
            assert store.sessions.open(dm("anna")).id == first.id

    # -- end

    def test_an_ended_session_stays_ended(
        self, handles: Handles, store: Store, other: Store
    ) -> None:
        session = store.sessions.open(dm("anna"))
        ended = store.sessions.end(session.id, "done")
        assert (ended.end_reason, ended.ended_at) == ("done", handles.clock.now())
        explanation = store.sessions.explain(session.id)
        handles.clock.forward(minutes=1)
        assert other.sessions.end(session.id, "again") == ended
        assert store.sessions.explain(session.id) == explanation
        store.transcript(session.id).append(user_message("one more thing"))
        new = other.sessions.open(dm("anna"))
        assert (new.id != session.id, new.parent_id, new.notice) == (True, session.id, None)
        assert store.sessions.require(session.id).ended_at == ended.ended_at

    def test_an_end_has_a_reason_and_a_session(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        with pytest.raises(ConfigError):
            store.sessions.end(session.id, "")
        with pytest.raises(NotFound):
            store.sessions.end("20260101_000000_00000000", "done")
        assert store.sessions.require(session.id).ended_at is None
        assert store.sessions.end(session.id, "a\x00b\ud800").end_reason == "a\ufffdb?"

    # -- titles

    def test_a_title_is_given_and_taken_away(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        assert store.sessions.rename(session.id, "  A trip\nto \x00 Cádiz ").title == (
            "A trip to Cádiz"
        )
        assert other.sessions.require(session.id).title == "A trip to Cádiz"
        assert store.sessions.rename(session.id, "A trip to Cádiz").title == "A trip to Cádiz"
        assert store.sessions.rename(session.id, None).title is None
        assert store.sessions.rename(session.id, " \n ").title is None

    def test_a_title_has_up_to_a_hundred_characters(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        assert store.sessions.rename(session.id, "é" * 100).title == "é" * 100
        with pytest.raises(ConfigError) as caught:
            store.sessions.rename(session.id, "x" * 101)
        assert caught.value.field == "title"
        assert store.sessions.require(session.id).title == "é" * 100
        with pytest.raises(NotFound):
            store.sessions.rename("20260101_000000_00000000", "x")

    def test_a_title_is_unique_among_its_owners_sessions(self, store: Store) -> None:
        first = store.sessions.open(dm("anna"))
        store.sessions.rename(first.id, "Trip")
        second = store.sessions.open(dm("anna"), force_new=True)
        with pytest.raises(Duplicate) as caught:
            store.sessions.rename(second.id, "Trip")
        assert caught.value.hint
        assert store.sessions.require(second.id).title is None
        store.sessions.rename(first.id, None)
        assert store.sessions.rename(second.id, "Trip").title == "Trip"

    def test_a_title_conflict_reveals_no_other_session(self, store: Store) -> None:
        anna, ben = store.sessions.open(dm("anna")), store.sessions.open(dm("ben"))
        group = store.sessions.open(Source("telegram", "g", chat_type="group"))
        for session in (anna, ben, group):
            assert store.sessions.rename(session.id, "Trip").title == "Trip"
        again = store.sessions.open(dm("anna"), force_new=True)
        with pytest.raises(Duplicate) as caught:
            store.sessions.rename(again.id, "Trip")
        error_text = f"{caught.value} {caught.value.data}"
        for session in (ben, group):
            assert session.id not in error_text
            assert session.key not in error_text

    def test_a_title_is_suggested_from_the_first_words(self, store: Store, other: Store) -> None:
        first = store.sessions.open(dm("anna"))
        assert store.sessions.suggest_title(first.id) is None
        transcript = store.transcript(first.id)
        transcript.extend([{"role": "assistant", "content": "Good morning."},
                     {"role": "user", "content": " Where is\nthe \x00 key? "}])  # fmt: skip
        assert other.sessions.suggest_title(first.id) == "Where is the key?"
        assert store.sessions.require(first.id).title is None
        store.sessions.rename(first.id, "Where is the key?")
        assert store.sessions.suggest_title(first.id) == "Where is the key?"
        second = store.sessions.fork(first.id)
        assert other.sessions.suggest_title(second.id) == "Where is the key? (2)"
        long = store.sessions.open(dm("anna"), force_new=True)
        store.transcript(long.id).append({"role": "user", "content": "word " * 100_000})
        assert len(store.sessions.suggest_title(long.id) or "") <= 61
        with pytest.raises(NotFound):
            store.sessions.suggest_title("20260101_000000_00000000")

    def test_of_two_that_race_for_a_title_one_gets_it(self, store: Store, other: Store) -> None:
        sessions = [store.sessions.open(dm("anna"), force_new=True) for _ in range(6)]
        renames = [
            partial((store, other)[index % 2].sessions.rename, session.id, "Trip")
            for index, session in enumerate(sessions)
        ]
        won, refused = outcomes(*renames, refusals=Duplicate)
        assert (len(won), len(refused)) == (1, 5)
        titles = [store.sessions.require(session.id).title for session in sessions]
        assert sorted(filter(None, titles)) == ["Trip"]

    # -- metadata

    def test_metadata_is_replaced(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        values = {"a": [1, 2.5, None, {"b": "ü\x00\ud83d"}], "": "", "big": 2**60}
        assert dict(store.sessions.set_metadata(session.id, values).metadata) == values
        assert dict(other.sessions.require(session.id).metadata) == values
        assert dict(store.sessions.set_metadata(session.id, {}).metadata) == {}
        with pytest.raises(NotFound):
            store.sessions.set_metadata("20260101_000000_00000000", {})

    def test_metadata_can_be_guarded_by_the_version(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        changed = store.sessions.set_metadata(session.id, {"n": 1}, version=session.version)
        assert changed.version > session.version
        with pytest.raises(StaleWrite) as caught:
            other.sessions.set_metadata(session.id, {"n": 2}, version=session.version)
        assert (caught.value.version, caught.value.retryable) == (changed.version, True)
        assert dict(store.sessions.require(session.id).metadata) == {"n": 1}

    def test_of_two_that_race_for_a_version_one_gets_it(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        for _ in range(5):
            version = store.sessions.require(session.id).version
            writes = [
                partial(
                    (store, other)[index % 2].sessions.set_metadata,
                    session.id,
                    {"by": index},
                    version=version,
                )
                for index in range(6)
            ]
            won, refused = outcomes(*writes, refusals=StaleWrite)
            assert (len(won), len(refused)) == (1, 5)
            assert store.sessions.require(session.id).metadata == won[0].metadata

    # -- why

    def test_a_session_explains_itself(self, handles: Handles, store: Store) -> None:
        first = store.sessions.open(dm("anna"))
        second = store.sessions.open(dm("anna"), force_new=True)
        store.sessions.rename(second.id, "Trip")
        store.transcript(second.id).extend(turn("one"))
        store.transcript(second.id).undo()
        store.sessions.switch(first.key, first.id)
        handles.clock.forward(days=3)
        explanation = store.sessions.explain(second.id)
        assert re.search(rf"began.*after {first.id}.*reason new", explanation)
        assert "title Trip" in explanation
        assert "undo" in explanation
        assert re.search(r"ended.*reason switch", explanation)
        explanation = store.sessions.explain(first.id)
        assert re.search(r"resumed.*was new", explanation)
        assert explanation.splitlines()[-1].startswith("Policy: ")
        assert "it is over (idle)" in explanation
        with pytest.raises(NotFound):
            store.sessions.explain("20260101_000000_00000000")
