"""Which store a command opens, and every way in which that store can be wrong."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import apsw
import pytest

from tertulia import Store
from tertulia import open as open_store
from tertulia.cli import locations
from tertulia.install_command import upgrade_command
from tests.cli.conftest import CommandLine, Demo

COMMANDS_THAT_NEED_A_STORE = [
    ["sessions", "list"],
    ["sessions", "show", "x"],
    ["sessions", "search", "x"],
    ["sessions", "explain", "x"],
    ["sessions", "rename", "x", "y"],
    ["sessions", "fork", "x"],
    ["sessions", "resume", "x"],
    ["sessions", "delete", "x", "--yes"],
    ["usage"],
    ["store", "check"],
    ["store", "vacuum"],
    ["store", "backup", "copy.db"],
]


@pytest.mark.parametrize(
    "command", COMMANDS_THAT_NEED_A_STORE, ids=lambda words: " ".join(words[:2])
)
class TestNoStore:
    def test_missing_store_is_refused_and_not_created(
        self, tmp_path: Path, command: list[str]
    ) -> None:
        path = tmp_path / "none.db"
        error = CommandLine(str(path)).error(*command, expect=5)
        assert error["message"] == f"There is no store at {path}."
        assert error["hint"].endswith(f"tertulia --store {path} store migrate")
        assert not path.exists()

    def test_empty_file_stays_empty(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "empty.db"
        path.touch()
        assert "There is no store" in CommandLine(str(path)).error(*command, expect=5)["message"]
        assert path.stat().st_size == 0

    def test_file_that_is_no_store_is_refused(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("Dear diary, " * 500)
        assert CommandLine(str(path)).error(*command, expect=5)["code"] == "not_a_store"
        assert path.read_text() == "Dear diary, " * 500


class TestWrongStores:
    @pytest.mark.parametrize("command", [["store", "check"], ["store", "migrate"]])
    def test_database_of_another_program_is_refused(
        self, tmp_path: Path, command: list[str]
    ) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table notes (text)")
        connection.close()
        before = path.read_bytes()
        error = CommandLine(str(path)).error(*command, expect=5)
        assert error["code"] == "not_a_store"
        assert "another program" in error["message"]
        assert path.read_bytes() == before

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    def test_newer_store_is_refused(self, demo: Demo, command: list[str]) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("insert into migrations values ('9999_later', '')")
        connection.close()
        error = CommandLine(demo.path).error(*command, expect=5)
        assert error["code"] == "schema_mismatch"
        assert upgrade_command() in error["hint"]

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    def test_folder_is_refused(self, tmp_path: Path, command: list[str]) -> None:
        assert "is a folder" in CommandLine(str(tmp_path)).error(*command, expect=5)["message"]

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    @pytest.mark.parametrize("where", ["", "redis://x"])
    def test_invalid_store_location_is_refused(self, where: str, command: list[str]) -> None:
        assert CommandLine(where).error(*command, expect=2)["code"] == "config"

    def test_locked_store_is_reported(self, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(locations, "_BUSY_SECONDS", 0.1)
        connection = apsw.Connection(demo.path)
        connection.execute("begin immediate")
        try:
            error = CommandLine(demo.path).error("sessions", "rename", demo.new, "x", expect=5)
            assert CommandLine(demo.path).json("sessions", "list")
        finally:
            connection.close()
        assert error["code"] == "store_unavailable"
        assert "another program" in error["message"]


def test_store_option_variable_and_default(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option nearest to the command, then the others, then the variable, then the default."""
    none = str(tmp_path / "none.db")
    cli = CommandLine(None)
    assert "home" in cli("sessions", "list", expect=5).stderr
    monkeypatch.setenv("TERTULIA_STORE", demo.path)
    assert cli.json("sessions", "list")
    monkeypatch.setenv("TERTULIA_STORE", none)
    assert cli.json("--store", demo.path, "sessions", "list")
    assert cli.json("sessions", "--store", demo.path, "list")
    assert cli.json("sessions", "list", "--store", demo.path)
    assert cli.json("--store", none, "sessions", "list", "--store", f"sqlite:///{demo.path}")
    cli("--store", demo.path, "sessions", "list", "--store", none, expect=5)


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "list"],
        ["sessions", "show", "last"],
        ["sessions", "search", "Lisboa"],
        ["sessions", "explain", "last"],
        ["usage"],
        ["people", "list"],
        ["pair", "list"],
        ["schedules", "list"],
        ["platforms", "list"],
        ["mcp", "list"],
        ["store", "check"],
        ["store", "backup", "elsewhere.db"],
    ],
)
def test_store_that_cannot_be_written_can_be_read(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Root may write everything, so the rights of the file alone would not show it."""
    folder = tmp_path / "medium"
    folder.mkdir()
    with open_store(demo.path) as store:
        store.backup(str(folder / "copy.db"))
    before = (folder / "copy.db").read_bytes()
    (folder / "copy.db").chmod(0o400)
    folder.chmod(0o500)
    monkeypatch.setattr(locations, "may_write", lambda path: not path.startswith(str(folder)))
    monkeypatch.setattr(
        locations, "open_store", lambda place, *args: _open_elsewhere(folder, place)
    )
    monkeypatch.chdir(tmp_path)
    try:
        text = CommandLine(str(folder / "copy.db"))(*command).stdout
        assert text
        assert "tertulia-" not in text  # the private copy is nobody's business
        assert [path.name for path in folder.iterdir()] == ["copy.db"]
        assert (folder / "copy.db").read_bytes() == before
    finally:
        folder.chmod(0o700)


def _open_elsewhere(folder: Path, place: str) -> Store:
    assert not place.startswith(str(folder)), "SQLite would write beside the store"
    return open_store(place)


def test_rights_decide_whether_a_store_is_written(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    path.touch()
    assert locations.may_write(str(path))
    assert not locations.may_write(str(tmp_path / "missing/talk.db"))
