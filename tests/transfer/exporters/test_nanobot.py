"""Sessions as files that nanobot reads."""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source, Store
from tertulia.transfer.exporters.export import export_to
from tests.transfer.exporters.exported_lines import lines
from tests.transfer.filled_stores import ANA, BEN, GROUP, THREAD, opened, talk


class TestNanobot:
    """What nanobot expects of a file, as its own files have it."""

    def test_first_line_describes_the_session(self, store: Store) -> None:
        session = store.sessions.rename(talk(store, ANA, "hello"), "Greetings")
        head = lines(store, session.id, "nanobot")[0]
        assert head == {
            "_type": "metadata",
            "key": "telegram:12025550101",
            "created_at": "2026-03-01T12:00:00",
            "updated_at": "2026-03-01T12:00:00",
            "metadata": {"title": "Greetings"},
            "last_archived": 0,
            "last_consolidated": 0,
        }

    def test_times_are_local_without_a_zone(self, tmp_path: Path) -> None:
        with opened(tmp_path / "far.db", zone="Asia/Tokyo") as store:
            head, *messages = lines(store, talk(store, ANA, "hello"), "nanobot")
        assert head["created_at"] == "2026-03-01T21:00:00"
        assert [message["role"] for message in messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert all(datetime.fromisoformat(one["timestamp"]).tzinfo is None for one in messages)
        assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
        assert messages[1]["reasoning_content"] == "Let me look."

    def test_time_from_nanobot_is_kept(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        log = store.transcript(session)
        log.append({"role": "user", "content": "a", "timestamp": "2025-01-01T10:00:00.5"})
        log.append({"role": "user", "content": "b", "timestamp": 17})
        times = [one["timestamp"] for one in lines(store, session, "nanobot")[1:]]
        assert times == ["2025-01-01T10:00:00.5", "2026-03-01T12:00:00"]

    def test_message_never_looks_like_a_metadata_record(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        store.transcript(session).append({"role": "user", "content": "x", "_type": "metadata"})
        assert [one.get("_type") for one in lines(store, session, "nanobot")] == ["metadata", None]

    def test_lone_surrogates_are_replaced_for_nanobot(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        store.transcript(session).append({"role": "user", "content": "half \ud83d"})
        assert lines(store, session, "nanobot")[1]["content"] == "half \ufffd"

    def test_compacted_messages_are_marked_consolidated(self, store: Store) -> None:
        for number in range(4):
            session = talk(store, ANA, f"word {number}")
        store.transcript(session).compact(lambda messages, before: "They greeted.", keep_turns=1)
        talk(store, ANA, "and on")
        head, *messages = lines(store, session, "nanobot")
        assert head["last_archived"] == head["last_consolidated"] == 12
        assert head["metadata"]["_last_summary"]["text"] == "They greeted."
        assert messages[12]["content"] == "word 3"
        assert len(messages) == 20

    def test_commands_and_deliveries_are_marked(self, store: Store) -> None:
        from tertulia.core.message import Message
        from tertulia.transfer.exporters.nanobot import nanobot_lines

        session = store.sessions.open(ANA)
        rows = [
            Message(1, n, 1, "user", kind, 0, None, {"role": "user", "content": "x"})
            for n, kind in enumerate(("command", "delivery", "internal", None))
        ]
        found = nanobot_lines(session, iter(rows), None, zone=store.context.zone)
        marks = [{m for m in json.loads(line) if m[0] == "_"} for line in list(found)[1:]]
        assert marks == [{"_command"}, {"_channel_delivery"}, {"_hidden_history"}, set()]

    @pytest.mark.parametrize(
        ("source", "key"),
        [
            (ANA, "telegram:12025550101"),
            (Source.local(), "cli:direct"),
            (GROUP, "telegram:-100"),
            (THREAD, "slack:C1:17.5"),
            (Source("telegram", "-1", chat_type="group", thread_id="7"), "telegram:-1:topic:7"),
            (Source("discord", "9", chat_type="thread", thread_id="8"), "discord:9:thread:8"),
            (BEN, "discord:77:account:bot2"),
        ],
        ids=str,
    )
    def test_key_of_a_chat(self, store: Store, source: Source, key: str) -> None:
        assert lines(store, store.sessions.open(source).id, "nanobot")[0]["key"] == key

    @pytest.mark.parametrize(
        ("came", "key"),
        [
            ({"from": "nanobot", "key": "feishu:oc_1:om_1"}, "feishu:oc_1:om_1"),
            ({"from": "hermes", "key": "agent:x"}, "telegram:12025550101"),
            ({"from": "nanobot", "key": None}, "telegram:12025550101"),
            ("nonsense", "telegram:12025550101"),
        ],
        ids=str,
    )
    def test_imported_session_keeps_its_nanobot_key(
        self, store: Store, came: Any, key: str
    ) -> None:
        session = store.sessions.open(ANA)
        store.sessions.set_metadata(session.id, {"imported": came, "handle": "peti"})
        head = lines(store, session.id, "nanobot")[0]
        assert head["key"] == key
        assert head["metadata"] == {"handle": "peti"}

    def test_per_person_sessions_have_separate_keys(self, tmp_path: Path) -> None:
        with opened(tmp_path / "own.db", group_sessions_per_user=True) as store:
            session = store.sessions.open(GROUP)
            assert lines(store, session.id, "nanobot")[0]["key"] == "telegram:-100:user:5"

    def test_file_names_are_those_nanobot_looks_for(self, store: Store, tmp_path: Path) -> None:
        old = talk(store, ANA, "long ago")
        store.sessions.reset(store.sessions.key(ANA))
        talk(store, ANA, "today")
        export_to(store, "nanobot", tmp_path / "out")
        keys = {}
        for path in (tmp_path / "out").iterdir():
            stem = path.name.removesuffix(".jsonl")
            key = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
            assert json.loads(path.read_text("utf-8").split("\n")[0])["key"] == key
            keys[key] = path
        assert set(keys) == {"telegram:12025550101", f"telegram:12025550101#{old}"}
        assert "today" in keys["telegram:12025550101"].read_text("utf-8")

    def test_conversations_with_one_nanobot_key_stay_separate(
        self, store: Store, tmp_path: Path
    ) -> None:
        talk(store, Source("x", "a:b", user_id="1"), "one")
        talk(store, Source("x", "a", chat_type="group", thread_id="b"), "two")
        talk(store, Source("x", "y" * 400), "three")
        done = export_to(store, "nanobot", tmp_path / "out")
        assert (done.sessions, done.messages) == (3, 12)
        assert len(os.listdir(tmp_path / "out")) == 3
