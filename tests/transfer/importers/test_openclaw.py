"""OpenClaw's sessions, from files and databases made after its public descriptions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Session, Store
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import SETTINGS, all_sessions, dump, print_of
from tests.transfer.importers.unprivileged import file_modes_obeyed

ONE, TWO = "b7300bff-a214-4c11-97ae-eab26883c67a", "0c1d8c1e-5b1f-4a53-9d1c-1f4f6f1f0a01"
GROUP = "agent:main:telegram:group:-1005550100001"
USED = {
    "input": 100, "output": 20, "cacheRead": 30, "cacheWrite": 4, "totalTokens": 154,
    "cost": {"total": 0.0125},
}  # fmt: skip


def entry(name: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
    at = f"2026-04-08T01:03:0{name[-1]}.000Z"
    return {
        "type": "message", "id": name, "parentId": parent, "timestamp": at, "message": message,
    }  # fmt: skip


def header(session_id: str) -> dict[str, Any]:
    return {
        "type": "session", "version": 3, "id": session_id, "timestamp": "2026-04-08T01:03:00.000Z",
        "cwd": "/srv/agent",
    }  # fmt: skip


ASK = entry("a1", None, {"role": "user", "content": [{"type": "text", "text": "the weather?"}]})
CALL = entry(
    "a2",
    "a1",
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look it up.", "thinkingSignature": "sig"},
            {"type": "text", "text": "One moment."},
            {"type": "toolCall", "id": "c1", "name": "weather", "arguments": {"city": "Lisboa"}},
        ],
        "provider": "anthropic",
        "model": "claude-test",
        "usage": USED,
        "stopReason": "toolUse",
    },
)
RESULT = entry(
    "a3",
    "a2",
    {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "weather",
        "content": [{"type": "text", "text": "sunny"}],
        "isError": False,
    },
)
ANSWER = entry("a4", "a3", {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]})
LINES = [
    header(ONE),
    {"type": "model_change", "id": "m1", "parentId": None, "provider": "anthropic", "modelId": "x"},
    {**ASK, "parentId": "m1"},
    CALL,
    RESULT,
    ANSWER,
]


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "openclaw"


@pytest.fixture
def sessions(home: Path) -> Path:
    """A folder of sessions with one of a group."""
    made = home / "agents/main/sessions"
    write(made / f"{ONE}.jsonl", LINES)
    index(
        made,
        {GROUP: {"sessionId": ONE, "updatedAt": 1775610300000, "displayName": "Ops", "x": [1]}},
    )
    return made


def index(folder: Path, entries: dict[str, Any]) -> None:
    (folder / "sessions.json").write_text(json.dumps(entries))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as opened:
        yield opened


def only(store: Store) -> Session:
    (found,) = all_sessions(store)
    return found


def test_session_is_imported_in_the_chat_form(store: Store, home: Path, sessions: Path) -> None:
    before = print_of(home)
    report = import_from(store, "openclaw", home)
    assert (report.sessions, report.messages, report.problems) == (1, 4, ())
    assert print_of(home) == before
    ask, call, result, answer = store.transcript(only(store).id).load()
    assert ask == {"role": "user", "content": "the weather?"}
    assert call["content"] == "One moment."
    assert call["reasoning_content"] == "Look it up."
    assert call["thinking_blocks"][0]["signature"] == "sig"
    assert call["stopReason"] == "toolUse"
    function = {"name": "weather", "arguments": '{"city": "Lisboa"}'}
    assert call["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c1", "sunny")
    assert answer["content"] == "Sunny."


def test_key_state_times_and_usage_are_imported(store: Store, home: Path, sessions: Path) -> None:
    import_from(store, "openclaw", home)
    found = only(store)
    assert found.key == GROUP
    assert found.origin.chat_type == "group"
    assert found.display_name == "Ops"
    assert found.ended_at is None
    assert found.created_at == datetime(2026, 4, 8, 1, 3, tzinfo=UTC)
    assert (found.usage.input, found.usage.output, found.usage.total) == (100, 20, 154)
    assert found.cost_usd == pytest.approx(0.0125)
    assert found.last_prompt_tokens == 134
    kept = found.metadata["imported"]
    assert kept["entry"]["x"] == [1]
    assert [one["type"] for one in kept["entries"]] == ["session", "model_change"]


def test_only_the_newest_branch_is_visible(store: Store, home: Path, sessions: Path) -> None:
    other = entry("b4", "a1", {"role": "assistant", "content": "Another answer."})
    write(sessions / f"{ONE}.jsonl", [*LINES, other])
    assert import_from(store, "openclaw", home).messages == 2
    talk = store.transcript(only(store).id)
    assert [message["content"] for message in talk.load()] == ["the weather?", "Another answer."]
    assert len(talk.at(1)) == 5  # the other branch is in the log


def test_compaction_becomes_a_summary(store: Store, home: Path, sessions: Path) -> None:
    compaction = {
        "type": "compaction", "id": "k1", "parentId": "a4", "timestamp": "2026-04-08T02:00:00.000Z",
        "summary": "They spoke of the weather.", "firstKeptEntryId": "a5", "tokensBefore": 900,
    }  # fmt: skip
    more = [
        entry("a5", "a4", {"role": "user", "content": "and tomorrow?"}),
        {**compaction, "parentId": "a5"},
        entry("a6", "k1", {"role": "assistant", "content": "Rain."}),
    ]
    write(sessions / f"{ONE}.jsonl", [*LINES, *more])
    import_from(store, "openclaw", home)
    talk = store.transcript(only(store).id)
    assert len(talk.load()) == 6
    history = json.dumps(talk.history())
    assert "They spoke of the weather." in history
    assert "and tomorrow?" in history
    assert "One moment." not in history


def test_unindexed_transcript_belongs_to_nobody(store: Store, home: Path, sessions: Path) -> None:
    index(sessions, {})
    write(sessions / f"{TWO}.jsonl.reset.2026-04-09T01-00-00.000Z", [header(TWO), ASK])
    write(sessions / f"{TWO}.jsonl.deleted.2026-04-09T01-00-00.000Z", [header(TWO), ASK])
    write(sessions / f"{TWO}.trajectory.jsonl", [ASK])
    report = import_from(store, "openclaw", home)
    assert [problem.kind for problem in report.problems] == ["deleted_left_out"]
    found = all_sessions(store)
    assert len(found) == 2
    assert len({session.key for session in found}) == 2
    assert all(session.end_reason == "imported" and "~unknown" in session.key for session in found)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("agent:main:main", "agent:main:openclaw:~unknown:main"),
        ("agent:work:main", "agent:work:openclaw:~unknown:main"),
        ("agent:main:telegram:direct:42", "agent:main:telegram:dm:42"),
        ("agent:main:telegram:default:direct:42", "agent:main:telegram:dm:42"),
        ("agent:main:slack:T1:channel:C1", "agent:main:slack:T1:channel:C1"),
        ("agent:main:telegram:group:-100:topic:7", "agent:main:telegram:group:-100:~7"),
        ("agent:main:discord:channel:9:thread:8", "agent:main:discord:channel:9:~8"),
        ("cron:nightly", "agent:main:openclaw:~unknown:cron%3Anightly"),
    ],
)
def test_keys(store: Store, home: Path, sessions: Path, key: str, wanted: str) -> None:
    index(sessions, {key: {"sessionId": ONE, "updatedAt": 1775610300000}})
    import_from(store, "openclaw", home)
    assert only(store).key == wanted


def test_paths_outside_the_folder_are_refused(store: Store, home: Path, sessions: Path) -> None:
    write(home.parent / "outside.jsonl", [ASK])
    index(
        sessions,
        {
            "agent:main:a": {"sessionId": "../../../../outside"},
            "agent:main:b": {"sessionId": TWO, "sessionFile": str(home.parent / "outside.jsonl")},
            "agent:main:c": {"sessionId": 5},
            "agent:main:d": "no entry",
        },
    )
    (sessions / "linked.jsonl").symlink_to(home.parent / "outside.jsonl")
    report = import_from(store, "openclaw", home)
    told = sorted(problem.kind for problem in report.problems)
    assert told == [
        "index_entry_invalid", "index_entry_invalid", "symlink", "transcript_missing",
        "unsafe_session_file", "unsafe_session_id",
    ]  # fmt: skip
    assert report.sessions == 1  # the transcript that has lost its entry


EARLIER = """
create table sessions (session_id text not null primary key, session_key text not null);
create table session_entries (session_key text not null primary key, session_id text not null,
  entry_json text not null, updated_at integer not null);
