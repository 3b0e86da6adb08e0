"""`tertulia import`: counts, problems, dry runs and archives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.transfer.foreign_folders import planted


@pytest.fixture
def empty_store_cli(tmp_path: Path) -> CommandLine:
    return CommandLine(str(tmp_path / "new.db"))


def test_import_prints_counts_and_problems(empty_store_cli: CommandLine, tmp_path: Path) -> None:
    folder = str(planted("dmg_nanobot004_bom", tmp_path))
    text = empty_store_cli("import", "nanobot", folder).stdout
    assert text.startswith("Imported 5 sessions with 65 messages.\n1 problem:\n")
    assert "discord_1100000000000000020.jsonl:1 bom:" in text
    text = empty_store_cli("import", "nanobot", folder).stdout
    assert text.startswith(
        "Imported 0 sessions with 0 messages.\n5 sessions were imported before.\n"
    )


def test_import_json_is_the_report(empty_store_cli: CommandLine, tmp_path: Path) -> None:
    report = empty_store_cli.json(
        "import", "hermes", str(planted("dmg_hermes001_invalid_utf8", tmp_path))
    )
    assert set(report) == {"sessions", "messages", "skipped", "problems"}
    assert (report["sessions"], report["messages"], report["skipped"]) == (5, 59, 0)
    assert {tuple(problem) for problem in report["problems"]} == {
        ("file", "line", "kind", "detail")
    }
    assert [problem["line"] for problem in report["problems"]] == [12, 2]
    assert len(empty_store_cli.json("sessions", "list")) == 5


def test_dry_run_creates_no_store(empty_store_cli: CommandLine, tmp_path: Path) -> None:
    folder = str(planted("hermes002_main", tmp_path))
    text = empty_store_cli("import", "hermes", folder, "--dry-run").stdout
    assert text == "Would import 15 sessions with 475 messages.\n"
    assert not (tmp_path / "new.db").exists()


@pytest.mark.check
def test_unreadable_file_exits_with_1(empty_store_cli: CommandLine, tmp_path: Path) -> None:
    folder = str(planted("dmg_hermes019_db_truncated", tmp_path))
    report = empty_store_cli.json("import", "hermes", folder, expect=1)
    assert "database_damaged" in {problem["kind"] for problem in report["problems"]}
    assert report["sessions"] == 11


def test_file_without_messages_creates_nothing(
    empty_store_cli: CommandLine, tmp_path: Path
) -> None:
    picture = tmp_path / "beach.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    text = empty_store_cli("import", "jsonl", str(picture), expect=1).stdout
    assert text.startswith("Imported 0 sessions with 0 messages.\n")
    assert "beach.png:1 garbage_line" in text
    assert not (tmp_path / "new.db").exists()
    empty_store_cli("store", "migrate")
    empty_store_cli("import", "jsonl", str(picture), expect=1)
    assert empty_store_cli.json("sessions", "list") == []


def test_zone_option_applies_to_naive_times(empty_store_cli: CommandLine, tmp_path: Path) -> None:
    head = {"_type": "metadata", "key": "telegram:1", "created_at": "2026-03-01T10:00:00"}
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions/telegram_1.jsonl").write_text(json.dumps(head))
    empty_store_cli("import", "nanobot", str(tmp_path), "--zone", "Asia/Tokyo")
    (session,) = empty_store_cli.json("sessions", "list")
    assert session["created_at"] == "2026-03-01T01:00:00Z"


def test_missing_folder_is_not_found(empty_store_cli: CommandLine) -> None:
    error = empty_store_cli.error("import", "openclaw", "nowhere", expect=3)
    assert error["code"] == "not_found"


def test_missing_file_is_not_called_a_folder(empty_store_cli: CommandLine) -> None:
    error = empty_store_cli.error("import", "jsonl", "nowhere.jsonl", expect=3)
    assert "no file or folder nowhere.jsonl" in error["message"]
    assert ".jsonl files" in error["hint"]


@pytest.mark.parametrize("level", ["above", "below"])
def test_folder_one_level_off_is_found(tmp_path: Path, level: str) -> None:
    home = planted("hermes002_main", tmp_path)
    outer = tmp_path / "outer"
    outer.mkdir()
    home = home.rename(outer / "home")
    wrong = outer if level == "above" else home / "notes"
    (home / "notes").mkdir(exist_ok=True)
    cli = CommandLine(str(tmp_path / "new.db"))
    for _ in range(2):  # without a store, and with one
        text = cli("import", "hermes", str(wrong)).stdout
        assert "15 sessions" in text


def test_folder_beside_an_empty_one_is_not_read(
    empty_store_cli: CommandLine, tmp_path: Path
) -> None:
    """It may be of another program, or of somebody else."""
    (tmp_path / "other/sessions").mkdir(parents=True)
    (tmp_path / "other/sessions/secret.jsonl").write_text('{"role": "user", "content": "hello"}\n')
    (tmp_path / "empty").mkdir()
    empty_store_cli("store", "migrate")
    error = empty_store_cli.error("import", "nanobot", str(tmp_path / "empty"), expect=3)
    assert "no sessions of nanobot" in error["message"]
    assert empty_store_cli.json("sessions", "list") == []


@pytest.mark.parametrize("kind", ["hermes", "nanobot", "openclaw"])
def test_loose_files_above_an_empty_folder_are_not_imported(
    empty_store_cli: CommandLine, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "downloads/empty").mkdir(parents=True)
    (tmp_path / "downloads/other.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    empty_store_cli.error("import", kind, str(tmp_path / "downloads/empty"), expect=3)


def test_import_of_nothing_says_what_it_looked_for(
    empty_store_cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "nothing/inside").mkdir(parents=True)
    error = empty_store_cli.error("import", "hermes", str(tmp_path / "nothing/inside"), expect=3)
    assert "state.db" in error["message"]
    assert not (tmp_path / "new.db").exists()
    empty_store_cli("store", "migrate")
    empty_store_cli.error("import", "openclaw", str(tmp_path / "nothing/inside"), expect=3)
