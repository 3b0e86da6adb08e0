"""Hermes Agent's session store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tertulia.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from tertulia.compat.hermes.session import (
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_key,
)
from tertulia.core.source import Source
from tertulia.errors import AccessDenied, ConfigError, IllegalMove, NotFound
from tertulia.testing.fake_clock import FakeClock

ANN = SessionSource(Platform.TELEGRAM, "42", user_id="42", user_name="Ann")
BEN = SessionSource(Platform.TELEGRAM, "43", user_id="43", user_name="Ben")
GROUP = SessionSource(Platform.DISCORD, "9", "Ops", "group", "1", "Ann")
OpenStore = Callable[..., SessionStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    made: list[SessionStore] = []

    def make_store(config: GatewayConfig | None = None, **more: Any) -> SessionStore:
        made.append(SessionStore(tmp_path / "sessions", config or GatewayConfig(), **more))
        return made[-1]

    yield make_store
    for store in made:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> SessionStore:
    return open_store()


def idle(minutes: int = 60) -> GatewayConfig:
    return GatewayConfig(default_reset_policy=SessionResetPolicy("idle", idle_minutes=minutes))


def message_of(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


class TestGetOrCreate:
    def test_entry_matches_the_store(self, store: SessionStore) -> None:
        entry = store.get_or_create_session(GROUP)
        assert entry.session_key == build_session_key(GROUP)
        assert (entry.origin, entry.platform, entry.chat_type) == (GROUP, Platform.DISCORD, "group")
        assert entry.display_name == "Ops"
        assert (entry.was_auto_reset, entry.auto_reset_reason) == (False, None)
        stored = store.store.sessions.require(entry.session_id)
        assert stored.key == entry.session_key

    def test_display_name_is_not_the_user_name(self, store: SessionStore) -> None:
        assert store.get_or_create_session(ANN).display_name is None

    def test_session_survives_a_restart(self, open_store: OpenStore) -> None:
        first = open_store().get_or_create_session(ANN)
        assert open_store().get_or_create_session(ANN).session_id == first.session_id

    def test_force_new_starts_another_session(self, store: SessionStore) -> None:
        first = store.get_or_create_session(ANN)
        second = store.get_or_create_session(ANN, force_new=True)
        assert second.session_id != first.session_id
        assert store.get_or_create_session(ANN).session_id == second.session_id
        assert not second.was_auto_reset

    def test_times_are_naive_and_local(self, store: SessionStore) -> None:
        before = datetime.now()
        entry = store.get_or_create_session(ANN)
        assert entry.created_at.tzinfo is None
        assert before <= entry.updated_at <= datetime.now()

    def test_group_sessions_per_user_or_shared(self, open_store: OpenStore) -> None:
        other = SessionSource(Platform.DISCORD, "9", "Ops", "group", "2", "Ben")
        apart = open_store()
        keys = {apart.get_or_create_session(one).session_key for one in (GROUP, other)}
        assert len(keys) == 2
        shared = open_store(GatewayConfig(group_sessions_per_user=False))
        ids = {shared.get_or_create_session(one).session_id for one in (GROUP, other)}
        assert len(ids) == 1

    def test_changed_configuration_applies_at_once(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        first = store.get_or_create_session(ANN)
        store.config.default_reset_policy.mode = "none"
        clock.forward(days=30)
        assert store.get_or_create_session(ANN).session_id == first.session_id
        store.config.reset_by_platform[Platform.TELEGRAM] = SessionResetPolicy("idle")
        clock.forward(days=30)
        assert store.get_or_create_session(ANN).auto_reset_reason == "idle"

    def test_invalid_policy_is_refused(self, open_store: OpenStore) -> None:
        with pytest.raises(ConfigError, match="at_hour"):
            open_store(GatewayConfig(default_reset_policy=SessionResetPolicy(at_hour=24)))

    def test_concurrent_threads_get_one_session(self, store: SessionStore) -> None:
        found: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(store.get_or_create_session(ANN).session_id)
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len(set(found)) == 1


class TestAutomaticReset:
    def test_auto_reset_is_reported_once(self, open_store: OpenStore, clock: FakeClock) -> None:
        store = open_store(idle(60))
        first = store.get_or_create_session(ANN)
        store.append_to_transcript(first.session_id, message_of("hello"))
        clock.forward(minutes=61)
        second = open_store(idle(60)).get_or_create_session(
            ANN
        )  # also by another one than the first
        assert second.session_id != first.session_id
        assert (second.was_auto_reset, second.auto_reset_reason) == (True, "idle")
        assert second.reset_had_activity
        again = store.get_or_create_session(ANN)
        assert again.session_id == second.session_id
        assert (again.was_auto_reset, again.auto_reset_reason) == (False, None)
        assert not again.reset_had_activity

    def test_unused_session_had_no_activity(self, open_store: OpenStore, clock: FakeClock) -> None:
        store = open_store(idle(60))
        store.get_or_create_session(ANN)
        clock.forward(minutes=61)
        assert not store.get_or_create_session(ANN).reset_had_activity

    def test_usage_counts_as_activity(self, open_store: OpenStore, clock: FakeClock) -> None:
        store = open_store(idle(60))
        store.update_session(store.get_or_create_session(ANN).session_key, input_tokens=1)
        clock.forward(minutes=61)
        assert store.get_or_create_session(ANN).reset_had_activity

    def test_idle_time_starts_at_the_last_call(
        self, open_store: OpenStore, clock: FakeClock
    ) -> None:
        store = open_store(idle(60))
        first = store.get_or_create_session(ANN)
        for _ in range(5):
            clock.forward(minutes=59)
            assert store.get_or_create_session(ANN).session_id == first.session_id

    def test_zero_idle_minutes_end_at_once(self, open_store: OpenStore, clock: FakeClock) -> None:
        store = open_store(idle(0))
        store.get_or_create_session(ANN)
        clock.forward(seconds=1)
        assert store.get_or_create_session(ANN).was_auto_reset

    def test_daily_policy_ends_sessions(self, open_store: OpenStore, clock: FakeClock) -> None:
        daily = SessionResetPolicy("daily", at_hour=4)
        store = open_store(GatewayConfig(default_reset_policy=daily))
        store.get_or_create_session(ANN)
        clock.forward(days=1)
        assert store.get_or_create_session(ANN).auto_reset_reason == "daily"

    def test_policy_none_never_ends_a_session(
        self, open_store: OpenStore, clock: FakeClock
    ) -> None:
        store = open_store(GatewayConfig(default_reset_policy=SessionResetPolicy("none")))
        first = store.get_or_create_session(ANN)
        clock.forward(days=1000)
        found = store.get_or_create_session(ANN)
        assert (found.session_id, found.was_auto_reset) == (first.session_id, False)

    def test_running_process_protects_its_session(
        self, open_store: OpenStore, clock: FakeClock
    ) -> None:
        asked: list[str] = []
        is_running = True

        def guard(key: str) -> bool:
            asked.append(key)
            return is_running

        store = open_store(idle(60), has_active_processes_fn=guard)
        first = store.get_or_create_session(ANN)
        clock.forward(minutes=61)
        assert store.get_or_create_session(ANN).session_id == first.session_id
        assert set(asked) == {first.session_key}
        is_running = False
        clock.forward(minutes=61)
        assert store.get_or_create_session(ANN).was_auto_reset

    def test_failing_guard_is_logged_and_keeps_the_session(
        self, open_store: OpenStore, clock: FakeClock
    ) -> None:
        def guard(key: str) -> bool:
            raise RuntimeError("no registry")

        store = open_store(idle(60), has_active_processes_fn=guard)
        first = store.get_or_create_session(ANN)
        clock.forward(minutes=61)
        with pytest.raises(RuntimeError, match="no registry"):
            store.get_or_create_session(ANN)
        assert [one.session_id for one in store.list_sessions()] == [first.session_id]

    def test_listener_gets_the_ended_session(self, open_store: OpenStore, clock: FakeClock) -> None:
        told: list[SessionEntry] = []
        store = open_store(idle(60), on_auto_reset=told.append)
        first = store.get_or_create_session(ANN)
        store.append_to_transcript(first.session_id, message_of("keep this"))
        assert told == []
        clock.forward(minutes=61)
        store.get_or_create_session(ANN)
        store.get_or_create_session(ANN)
        assert [one.session_id for one in told] == [first.session_id]
        assert store.load_transcript(told[0].session_id) == [message_of("keep this")]

    def test_failing_listener_loses_no_notice(
        self, open_store: OpenStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        def listener(entry: SessionEntry) -> None:
            raise RuntimeError("flush failed")

        store = open_store(idle(60), on_auto_reset=listener)
        store.get_or_create_session(ANN)
        clock.forward(minutes=61)
        assert store.get_or_create_session(ANN).was_auto_reset
        assert "flush failed" in caplog.text

    def test_manual_reset_calls_no_listener(self, open_store: OpenStore) -> None:
        told: list[SessionEntry] = []
        store = open_store(idle(60), on_auto_reset=told.append)
        store.reset_session(store.get_or_create_session(ANN).session_key)
        store.get_or_create_session(ANN, force_new=True)
        assert told == []


class TestResetAndSwitch:
    def test_reset_starts_an_empty_session(self, open_store: OpenStore) -> None:
        store = open_store()
        first = store.get_or_create_session(ANN)
        second = store.reset_session(first.session_key)
        assert second is not None
        assert second.session_id != first.session_id
        assert (second.origin, second.was_auto_reset) == (ANN, False)
        assert open_store().get_or_create_session(ANN).session_id == second.session_id

    def test_unknown_key_is_ignored(self, store: SessionStore) -> None:
        assert store.reset_session("agent:main:telegram:dm:404") is None
        assert store.switch_session("agent:main:telegram:dm:404", "x") is None

    def test_switch_continues_an_earlier_transcript(self, open_store: OpenStore) -> None:
        store = open_store()
        first = store.get_or_create_session(ANN)
        store.append_to_transcript(first.session_id, message_of("one"))
        store.reset_session(first.session_key)
        found = store.switch_session(first.session_key, first.session_id)
        assert found is not None
        assert found.session_id == first.session_id
        restarted = open_store()
        assert restarted.get_or_create_session(ANN).session_id == first.session_id
        assert restarted.load_transcript(first.session_id) == [message_of("one")]

    def test_switch_to_the_current_session_changes_nothing(self, store: SessionStore) -> None:
        first = store.get_or_create_session(ANN)
        before = store.store.sessions.explain(first.session_id)
        found = store.switch_session(first.session_key, first.session_id)
        assert found == first
        assert store.store.sessions.explain(first.session_id) == before

    def test_switch_to_another_conversation_is_refused(self, store: SessionStore) -> None:
        mine, other = store.get_or_create_session(ANN), store.get_or_create_session(BEN)
        with pytest.raises(AccessDenied):
            store.switch_session(mine.session_key, other.session_id)
        assert store.get_or_create_session(ANN).session_id == mine.session_id

    def test_switch_to_an_unknown_session_is_refused(self, store: SessionStore) -> None:
        mine = store.get_or_create_session(ANN)
        with pytest.raises(NotFound):
            store.switch_session(mine.session_key, "20260101_000000_00000000")
        assert store.get_or_create_session(ANN).session_id == mine.session_id


class TestList:
    def test_lists_current_sessions_newest_first(
        self, store: SessionStore, clock: FakeClock
    ) -> None:
        ann = store.get_or_create_session(ANN)
        clock.forward(minutes=1)
        ben = store.get_or_create_session(BEN)
        assert _ids(store.list_sessions()) == [ben.session_id, ann.session_id]
        clock.forward(minutes=1)
        store.get_or_create_session(ANN)
        assert _ids(store.list_sessions()) == [ann.session_id, ben.session_id]
        store.reset_session(ben.session_key)
        assert ben.session_id not in _ids(store.list_sessions())

    def test_active_minutes_filters(self, store: SessionStore, clock: FakeClock) -> None:
        store.get_or_create_session(ANN)
        clock.forward(minutes=10)
        ben = store.get_or_create_session(BEN)
        assert _ids(store.list_sessions(active_minutes=5)) == [ben.session_id]
        assert len(store.list_sessions(active_minutes=10)) == 2

    def test_session_of_an_unknown_platform_is_listed(self, store: SessionStore) -> None:
        store.store.sessions.open(Source("myspace", "1"))
        (entry,) = store.list_sessions()
        assert (entry.platform, entry.origin) == (None, None)
        assert entry.session_key == "agent:main:myspace:dm:1"

    def test_lists_more_than_one_page(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tertulia.compat.hermes.session._PAGE_SIZE", 2)
        for number in range(5):
            store.get_or_create_session(SessionSource(Platform.SMS, str(number)))
        assert len(set(_ids(store.list_sessions()))) == 5

    def test_has_any_sessions_ignores_the_new_one(self, store: SessionStore) -> None:
        assert not store.has_any_sessions()
        first = store.get_or_create_session(ANN)
        assert not store.has_any_sessions()
        store.reset_session(first.session_key)
        assert store.has_any_sessions(), "ended ones count"


class TestUpdate:
    def test_counts_add_up(self, open_store: OpenStore) -> None:
        store = open_store()
        key = store.get_or_create_session(ANN).session_key
        for _ in range(2):
            store.update_session(key, 10, 5, 3, 2)
        entry = open_store().get_or_create_session(ANN)
        assert (entry.input_tokens, entry.output_tokens) == (20, 10)
        assert (entry.cache_read_tokens, entry.cache_write_tokens) == (6, 4)
        assert entry.total_tokens == 40

    def test_last_prompt_none_keeps_and_zero_resets(self, store: SessionStore) -> None:
        key = store.get_or_create_session(ANN).session_key
        seen = []
        for tokens in (812, None, 0):
            store.update_session(key, input_tokens=1, last_prompt_tokens=tokens)
            seen.append(store.list_sessions()[0].last_prompt_tokens)
        assert seen == [812, 812, 0]

    def test_last_prompt_alone_is_no_model_call(self, store: SessionStore) -> None:
        key = store.get_or_create_session(ANN).session_key
        store.update_session(key, 10, estimated_cost_usd=0.25, cost_status="actual")
        store.update_session(key, last_prompt_tokens=100)
        store.update_session(key, last_prompt_tokens=0)
        store.update_session(key)
        entry = store.list_sessions()[0]
        assert (entry.last_prompt_tokens, entry.cost_status) == (0, "actual")
        assert entry.estimated_cost_usd == 0.25

    def test_cost_sum_has_the_least_certain_status(self, store: SessionStore) -> None:
        key = store.get_or_create_session(ANN).session_key
        store.update_session(key, 10, estimated_cost_usd=0.1, cost_status="actual")
        assert store.list_sessions()[0].cost_status == "actual"
        store.update_session(key, 10, estimated_cost_usd=0.2)
        entry = store.list_sessions()[0]
        assert (entry.estimated_cost_usd, entry.cost_status) == (0.3, "estimated")
        store.update_session(key, 10)
        assert store.list_sessions()[0].cost_status == "unknown"

    def test_ledger_has_model_and_provider(self, store: SessionStore) -> None:
        entry = store.get_or_create_session(ANN)
        store.update_session(
            entry.session_key, 10, model="m-1", provider="p", base_url="http://localhost/v1",
            estimated_cost_usd=0.1, cost_status="estimated", cost_source="list",
        )  # fmt: skip
        stored = store.store.sessions.require(entry.session_id)
        assert (stored.model, stored.provider, stored.cost_source) == ("m-1", "p", "list")
        assert store.store.usage.sum("model")["m-1"].input == 10

    def test_usage_update_is_no_activity(self, store: SessionStore, clock: FakeClock) -> None:
        entry = store.get_or_create_session(ANN)
        clock.forward(minutes=5)
        store.update_session(entry.session_key, 10, 5, last_prompt_tokens=4)
        assert store.list_sessions()[0].updated_at == entry.updated_at

    def test_unknown_key_is_ignored(self, store: SessionStore) -> None:
        store.update_session("nobody", 10)
        assert store.store.usage.sum() == {}

    @pytest.mark.parametrize(
        "wrong",
        [{"input_tokens": -1}, {"cost_status": "guessed"}, {"last_prompt_tokens": -1}],
    )
    def test_invalid_usage_is_refused(self, store: SessionStore, wrong: dict[str, Any]) -> None:
        key = store.get_or_create_session(ANN).session_key
        with pytest.raises(ConfigError):
            store.update_session(key, **wrong)
        assert store.list_sessions()[0].total_tokens == 0


class TestTranscript:
    ODD: dict[str, Any] = {  # noqa: RUF012
        "role": "assistant", "content": None, "timestamp": "2026-03-04T12:00:00",
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f"}}],
        "\u00fc": {"any": [1, 2.5, None]},
    }  # fmt: skip

    def test_messages_are_loaded_as_stored(self, open_store: OpenStore) -> None:
        store = open_store()
        session_id = store.get_or_create_session(ANN).session_id
        messages = [
            {"role": "session_meta", "tools": []},
            message_of("hi"),
            self.ODD,
            message_of("\ud83d x"),
        ]
        for message in messages:
            store.append_to_transcript(session_id, message)
        assert open_store().load_transcript(session_id) == messages

    def test_skip_db_has_no_effect(self, store: SessionStore) -> None:
        session_id = store.get_or_create_session(ANN).session_id
        store.append_to_transcript(session_id, message_of("a"), skip_db=True)
        assert store.load_transcript(session_id) == [message_of("a")]

    def test_append_to_an_ended_session_keeps_it_ended(self, store: SessionStore) -> None:
        first = store.get_or_create_session(ANN)
        store.reset_session(first.session_key)
        store.append_to_transcript(first.session_id, message_of("late"))
        assert store.load_transcript(first.session_id) == [message_of("late")]
        assert first.session_id not in _ids(store.list_sessions())

    def test_unknown_id_has_no_messages(self, store: SessionStore) -> None:
        assert store.load_transcript("never") == []

    def test_messages_for_an_unknown_id_are_kept(self, open_store: OpenStore) -> None:
        store = open_store()
        store.append_to_transcript("my-own-id", message_of("a"))
        store.append_to_transcript("my-own-id", message_of("b", "assistant"))
        store.rewrite_transcript("another", [message_of("c")])
        assert open_store().load_transcript("my-own-id") == [
            message_of("a"),
            message_of("b", "assistant"),
        ]
        assert open_store().load_transcript("another") == [message_of("c")]
        assert store.list_sessions() == []
        assert "adopted" in store.store.sessions.explain("my-own-id")

    @pytest.mark.parametrize("session_id", ["", "\ud800", "a\x00b"])
    def test_invalid_id_is_refused(self, store: SessionStore, session_id: str) -> None:
        with pytest.raises((NotFound, ConfigError)):
            store.append_to_transcript(session_id, message_of("a"))
        assert store.store.sessions.count() == 0

    def test_invalid_message_is_refused(self, store: SessionStore) -> None:
        session_id = store.get_or_create_session(ANN).session_id
        with pytest.raises(IllegalMove, match="role"):
            store.append_to_transcript(session_id, {"content": "x"})
        with pytest.raises(IllegalMove, match="role"):
            store.rewrite_transcript(session_id, [message_of("a"), {}])
        assert store.load_transcript(session_id) == []

    def test_rewrite_replaces_and_can_be_undone(self, open_store: OpenStore) -> None:
        store = open_store()
        session_id = store.get_or_create_session(ANN).session_id
        for number in range(4):
            store.append_to_transcript(session_id, message_of(str(number)))
        assert store.rewrite_transcript(
            session_id, [message_of("summary", "assistant"), message_of("3")]
        )
        store.append_to_transcript(session_id, message_of("4"))
        expected = [message_of("summary", "assistant"), message_of("3"), message_of("4")]
        assert open_store().load_transcript(session_id) == expected
        assert store.store.transcript(session_id).at(1) == [message_of(str(n)) for n in range(4)]

    def test_rewrite_to_an_empty_list(self, store: SessionStore) -> None:
        session_id = store.get_or_create_session(ANN).session_id
        store.append_to_transcript(session_id, message_of("a"))
        assert store.rewrite_transcript(session_id, [])
        assert store.load_transcript(session_id) == []

    def test_rewrite_stores_only_new_messages(self, store: SessionStore) -> None:
        session_id = store.get_or_create_session(ANN).session_id
        for number in range(10):
            store.append_to_transcript(session_id, message_of(str(number)))
        transcript = store.store.transcript(session_id)
        store.rewrite_transcript(session_id, [message_of(str(n)) for n in range(8)])
        store.rewrite_transcript(
            session_id, [message_of("new"), *(message_of(str(n)) for n in range(5, 8))]
        )
        store.append_to_transcript(session_id, message_of("after"))
        assert [one.seq for one in transcript.entries()] == [11, 6, 7, 8, 12]

    def test_transcript_path_has_json_lines(self, store: SessionStore, tmp_path: Path) -> None:
        session_id = store.get_or_create_session(ANN).session_id
        for message in (message_of("hi\u2028there"), self.ODD):
            store.append_to_transcript(session_id, message)
        path = store.get_transcript_path(session_id)
        assert path.name == f"{session_id}.jsonl"
        assert path.is_relative_to(tmp_path / "sessions")
        lines = path.read_text("utf-8").split("\n")
        assert [json.loads(line) for line in lines[:-1]] == store.load_transcript(session_id)
        store.append_to_transcript(session_id, message_of("more"))
        assert store.get_transcript_path(session_id).read_text("utf-8").count("\n") == 3

    def test_path_of_an_unknown_session_is_not_written(self, store: SessionStore) -> None:
        assert not store.get_transcript_path("never").exists()

    @pytest.mark.parametrize("session_id", ["../../evil", "a/b", "CON", "x" * 300, "Ab", ".."])
    def test_ids_cannot_leave_the_folder(
        self, store: SessionStore, tmp_path: Path, session_id: str
    ) -> None:
        store.append_to_transcript(session_id, message_of("a"))
        path = store.get_transcript_path(session_id)
        assert path.exists()
        assert path.resolve().parent == (tmp_path / "sessions" / "session-exports").resolve()
        assert sorted(one.name for one in tmp_path.iterdir()) == ["sessions"]


def _ids(entries: list[SessionEntry]) -> list[str]:
    return [entry.session_id for entry in entries]
