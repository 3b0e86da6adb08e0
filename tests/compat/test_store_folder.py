"""The first use of a folder with another system's files: they are imported and not changed."""

from __future__ import annotations

import base64
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tertulia.compat import store_folder
from tertulia.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from tertulia.compat.hermes.session import SessionSource, SessionStore
from tertulia.compat.nanobot.manager import Session, SessionManager

ANN = SessionSource(Platform.TELEGRAM, "42", user_id="42", user_name="Ann")
NEVER = SessionResetPolicy("none")
WORKSPACE_ID = "0123456789abcdef" * 2

PROGRAM = """
import sys
from pathlib import Path
from tertulia.compat.nanobot.manager import SessionManager

sys.stdin.readline()
with SessionManager(Path(sys.argv[1])) as manager:
    print(manager.store.sessions.count(), len(manager.list_sessions()))
"""


def message_of(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text, "timestamp": "2026-02-03T04:05:06.000007"}


TALK = [
    message_of("what is a tertulia?"),
    message_of("a circle of talk", "assistant"),
    message_of("and who comes?"),
]


def lines(*records: Any) -> str:
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)


def hermes_home(home: Path) -> Path:
    sessions = home / "sessions"
    sessions.mkdir(parents=True)
    current, ended = "20260203_040506_aaaaaaaa", "20260101_010101_bbbbbbbb"
    entry = {
        "session_key": "agent:main:telegram:dm:42",
        "session_id": current,
        "created_at": "2026-02-03T04:05:06.000001",
        "updated_at": "2026-02-03T04:05:07.000002",
        "display_name": "Ann",
        "platform": "telegram",
        "chat_type": "dm",
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "origin": ANN.to_dict(),
    }
    (sessions / "sessions.json").write_text(json.dumps({entry["session_key"]: entry}))
    (sessions / f"{current}.jsonl").write_text(lines(*TALK), encoding="utf-8")
    (sessions / f"{ended}.jsonl").write_text(lines(message_of("long ago")), encoding="utf-8")
    return sessions


def nanobot_file(path: Path, key: str, *messages: dict[str, Any], offset: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "_type": "metadata",
        "key": key,
        "created_at": "2026-02-03T04:05:06.000001",
        "updated_at": "2026-02-03T04:05:07.000002",
        "metadata": {"mood": "calm"},
        "last_consolidated": offset,
    }
    path.write_text(lines(head, *messages), encoding="utf-8")


def snapshot(place: Path) -> dict[Path, bytes]:
    found = place.rglob("*")
    return {
        path: path.read_bytes()
        for path in found
        if path.is_file() and not path.name.startswith(store_folder.DATABASE)
    }


