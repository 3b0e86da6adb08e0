"""Sessions as programs take them: JSONL, JSON, nanobot's files, and folders of these."""

from __future__ import annotations

import base64
import json
import os
import stat
import tracemalloc
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia import ConfigError, NotFound, Source, Store, StoreError, transfer
from tertulia.records import iterate
from tertulia.records.iterate import Selection
from tertulia.transfer.exporters.export import (
    Form,
    document,
    export_to,
)
from tests.transfer.scene import ANA, BEN, GROUP, LARGE, THREAD, opened, talk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "talk.db") as made:
        yield made


def lines(store: Store, session_id: str, form: Form, **options: Any) -> list[Any]:
    return [json.loads(line) for line in document(store, session_id, form, **options)]


class TestJsonl:
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(st.lists(st.dictionaries(st.text(max_size=8), json_values, max_size=4), max_size=5))
    def test_every_field_comes_back(self, store: Store, bodies: list[dict[str, Any]]) -> None:
        given_ = [{**body, "role": "user"} for body in bodies]
        session = store.sessions.open(ANA, force_new=True)
        store.transcript(session.id).extend(given_)
        assert lines(store, session.id, "jsonl") == given_

    def test_half_a_character_survives(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.transcript(session.id).append({"role": "user", "content": "\ud83d \x00 \u2028"})
        text = "\n".join(document(store, session.id, "jsonl"))
        text.encode()  # it is valid UTF-8, and one line for whoever splits at any line break
        assert len(text.splitlines()) == 1
        assert json.loads(text)["content"] == "\ud83d \x00 \u2028"

    def test_only_what_is_seen(self, store: Store) -> None:
        session = talk(store, ANA, "hello")
        talk(store, ANA, "wrong")
        store.transcript(session).undo()
        assert len(lines(store, session, "jsonl")) == 4

    def test_a_fork_has_its_past(self, store: Store) -> None:
        session = talk(store, ANA, "hello")
        fork = store.sessions.fork(session).id
        talk(store, ANA, "and on")
        assert lines(store, fork, "jsonl") == store.transcript(fork).load()
        assert len(lines(store, fork, "jsonl")) == 8

    def test_messages_are_counted(self, store: Store) -> None:
        made = document(store, talk(store, ANA, "hello"), "html")
        for _ in range(2):  # it can be read again
            assert len(list(made)) > 20
            assert made.messages == 4

    def test_large_parts_are_in_it(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.transcript(session.id).append({"role": "user", "content": LARGE})
        assert lines(store, session.id, "jsonl") == [{"role": "user", "content": LARGE}]


class TestJson:
    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_the_session_its_messages_and_their_places(self, store: Store, count: int) -> None:
        session = store.sessions.open(ANA).id
        given_ = [{"role": "user", "content": f"number {n}"} for n in range(count)]
        store.transcript(session).extend(given_)
        found = json.loads("\n".join(document(store, session, "json")))
        assert found["id"] == session
        assert found["messages"] == given_
        assert [place["seq"] for place in found["places"]] == [n + 1 for n in range(count)]


class TestNanobot:
    """What nanobot expects of a file, as its own files have it."""

    def test_the_first_line_tells_of_the_session(self, store: Store) -> None:
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

    def test_each_message_has_its_time_without_a_zone(self, tmp_path: Path) -> None:
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

    def test_a_time_that_came_from_nanobot_stays(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        log = store.transcript(session)
        log.append({"role": "user", "content": "a", "timestamp": "2025-01-01T10:00:00.5"})
        log.append({"role": "user", "content": "b", "timestamp": 17})
        times = [one["timestamp"] for one in lines(store, session, "nanobot")[1:]]
        assert times == ["2025-01-01T10:00:00.5", "2026-03-01T12:00:00"]

    def test_no_message_passes_for_a_record(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        store.transcript(session).append({"role": "user", "content": "x", "_type": "metadata"})
        assert [one.get("_type") for one in lines(store, session, "nanobot")] == ["metadata", None]

    def test_nothing_in_it_that_nanobot_cannot_write_back(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        store.transcript(session).append({"role": "user", "content": "half \ud83d"})
        assert lines(store, session, "nanobot")[1]["content"] == "half \ufffd"

    def test_what_was_summed_up_is_consolidated(self, store: Store) -> None:
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
    def test_the_key_is_the_chat(self, store: Store, source: Source, key: str) -> None:
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
    def test_what_came_from_nanobot_has_its_key_again(
        self, store: Store, came: Any, key: str
    ) -> None:
        session = store.sessions.open(ANA)
        store.sessions.set_metadata(session.id, {"imported": came, "handle": "peti"})
        head = lines(store, session.id, "nanobot")[0]
        assert head["key"] == key
        assert head["metadata"] == {"handle": "peti"}

    def test_people_with_sessions_of_their_own(self, tmp_path: Path) -> None:
        with opened(tmp_path / "own.db", group_sessions_per_user=True) as store:
            session = store.sessions.open(GROUP)
            assert lines(store, session.id, "nanobot")[0]["key"] == "telegram:-100:user:5"

    def test_a_folder_has_the_names_that_nanobot_looks_for(
        self, store: Store, tmp_path: Path
    ) -> None:
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

    def test_conversations_that_nanobot_would_mix_stay_apart(
        self, store: Store, tmp_path: Path
    ) -> None:
        talk(store, Source("x", "a:b", user_id="1"), "one")
        talk(store, Source("x", "a", chat_type="group", thread_id="b"), "two")
        talk(store, Source("x", "y" * 400), "three")
        done = export_to(store, "nanobot", tmp_path / "out")
        assert (done.sessions, done.messages) == (3, 12)
        assert len(os.listdir(tmp_path / "out")) == 3


class TestFolder:
    def test_a_file_for_each_session(self, store: Store, tmp_path: Path) -> None:
        names = {talk(store, source, "hello") for source in (ANA, BEN, GROUP)}
        done = export_to(store, "jsonl", tmp_path / "out")
        assert (done.sessions, done.messages) == (3, 12)
        assert {path.stem for path in (tmp_path / "out").iterdir()} == names
        for path in (tmp_path / "out").iterdir():
            found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            assert found == store.transcript(path.stem).load()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700

    @pytest.mark.parametrize(
        ("selection", "count"),
        [
            (Selection(), 4),
            (Selection(platform="telegram"), 3),
            (Selection(state="current"), 3),
            (Selection(state="ended", platform="telegram"), 1),
            (Selection(person="telegram:12025550101"), 2),
            (Selection(person="12025550101"), 2),
            (Selection(key="agent:main:telegram:group:-100"), 1),
            (Selection(platform="nowhere"), 0),
        ],
        ids=str,
    )
    def test_a_selection(
        self, store: Store, tmp_path: Path, selection: Selection, count: int
    ) -> None:
        for source in (ANA, BEN, GROUP):
            talk(store, source, "hello")
        store.sessions.reset(store.sessions.key(ANA))
        done = export_to(store, "jsonl", tmp_path / "out", selection=selection)
        assert done.sessions == count == len(os.listdir(tmp_path / "out"))

    def test_those_active_since(self, tmp_path: Path) -> None:
        from tertulia.testing import FakeClock

        clock = FakeClock()
        with opened(tmp_path / "t.db", clock) as store:
            talk(store, ANA, "long ago")
            since = clock.forward(days=3)
            new = talk(store, BEN, "today")
            export_to(store, "json", tmp_path / "out", selection=Selection(active_since=since))
        assert os.listdir(tmp_path / "out") == [f"{new}.json"]

    def test_more_than_a_page_of_sessions(self, store: Store, tmp_path: Path) -> None:
        for number in range(iterate._SESSIONS + 5):
            store.sessions.open(Source("telegram", str(number)))
        assert export_to(store, "jsonl", tmp_path / "out").sessions == iterate._SESSIONS + 5

    def test_named_ones_and_an_unknown_one(self, store: Store, tmp_path: Path) -> None:
        one = talk(store, ANA, "hello")
        talk(store, BEN, "hello")
        with pytest.raises(NotFound, match="nobody"):
            export_to(store, "jsonl", tmp_path / "out", selection=Selection(ids=(one, "nobody")))
        assert not (tmp_path / "out").exists()
        done = export_to(store, "jsonl", tmp_path / "out", selection=Selection(ids=(one, one)))
        assert done.sessions == 1

    def test_what_makes_no_sense(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="either ids"):
            Selection(ids=("x",), platform="telegram")
        with pytest.raises(ConfigError, match="no time zone"):
            Selection(active_since=datetime(2026, 1, 1))
        with pytest.raises(ConfigError, match="Allowed: all"):
            Selection(state="asleep")  # type: ignore[arg-type]
        chosen = Selection(platform="telegram")
        with pytest.raises(ConfigError, match="whole store"):
            export_to(store, "archive", tmp_path / "a.zip", selection=chosen)
        with pytest.raises(ConfigError, match="no form 'pdf'"):
            export_to(store, "pdf", tmp_path / "out")
        for form in ("nanobot", "archive"):
            with pytest.raises(ConfigError, match="real ids"):
                export_to(store, form, tmp_path / "out", redact=True)
        assert os.listdir(tmp_path) == [name for name in os.listdir(tmp_path) if "talk.db" in name]

    def test_a_folder_in_use_is_left_alone(self, store: Store, tmp_path: Path) -> None:
        session = talk(store, ANA, "hello")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / f"{session}.jsonl").write_text("mine")
        with pytest.raises(ConfigError, match="is not empty"):
            export_to(store, "jsonl", tmp_path / "out")
        assert (tmp_path / "out" / f"{session}.jsonl").read_text() == "mine"
        export_to(store, "jsonl", tmp_path / "out", force=True)
        assert (tmp_path / "out" / f"{session}.jsonl").read_text() != "mine"
        with pytest.raises(StoreError, match="cannot be made"):
            export_to(store, "jsonl", tmp_path / "talk.db")

    def test_a_session_deleted_meanwhile_is_left_out_whole(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(iterate, "_MESSAGES", 1)
        gone, kept = talk(store, ANA, "hello"), talk(store, BEN, "hello")
        read = iterate._rows

        def deleting(tx: Any, session_id: str, part: Any) -> Any:
            found = read(tx, session_id, part)
            if session_id == gone and part.first == 2:
                store.sessions.delete(gone)
            return found

        monkeypatch.setattr(iterate, "_rows", deleting)
        done = export_to(store, "jsonl", tmp_path / "out")
        assert (done.sessions, done.messages) == (1, 4)
        assert os.listdir(tmp_path / "out") == [f"{kept}.jsonl"]

    def test_the_whole_store_in_one_file(self, store: Store, tmp_path: Path) -> None:
        talk(store, ANA, "hello")
        done = export_to(store, "archive", tmp_path / "a.zip")
        assert (done.sessions, done.messages) == (1, 4)
        with opened(tmp_path / "b.db") as copy:
            transfer.restore(copy, tmp_path / "a.zip")
            assert copy.sessions.count() == 1


class TestRedacted:
    def test_ids_and_numbers_are_gone_and_all_else_is_there(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        call = {
            "id": "call_12345678",
            "type": "function",
            "function": {"name": "dial", "arguments": '{"number": 12025550177, "times": 2}'},
        }
        store.transcript(session).extend(
            [
                {"role": "user", "content": "I am 12025550101, call +1 202 555 0177"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_12345678", "content": "ok"},
            ]
        )
        for form in ("jsonl", "json"):
            text = "\n".join(document(store, session, form, redact=True))
            assert "12025550101" not in text
            assert "555 0177" not in text
            assert store.redactor.user("telegram", "12025550101") in text
        _, asked, answered = lines(store, session, "jsonl", redact=True)
        assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == "call_12345678"
        assert json.loads(asked["tool_calls"][0]["function"]["arguments"])["times"] == 2

    def test_as_the_settings_say(self, tmp_path: Path) -> None:
        with opened(tmp_path / "r.db", redact_pii=True) as store:
            session = talk(store, ANA, "call +1 202 555 0177")
            for form in ("jsonl", "json", "markdown", "html"):
                text = "\n".join(document(store, session, form))
                assert "555 0177" not in text
            assert "555 0177" in "\n".join(document(store, session, "nanobot"))
            assert "555 0177" in "\n".join(document(store, session, "jsonl", redact=False))

    def test_who_wrote_in_a_group(self, store: Store) -> None:
        eve = Source(
            "telegram", "-100", chat_type="group", user_id="5550001", user_name="+12025550123"
        )
        session = talk(store, eve, "hello")
        for form in ("json", "html", "markdown"):
            text = "\n".join(document(store, session, form, redact=True))
            assert "5550001" not in text
            assert "12025550123" not in text


def test_memory_does_not_grow_with_the_transcript(store: Store) -> None:
    store._indexer.stop()
    peaks = []
    for count in (1_000, 8_000):
        session = store.sessions.open(ANA, force_new=True).id
        for _ in range(count // 500):
            store.transcript(session).extend([{"role": "user", "content": "x" * 500}] * 500)
        tracemalloc.start()
        read = sum(1 for _ in document(store, session, "html"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read > count
    # Seven thousand messages more are 3.5 million characters more.
    assert peaks[1] < peaks[0] + 500_000