"""
LATER = """
create table session_nodes (session_key text not null primary key,
  current_session_id text not null, entry_json text not null, updated_at integer not null);
create table session_windows (session_id text not null primary key, session_key text not null,
  previous_session_id text, reason text);
"""
EVENTS = """
create table transcript_events (session_id text not null, seq integer not null,
  event_json text not null, created_at integer not null, primary key (session_id, seq));
"""


@pytest.mark.parametrize("schema", [EARLIER, LATER])
def test_database_gives_the_same_as_files(
    store: Store, home: Path, tmp_path: Path, schema: str
) -> None:
    place = home / "agents/main/agent"
    place.mkdir(parents=True)
    db = sqlite3.connect(place / "openclaw-agent.sqlite")
    db.executescript(schema + EVENTS)
    about = json.dumps({"sessionId": ONE, "displayName": "Ops"})
    if schema is EARLIER:
        db.execute("insert into session_entries values (?, ?, ?, 1)", (GROUP, ONE, about))
        db.executemany("insert into sessions values (?, ?)", [(ONE, GROUP), (TWO, GROUP)])
    else:
        db.execute("insert into session_nodes values (?, ?, ?, 1)", (GROUP, ONE, about))
        rows = [(ONE, GROUP, TWO, "reset"), (TWO, GROUP, None, "initial")]
        db.executemany("insert into session_windows values (?, ?, ?, ?)", rows)
    for seq in reversed(range(len(LINES))):  # the order is that of seq
        db.execute(
            "insert into transcript_events values (?, ?, ?, 1)", (ONE, seq, json.dumps(LINES[seq]))
        )
    db.execute("insert into transcript_events values (?, 0, ?, 1)", (TWO, json.dumps(ASK)))
    db.execute("insert into transcript_events values (?, 1, '{broken', 1)", (TWO,))
    db.commit()
    db.close()
    report = import_from(store, "openclaw", home)
    assert (report.sessions, report.messages) == (2, 5)
    assert [problem.kind for problem in report.problems] == ["bad_json_column"]
    assert {session.key for session in all_sessions(store)} == {GROUP}
    current = store.sessions.current(GROUP)
    assert current is not None
    words = [message["content"] for message in store.transcript(current.id).load()]
    assert words == ["the weather?", "One moment.", "sunny", "Sunny."]
    before = dump(store)
    assert import_from(store, "openclaw", home).skipped == 2
    assert dump(store) == before


@pytest.mark.parametrize("name", ["sessions.json", f"{ONE}.jsonl"])
def test_unreadable_files_store_nothing(
    store: Store, home: Path, sessions: Path, name: str
) -> None:
    (sessions / name).chmod(0)
    with file_modes_obeyed():
        report = import_from(store, "openclaw", home)
    assert (report.sessions, store.sessions.count()) == (0, 0)
    assert {problem.kind for problem in report.problems} == {"unreadable"}
    (sessions / name).chmod(0o600)
    assert import_from(store, "openclaw", home).sessions == 1
    assert only(store).ended_at is None


def test_folder_of_one_agent_is_imported(store: Store, home: Path, sessions: Path) -> None:
    assert import_from(store, "openclaw", sessions).sessions == 1
    assert import_from(store, "openclaw", sessions.parent).skipped == 1
    assert import_from(store, "openclaw", home).skipped == 1