class TestHermes:
    def test_imported_sessions_continue(self, tmp_path: Path) -> None:
        sessions = hermes_home(tmp_path)
        before = snapshot(tmp_path)
        with SessionStore(sessions, GatewayConfig(default_reset_policy=NEVER)) as store:
            (report,) = store.imported
            assert (report.sessions, report.messages, report.problems) == (2, 4, ())
            (listed,) = store.list_sessions()
            assert listed.created_at.isoformat() == "2026-02-03T04:05:06.000001"
            assert listed.updated_at.isoformat() == "2026-02-03T04:05:07.000002"
            assert (listed.origin, listed.input_tokens) == (ANN, 100)
            entry = store.get_or_create_session(ANN)
            assert entry.session_id == "20260203_040506_aaaaaaaa"
            assert store.load_transcript(entry.session_id) == TALK
            assert store.load_transcript("20260101_010101_bbbbbbbb") == [message_of("long ago")]
            store.append_to_transcript(entry.session_id, message_of("more"))
            assert store.get_transcript_path(entry.session_id).parent != sessions
            assert store.has_any_sessions()
        assert {path: before[path] for path in before} == {
            path: raw for path, raw in snapshot(tmp_path).items() if path in before
        }
        assert (sessions / store_folder.DATABASE).exists()

    def test_policy_applies_to_imported_sessions(self, tmp_path: Path) -> None:
        sessions = hermes_home(tmp_path)
        with SessionStore(sessions, GatewayConfig()) as store:
            entry = store.get_or_create_session(ANN)
        assert entry.session_id != "20260203_040506_aaaaaaaa"
        assert (entry.was_auto_reset, entry.reset_had_activity) == (True, True)

    def test_files_are_imported_once(self, tmp_path: Path) -> None:
        sessions = hermes_home(tmp_path)
        config = GatewayConfig(default_reset_policy=NEVER)
        with SessionStore(sessions, config) as store:
            store.rewrite_transcript("20260203_040506_aaaaaaaa", TALK[:1])
        with SessionStore(sessions, config) as store:
            assert store.imported == []
            assert store.load_transcript("20260203_040506_aaaaaaaa") == TALK[:1]
            assert store.store.sessions.count() == 2

    def test_files_are_found_in_any_folder(self, tmp_path: Path) -> None:
        elsewhere = hermes_home(tmp_path).rename(tmp_path / "elsewhere")
        with SessionStore(elsewhere, GatewayConfig()) as store:
            assert store.store.sessions.count() == 2

    def test_empty_folder_is_not_imported(self, tmp_path: Path) -> None:
        with SessionStore(tmp_path / "sessions", GatewayConfig()) as store:
            assert store.imported == []
            store.get_or_create_session(ANN)
            store.get_transcript_path(store.list_sessions()[0].session_id)
        with SessionStore(tmp_path / "sessions", GatewayConfig()) as store:
            assert store.imported == []
            assert store.store.sessions.count() == 1

    def test_damage_is_logged_with_file_and_line(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        sessions = hermes_home(tmp_path)
        with (sessions / "20260203_040506_aaaaaaaa.jsonl").open("ab") as file:
            file.write(b'{"role": "user", "content": "cut o')
        with SessionStore(sessions, GatewayConfig()) as store:
            (report,) = store.imported
            assert store.load_transcript("20260203_040506_aaaaaaaa")[:3] == TALK
        assert 4 in [problem.line for problem in report.problems]
        assert "sessions/20260203_040506_aaaaaaaa.jsonl, line 4" in caplog.text


class TestNanobot:
    def test_imported_sessions_continue(self, tmp_path: Path) -> None:
        sessions = tmp_path / "sessions"
        nanobot_file(sessions / "telegram_42.jsonl", "telegram:42", *TALK, offset=1)
        nanobot_file(sessions / "heartbeat.jsonl", "heartbeat", *TALK[:1])
        nanobot_file(sessions / "slack_C1_17.5.jsonl", "slack:C1:17.5", *TALK[:2])
        before = snapshot(tmp_path)
        with SessionManager(tmp_path) as manager:
            assert sum(report.messages for report in manager.imported) == 6
            session = manager.get_or_create("telegram:42")
            assert session.messages == TALK
            assert session.metadata == {"mood": "calm"}
            assert session.last_consolidated == 1
            assert session.created_at.isoformat() == "2026-02-03T04:05:06.000001"
            assert session.updated_at.isoformat() == "2026-02-03T04:05:07.000002"
            session.add_message("assistant", "friends")
            session.metadata["mood"] = "merry"
            manager.save(session)
            assert len(manager.get_or_create("heartbeat").messages) == 1
            assert len(manager.get_or_create("slack:C1:17.5").messages) == 2
        with SessionManager(tmp_path) as manager:
            assert manager.imported == []
            keys = [one["key"] for one in manager.list_sessions()]
            assert keys[0] == "telegram:42"
            assert set(keys[1:]) == {"heartbeat", "slack:C1:17.5"}
            assert manager.get_or_create("telegram:42") == session
            stored = manager.store.sessions.find(key="agent:main:telegram:dm:42").items[0]
            assert "imported" in stored.metadata, "what the import noted stays in the store"
        assert snapshot(tmp_path) == before

    def test_files_outside_the_workspace(self, tmp_path: Path) -> None:
        workspace = tmp_path / "workspace"
        (workspace / ".nanobot").mkdir(parents=True)
        (workspace / ".nanobot" / "workspace-id").write_text(WORKSPACE_ID)
        name = base64.urlsafe_b64encode(b"telegram:42").decode().rstrip("=")
        nanobot_file(tmp_path / "sessions" / WORKSPACE_ID / f"{name}.jsonl", "telegram:42", *TALK)
        strange = tmp_path / "sessions" / ("f" * 32) / "x.jsonl"
        nanobot_file(strange, "telegram:43", *TALK)
        with SessionManager(workspace) as manager:
            assert [one["key"] for one in manager.list_sessions()] == ["telegram:42"]

    @pytest.mark.parametrize("written", ["../../elsewhere", "", "\x00", WORKSPACE_ID + "/.."])
    def test_invalid_workspace_id_is_ignored(self, tmp_path: Path, written: str) -> None:
        workspace = tmp_path / "a" / "workspace"
        (workspace / ".nanobot").mkdir(parents=True)
        (workspace / ".nanobot" / "workspace-id").write_text(written)
        nanobot_file(tmp_path / "elsewhere" / "x.jsonl", "telegram:43", *TALK)
        with SessionManager(workspace) as manager:
            assert manager.list_sessions() == []

    def test_offset_at_the_end_is_kept(self, tmp_path: Path) -> None:
        nanobot_file(tmp_path / "sessions" / "cli_1.jsonl", "cli:1", *TALK, offset=3)
        with SessionManager(tmp_path) as manager:
            session = manager.get_or_create("cli:1")
            assert session.last_consolidated == 3
            manager.save(session)
            session.add_message("user", "new")
            manager.save(session)
            assert session.last_consolidated == 3
            manager.invalidate("cli:1")
            session = manager.get_or_create("cli:1")
            assert [one["content"] for one in session.get_history()] == ["new"]
            session.messages = session.messages[2:]
            manager.save(session)
            assert session.last_consolidated == 1

    def test_deleted_session_stays_deleted(self, tmp_path: Path) -> None:
        nanobot_file(tmp_path / "sessions" / "cli_1.jsonl", "cli:1", *TALK)
        with SessionManager(tmp_path) as manager:
            assert manager.delete_session("cli:1")
        with SessionManager(tmp_path) as manager:
            assert manager.list_sessions() == []

    def test_interrupted_import_is_repeated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nanobot_file(tmp_path / "sessions" / "cli_1.jsonl", "cli:1", *TALK)
        with monkeypatch.context() as patched:
            patched.setattr("tertulia.records.transcript.replace.note", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                SessionManager(tmp_path)
        with SessionManager(tmp_path) as manager:
            assert len(manager.imported) == 1
            assert manager.get_or_create("cli:1").messages == TALK
            assert manager.store.sessions.count() == 1

    @pytest.mark.skipif(os.name == "nt", reason="file modes of POSIX")
    def test_export_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        (tmp_path / store_folder.EXPORTS).mkdir(mode=0o755)
        path = store_folder.export(tmp_path, "s1", [message_of("hello")])
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text()) == message_of("hello")

    def test_exports_are_not_imported(self, tmp_path: Path) -> None:
        with SessionManager(tmp_path) as manager:
            manager.save(Session("cli:1", list(TALK)))
            assert manager.export("cli:1") is not None
        with SessionManager(tmp_path) as manager:
            assert manager.imported == []

    @pytest.mark.check
    def test_concurrent_programs_import_once(self, tmp_path: Path) -> None:
        for number in range(40):
            nanobot_file(tmp_path / "sessions" / f"cli_{number}.jsonl", f"cli:{number}", *TALK)
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(tmp_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        for program in programs:
            out, problem = program.communicate(timeout=120)
            assert (program.returncode, out.split()) == (0, ["40", "40"]), problem


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


class TestUnreadFiles:
    """A file that could not be read is tried again; until then nothing stands in its place."""

    def test_nanobot_file_is_imported_when_it_can_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = _lock_files(monkeypatch)
        nanobot_file(tmp_path / "sessions/telegram_42.jsonl", "telegram:42", *TALK)
        nanobot_file(tmp_path / "sessions/telegram_43.jsonl", "telegram:43", *TALK)
        names.add("telegram_42.jsonl")
        with SessionManager(tmp_path) as manager:
            assert [entry["key"] for entry in manager.list_sessions()] == ["telegram:43"]
        names.clear()
        with SessionManager(tmp_path) as manager:
            assert manager.get_or_create("telegram:42").messages == TALK
            assert manager.read_session_file("telegram:42") is not None
        with SessionManager(tmp_path) as manager:
            assert manager.imported == [], "all files were read: the import is done"

    @pytest.mark.parametrize("name", ["20260203_040506_aaaaaaaa.jsonl", "sessions.json"])
    def test_hermes_file_is_imported_when_it_can_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        names = _lock_files(monkeypatch)
        sessions, config = hermes_home(tmp_path), GatewayConfig(default_reset_policy=NEVER)
        names.add(name)
        with SessionStore(sessions, config) as store:
            assert store.list_sessions() == []
        names.clear()
        with SessionStore(sessions, config) as store:
            entry = store.get_or_create_session(ANN)
            assert entry.session_id == "20260203_040506_aaaaaaaa"
            assert store.load_transcript(entry.session_id) == TALK


def _lock_files(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of files that this program may not open; the caller adds to them."""
    names: set[str] = set()
    really_open = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if os.path.basename(path) in names:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really_open(path, *args, **options)

    monkeypatch.setattr("tertulia.transfer.importers.safe_files.os.open", refuse)
    return names
