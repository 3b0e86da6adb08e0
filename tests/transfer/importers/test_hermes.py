"""The Hermes reader with hostile fields, cycles and keys."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Store
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import all_sessions, dump, planted
from tests.transfer.importers.source_files import HELLO, ODD, kinds, write

ORIGIN: dict[str, Any] = {"platform": "telegram", "chat_id": "42"}


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_wrong_types_in_hermes_fields_are_survived(store: Store, folder: Path, value: Any) -> None:
    entry: dict[str, Any] = {
        "session_key": "agent:main:telegram:dm:42", "session_id": "20260301_100000_aaaaaaaa",
        "created_at": "2026-03-01T10:00:00", "updated_at": "2026-03-01T11:00:00",
        "display_name": "Ana", "platform": "telegram", "chat_type": "dm", "input_tokens": 1,
        "output_tokens": 2, "total_tokens": 3, "last_prompt_tokens": 4, "estimated_cost_usd": 0.5,
        "cost_status": "estimated", "origin": ORIGIN,
    }  # fmt: skip
    index = {}
    for number, name in enumerate(entry):
        session_id = f"20260301_100000_{number:08x}"
        index[f"k{number}"] = {
            **entry,
            "session_key": f"k{number}",
            "session_id": session_id,
            name: value,
        }
        write(folder / f"{session_id}.jsonl", HELLO)
    for number, name in enumerate(ORIGIN):
        session_id = f"20260301_100001_{number:08x}"
        origin = {**ORIGIN, name: value}
        index[f"o{number}"] = {
            **entry,
            "session_key": f"o{number}",
            "session_id": session_id,
            "origin": origin,
        }
        write(folder / f"{session_id}.jsonl", HELLO)
    (folder / "sessions.json").write_text(json.dumps(index))
    report = import_from(store, "hermes", folder.parent)
    assert report.messages == len(entry) + 2
    assert store.check() == []
    assert len(dump(store)["sessions"]) == report.sessions


def test_parent_cycle_is_cut_and_reported(store: Store, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    db = sqlite3.connect(home / "state.db")
    db.execute(
        "create table sessions (id text, source text, parent_session_id text, started_at real)"
    )
    db.execute(
        "create table messages (id integer primary key, session_id text, role text, content text)"
    )
    circle = {"s1": "s2", "s2": "s3", "s3": "s1", "s4": "s1", "s5": "s5", "s6": "gone"}
    for name, parent in circle.items():
        db.execute("insert into sessions values (?, 'telegram', ?, 1.0)", (name, parent))
        db.execute(
            "insert into messages (session_id, role, content) values (?, 'user', 'x')", (name,)
        )
    db.commit()
    db.close()
    report = import_from(store, "hermes", home)
    assert kinds(report) == {"parent_cycle", "parent_missing", "unparseable_timestamp"}
    parents = {session.id: session.parent_id for session in all_sessions(store)}
    for name in parents:
        passed, place = [], name
        while place is not None:
            assert place not in passed
            passed.append(place)
            place = parents.get(place)  # type: ignore[assignment]


def test_session_reset_in_hermes_is_replaced_as_current(store: Store, tmp_path: Path) -> None:
    home = planted("dmg_hermes001_crlf", tmp_path)
    import_from(store, "hermes", home)
    index = json.loads((home / "sessions/sessions.json").read_text("utf-8"))
    key = "agent:main:telegram:dm:5550100201"
    old, new = index[key]["session_id"], "20260401_100000_abcdef01"
    index[key].update(session_id=new, created_at="2026-04-01T10:00:00")
    (home / "sessions/sessions.json").write_text(json.dumps(index))
    write(home / f"sessions/{new}.jsonl", HELLO)
    report = import_from(store, "hermes", home)
    assert (report.sessions, report.skipped, report.problems) == (1, 5, ())
    current = store.sessions.current(key)
    assert current is not None
    assert current.id == new
    assert store.sessions.require(old).end_reason == "imported"


def test_direct_message_continues_the_session_under_the_hermes_key(
    tmp_path: Path,
) -> None:
    never = Settings(zone="UTC", policies=Policies(default=ResetPolicy(mode="none")))
    with tertulia.open(tmp_path / "talk.db", settings=never) as store:
        import_from(store, "hermes", planted("hermes019_main", tmp_path))
        chat = "12025550120@s.whatsapp.net"
        found = store.sessions.open(Source("whatsapp", chat, user_id=chat))
        assert found.id == "20260721_061236_7493fe50"
        assert found.key == "agent:main:whatsapp:dm:12025550120"


def _state_db(home: Path) -> sqlite3.Connection:
    home.mkdir()
    db = sqlite3.connect(home / "state.db")
    db.execute(
        "create table sessions (id text, source text, parent_session_id text, started_at real)"
    )
    db.execute(
        "create table messages (id integer primary key, session_id text, role text, content text,"
        " timestamp real)"
    )
    return db


def test_newer_schema_is_reported(store: Store, tmp_path: Path) -> None:
    with closing(_state_db(tmp_path / "home")) as db:
        db.execute("create table schema_version (version integer)")
        db.execute("insert into schema_version values (23)")
        db.commit()
    report = import_from(store, "hermes", tmp_path / "home")
    assert kinds(report) == {"newer_schema"}
    assert "23" in report.problems[0].detail


def test_missing_parent_is_reported_and_stays(store: Store, tmp_path: Path) -> None:
    with closing(_state_db(tmp_path / "home")) as db:
        db.execute("insert into sessions values ('child', 'telegram', 'gone', 1785000000.0)")
        db.commit()
    assert kinds(import_from(store, "hermes", tmp_path / "home")) == {"parent_missing"}
    assert store.sessions.require("child").parent_id == "gone"


@pytest.mark.parametrize("session_id", ["lost", "20260301_100000_aaaaaaaa"])
def test_session_known_only_by_its_messages(tmp_path: Path, session_id: str) -> None:
    """Its start is that of its first message: its id has a time of an unknown time zone."""
    began = datetime(2026, 3, 1, 15, tzinfo=UTC)
    with closing(_state_db(tmp_path / "home")) as db:
        row = (session_id, began.timestamp())
        db.execute("insert into messages values (1, ?, 'user', 'x', ?)", row)
        db.commit()
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="Asia/Tokyo")) as store:
        report = import_from(store, "hermes", tmp_path / "home")
        assert kinds(report) == {"session_row_missing"}
        assert session_id in report.problems[0].detail
        assert store.sessions.require(session_id).created_at == began


def test_impossible_times_are_reported_and_not_used(store: Store, folder: Path) -> None:
    session_id = "20260301_100000_aaaaaaaa"
    entry = {
        "session_key": "agent:main:telegram:dm:42", "session_id": session_id, "origin": ORIGIN,
        "created_at": 17, "updated_at": "soon",
    }  # fmt: skip
    (folder / "sessions.json").write_text(json.dumps({entry["session_key"]: entry}))
    write(folder / f"{session_id}.jsonl", HELLO)
    report = import_from(store, "hermes", folder.parent)
    assert [problem.kind for problem in report.problems] == ["unparseable_timestamp"] * 2
    session = store.sessions.require(session_id)
    assert session.created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert session.updated_at == datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC)
