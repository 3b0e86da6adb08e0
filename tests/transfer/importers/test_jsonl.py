"""Files of OpenAI chat messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Store
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import SETTINGS, all_sessions
from tests.transfer.importers.unprivileged import file_modes_obeyed

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "hello", "timestamp": "2026-03-01T10:00:00Z", "mood": {"x": 1}},
    {"role": "assistant", "content": "hi", "timestamp": 1772359201},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as opened:
        yield opened


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_jsonl_file_is_one_session(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "trip.jsonl", TALK)
    report = import_from(store, "jsonl", path)
    assert (report.sessions, report.messages) == (1, 2)
    assert {problem.kind for problem in report.problems} == {"mixed_timestamps"}
    (session,) = all_sessions(store)
    assert store.transcript(session.id).load() == TALK
    assert session.created_at == datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
    assert session.updated_at == datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC)
    assert (session.display_name, session.end_reason) == ("trip", "imported")
    assert import_from(store, "jsonl", path).skipped == 1


def test_files_of_the_same_name_are_separate_sessions(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "in/a/talk.jsonl", TALK[:1])
    write(tmp_path / "in/b/talk.jsonl", TALK[:1])
    write(tmp_path / "in/c.txt", TALK)
    assert import_from(store, "jsonl", tmp_path / "in").sessions == 2
    assert len({session.key for session in all_sessions(store)}) == 2


def test_unreadable_file_is_no_session(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "in/trip.jsonl", TALK)
    path.chmod(0)
    with file_modes_obeyed():
        report = import_from(store, "jsonl", path.parent)
    assert (report.sessions, [problem.kind for problem in report.problems]) == (0, ["unreadable"])
    path.chmod(0o600)
    assert import_from(store, "jsonl", path.parent).sessions == 1
    assert len(all_sessions(store)) == 1


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff\n", "garbage_line"),
        (b"[1, 2]\n", "not_a_message"),
        (b'{"role": "user", "content": ' + b"[" * 300 + b"]" * 300 + b"}\n", "not_storable"),
        (b"", "empty_file"),
    ],
)
def test_file_without_messages_is_no_session(
    store: Store, tmp_path: Path, content: bytes, kind: str
) -> None:
    path = tmp_path / "trip.jsonl"
    path.write_bytes(content)
    report = import_from(store, "jsonl", path)
    assert (report.sessions, report.messages, report.skipped) == (0, 0, 0)
    assert kind in {problem.kind for problem in report.problems}
    assert all_sessions(store) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that fails while it is read")
def test_read_error_is_reported(store: Store) -> None:
    report = import_from(store, "jsonl", "/proc/self/mem")
    assert (report.sessions, [problem.kind for problem in report.problems]) == (0, ["unreadable"])


def test_conversation_on_one_line_is_imported(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "tuning.jsonl", [{"messages": TALK}])
    assert import_from(store, "jsonl", path).messages == 2


def test_linked_file_is_refused(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "outside.jsonl", TALK)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/linked.jsonl").symlink_to(tmp_path / "outside.jsonl")
    report = import_from(store, "jsonl", tmp_path / "in")
    assert report.sessions == 0
    assert [problem.kind for problem in report.problems] == ["symlink"]
