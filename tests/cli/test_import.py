"""`tertulia import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Typed
from tests.transfer.foreign_folders import planted


@pytest.fixture
def fresh(tmp_path: Path) -> Typed:
    return Typed(str(tmp_path / "new.db"))


def test_people_are_told_what_came(fresh: Typed, tmp_path: Path) -> None:
    folder = str(planted("dmg_nanobot004_bom", tmp_path))
    told = fresh("import", "nanobot", folder).stdout
    assert told.startswith("Imported 5 sessions with 65 messages.\n1 problem:\n")
    assert "discord_1100000000000000020.jsonl:1 bom:" in told
    told = fresh("import", "nanobot", folder).stdout
    assert told.startswith("Imported 0 sessions with 0 messages.\n5 sessions had come before.\n")


def test_programs_get_the_report(fresh: Typed, tmp_path: Path) -> None:
    report = fresh.json("import", "hermes", str(planted("dmg_hermes001_invalid_utf8", tmp_path)))
    assert set(report) == {"sessions", "messages", "skipped", "problems"}
    assert (report["sessions"], report["messages"], report["skipped"]) == (5, 59, 0)
    assert {tuple(problem) for problem in report["problems"]} == {
        ("file", "line", "kind", "detail")
    }
    assert [problem["line"] for problem in report["problems"]] == [12, 2]
    assert len(fresh.json("sessions", "list")) == 5


def test_a_dry_run_makes_no_store(fresh: Typed, tmp_path: Path) -> None:
    folder = str(planted("hermes002_main", tmp_path))
    told = fresh("import", "hermes", folder, "--dry-run").stdout
    assert told == "Would import 15 sessions with 475 messages.\n"
    assert not (tmp_path / "new.db").exists()


def test_a_file_that_could_not_be_read_is_no_success(fresh: Typed, tmp_path: Path) -> None:
    folder = str(planted("dmg_hermes019_db_truncated", tmp_path))
    report = fresh.json("import", "hermes", folder, expect=1)
    assert "database_damaged" in {problem["kind"] for problem in report["problems"]}
    assert report["sessions"] == 11


def test_the_zone_of_times_without_one(fresh: Typed, tmp_path: Path) -> None:
    head = {"_type": "metadata", "key": "telegram:1", "created_at": "2026-03-01T10:00:00"}
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions/telegram_1.jsonl").write_text(json.dumps(head))
    fresh("import", "nanobot", str(tmp_path), "--zone", "Asia/Tokyo")
    (session,) = fresh.json("sessions", "list")
    assert session["created_at"] == "2026-03-01T01:00:00Z"


def test_a_folder_that_is_not_there(fresh: Typed) -> None:
    error = fresh.error("import", "openclaw", "nowhere", expect=3)
    assert error["code"] == "not_found"
