"""`tertulia export`, `sessions export` and `import archive`, as they are typed."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tertulia
from tertulia.cli import main
from tests.transfer.filled_stores import ANA, BEN, opened, parts, talk


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERTULIA_STORE", "COLUMNS", "FORCE_COLOR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    """A store `talk.db` with two sessions."""
    with opened(tmp_path / "talk.db") as store:
        return [talk(store, source, "call 202 555 0177") for source in (ANA, BEN)]


def typed(*words: str, expect: int = 0, store: str = "talk.db") -> Result:
    result = CliRunner().invoke(main, ["--store", store, *words])
    assert result.exit_code == expect, f"{result.output}\n{result.exception!r}"
    return result


def typed_json(*words: str, store: str = "talk.db") -> Any:
    return json.loads(typed(*words, "--json", store=store).stdout)


def error(*words: str, expect: int, store: str = "talk.db") -> str:
    told = typed(*words, expect=expect, store=store).stderr
    assert told.startswith("error: ")
    assert "Traceback" not in told
    return told


@pytest.mark.usefixtures("ids")
class TestArchive:
    def test_archive_command_restores_the_store(self, tmp_path: Path) -> None:
        told = typed("export", "--output", "a.zip").stdout
        assert told == "2 sessions with 8 messages written to a.zip.\n"
        assert stat.S_IMODE(os.stat("a.zip").st_mode) == 0o600
        told = typed("import", "archive", "a.zip", store="new.db").stdout
        moment = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
        counts = "2 sessions with 8 messages"
        assert re.fullmatch(f"Restored {counts}, as of {moment}, to new.db.\n", told)
        assert stat.S_IMODE(os.stat("new.db").st_mode) == 0o600
        typed("export", "--output", "b.zip", store="new.db")
        assert parts(tmp_path / "a.zip") == parts(tmp_path / "b.zip")
        assert typed_json("sessions", "list") == typed_json("sessions", "list", store="new.db")

    def test_json_output_of_the_archive_command(self) -> None:
        assert typed_json("export", "--output", "a.zip") == {
            "form": "archive",
            "path": "a.zip",
            "sessions": 2,
            "messages": 8,
        }
        told = typed_json("import", "archive", "a.zip", store="new.db")
        assert {**told, "made_at": None} == {
            "sessions": 2,
            "messages": 8,
            "skipped": 0,
            "problems": [],
            "dry_run": False,
            "made_at": None,
        }

    def test_dry_run_creates_no_store(self) -> None:
        typed("export", "--output", "a.zip")
        told = typed("import", "archive", "a.zip", "--dry-run", store="new.db").stdout
        assert told.startswith("a.zip is complete: 2 sessions with 8 messages")
        assert not os.path.exists("new.db")

    def test_restore_into_a_used_store_is_refused(self) -> None:
        typed("export", "--output", "a.zip")
        before = typed_json("sessions", "list")
        told = error("import", "archive", "a.zip", expect=4)
        assert "holds conversations" in told
        assert "error" in error("import", "archive", "a.zip", "--dry-run", expect=4)
        assert typed_json("sessions", "list") == before

    def test_damaged_archive_is_refused_with_its_place(self, tmp_path: Path) -> None:
        typed("export", "--output", "a.zip")
        whole = (tmp_path / "a.zip").read_bytes()
        (tmp_path / "cut.zip").write_bytes(whole[:500])
        (tmp_path / "text.zip").write_bytes(b"hello")
        told = error("import", "archive", "cut.zip", expect=5, store="new.db")
        assert "cut.zip is damaged: its end is missing" in told
        told = error("import", "archive", "text.zip", expect=5, store="new.db")
        assert "text.zip is not a Tertulia archive" in told
        error("import", "archive", "nothing.zip", expect=3, store="new.db")
        assert not os.path.exists("new.db")

    def test_contradictory_options_are_refused(self) -> None:
        typed("export", "--output", "a.zip")
        assert "exists already" in error("export", "--output", "a.zip", expect=2)
        typed("export", "--output", "a.zip", "--force")
        assert "whole store" in error(
            "export", "--platform", "telegram", "--output", "b.zip", expect=2
        )
        assert "real ids" in error("export", "--redact", "--output", "b.zip", expect=2)
        assert "--output" in error("export", expect=2)
        error("export", "--output", "c.zip", expect=5, store="missing.db")
        assert sorted(name for name in os.listdir() if name.endswith("zip")) == ["a.zip"]


class TestFolder:
    def test_selected_sessions_are_exported_as_pages(self, ids: list[str]) -> None:
        told = typed_json(
            "export", "--format", "html", "--platform", "telegram", "--output", "pages"
        )
        assert told == {"form": "html", "path": "pages", "sessions": 1, "messages": 4}
        assert set(os.listdir("pages")) == {"index.html", f"{ids[0]}.html"}

    def test_named_sessions_are_exported_redacted(self, ids: list[str]) -> None:
        typed("export", ids[0], "--format", "jsonl", "--redact", "--output", "out")
        assert os.listdir("out") == [f"{ids[0]}.jsonl"]
        text = Path("out", f"{ids[0]}.jsonl").read_text("utf-8")
        assert "555 0177" not in text
        assert len(text.splitlines()) == 4

    def test_unknown_session_is_an_error(self, ids: list[str]) -> None:
        told = error("export", ids[0], "nobody", "--format", "html", "--output", "out", expect=3)
        assert "nobody" in told
        assert not os.path.exists("out")

    @pytest.mark.usefixtures("ids")
    def test_recently_active_sessions_are_selected(self) -> None:
        words = ("export", "--format", "nanobot", "--active-minutes", "5", "--output", "out")
        assert typed_json(*words)["sessions"] == 0  # their clock stands at another time


class TestOneSession:
    @pytest.mark.parametrize("form", ["jsonl", "json", "nanobot", "markdown", "html"])
    def test_session_is_printed_or_written_to_a_file(self, ids: list[str], form: str) -> None:
        shown = typed("sessions", "export", ids[0], "--format", form).stdout
        assert "202 555 0177" in shown
        told = typed("sessions", "export", ids[0], "--format", form, "--output", "x").stderr
        assert told == "4 messages written to x\n"
        assert Path("x").read_text("utf-8") == shown

    def test_redacted_session_has_no_ids(self, ids: list[str]) -> None:
        shown = typed("sessions", "export", ids[0], "--format", "markdown", "--redact").stdout
        assert "555 0177" not in shown
        assert "real ids" in error(
            "sessions", "export", ids[0], "--format", "nanobot", "--redact", expect=2
        )

    def test_failed_export_keeps_the_old_file(self, ids: list[str]) -> None:
        Path("x").write_text("mine")
        error("sessions", "export", "nobody", "--output", "x", "--force", expect=3)
        assert Path("x").read_text() == "mine"
        assert not [name for name in os.listdir() if name.startswith(".tertulia")]


def test_archive_names_the_version_that_made_it(ids: list[str]) -> None:
    typed("export", "--output", "a.zip")
    assert json.loads(parts(Path("a.zip"))["manifest.json"])["made_by"].endswith(
        tertulia.__version__
    )
