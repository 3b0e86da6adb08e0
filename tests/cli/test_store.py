"""`tertulia store`, and every way in which a store can be wrong."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import apsw
import pytest
from rich.status import Status

import tertulia
from tertulia.cli import (
    locations,
    output,
)
from tests.cli.conftest import Demo, Typed


class TestMigrate:
    def test_makes_a_store_for_this_user_only(self, tmp_path: Path) -> None:
        typed = Typed(str(tmp_path / "new.db"))
        told = typed("store", "migrate").stdout
        assert told == f"Made a new store at {tmp_path / 'new.db'}.\n"
        assert stat.S_IMODE((tmp_path / "new.db").stat().st_mode) == 0o600

    def test_says_what_was_applied(self, tmp_path: Path) -> None:
        path = str(tmp_path / "new.db")
        first = Typed(path).json("store", "migrate")
        assert (first["store"], first["created"]) == (path, True)
        assert first["applied"][0] == "0001_store"
        again = Typed(path).json("store", "migrate")
        assert again == {"store": path, "created": False, "applied": []}

    def test_says_that_nothing_was_needed(self, typed: Typed, demo: Demo) -> None:
        told = typed("store", "migrate").stdout
        assert told == f"{demo.path} is up to date; nothing was needed.\n"

    def test_an_empty_database_becomes_a_store(self, tmp_path: Path) -> None:
        path = str(tmp_path / "empty.db")
        with sqlite3.connect(path) as connection:
            connection.execute("vacuum")
        connection.close()
        assert "0001_store" in Typed(path)("store", "migrate").stdout

    def test_the_default_place_is_made_on_demand(self, tmp_path: Path) -> None:
        Typed(None)("store", "migrate")
        path = Path(locations.default_path())
        assert path.is_relative_to(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert Typed(None).json("sessions", "list") == []


class TestCheck:
    def test_a_sound_store(self, typed: Typed, demo: Demo) -> None:
        assert typed("store", "check").stdout == f"{demo.path} is sound.\n"
        told = typed.json("store", "check")
        assert told == {"store": demo.path, "sound": True, "faults": []}

    def test_each_fault_is_listed(self, typed: Typed, demo: Demo) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("update sessions set revision = 99, last_seq = last_seq - 1")
        connection.close()
        lines = typed("store", "check", expect=1).stdout.splitlines()
        assert "faults:" in lines[0]
        assert all(line.startswith("  ✗ ") for line in lines[1:])
        assert demo.old in lines[1]
        told = typed.json("store", "check", expect=1)
        assert told["sound"] is False
        assert len(told["faults"]) == len(lines) - 1

    def test_the_search_index_is_made_anew(self, typed: Typed, demo: Demo) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("insert into words (words) values ('delete-all')")
        connection.close()
        assert typed.json("sessions", "search", "soleado") == []
        typed("store", "check", "--rebuild-search")
        assert len(typed.json("sessions", "search", "soleado")) == 1

    def test_a_damaged_store(self, typed: Typed, demo: Demo) -> None:
        with open(demo.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 20)
        error = typed.error("store", "check", expect=5)
        assert error["code"] == "store_corrupt"
        assert "store check" not in error["hint"]


class TestBackup:
    def test_the_copy_is_a_store(self, typed: Typed, demo: Demo, tmp_path: Path) -> None:
        target = str(tmp_path / "copy.db")
        told = typed("store", "backup", target).stdout
        assert told.startswith(f"{demo.path} is copied to {target} (")
        assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
        assert len(Typed(target).json("sessions", "list")) == 3

    def test_for_programs(self, typed: Typed, demo: Demo) -> None:
        told = typed.json("store", "backup", "copy.db")
        size = os.path.getsize("copy.db")
        assert told == {"store": demo.path, "backup": "copy.db", "bytes": size}

    def test_no_file_is_replaced(self, typed: Typed) -> None:
        Path("copy.db").write_text("mine")
        error = typed.error("store", "backup", "copy.db", expect=2)
        assert error["message"] == "copy.db exists already."
        assert Path("copy.db").read_text() == "mine"

    def test_into_a_folder_that_is_not_there(self, typed: Typed) -> None:
        assert typed.error("store", "backup", "no/copy.db", expect=2)["code"] == "config"


class TestProgress:
    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if a terminal was there."""
        monkeypatch.setattr(output, "_is_watched", lambda: True)
        monkeypatch.setenv("FORCE_COLOR", "1")

    def test_people_see_that_something_goes_on(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_shown, start = threading.Event(), Status.start

        def shown(status: Status) -> None:
            start(status)
            is_shown.set()

        def slow(store: tertulia.Store) -> list[str]:
            if output._is_watched():
                assert is_shown.wait(60)
            return []

        monkeypatch.setattr(Status, "start", shown)
        monkeypatch.setattr(tertulia.Store, "check", slow)
        monkeypatch.setattr(output, "_NOTICEABLE_SECONDS", 0.01)
        assert typed("store", "check").stderr == ""
        self.watch(monkeypatch)
        done = typed("store", "check")
        assert "Checking …" in done.stderr
        assert "Checking" not in done.stdout

    def test_a_bar_for_the_copy(self, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
        assert typed("store", "backup", "one.db").stderr == ""
        self.watch(monkeypatch)
        done = typed("store", "backup", "two.db")
        assert "Copying" in done.stderr
        assert "100%" in done.stderr
        assert "Copying" not in done.stdout


class TestVacuum:
    def test_tells_what_it_saved(self, typed: Typed, demo: Demo) -> None:
        with tertulia.open(demo.path) as store:
            noise = os.urandom(200_000).hex()
            store.transcript(demo.new).append({"role": "user", "content": noise})
            store.sessions.delete(demo.new)
        told = typed("store", "vacuum").stdout
        assert " given back (" in told
        assert "had nothing to give back" in typed("store", "vacuum").stdout

    def test_for_programs(self, typed: Typed, demo: Demo) -> None:
        told = typed.json("store", "vacuum")
        assert told["bytes_after"] == os.path.getsize(demo.path)


READING = [
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


@pytest.mark.parametrize("command", READING, ids=lambda words: " ".join(words[:2]))
class TestNoStore:
    def test_a_store_that_is_not_there(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "none.db"
        error = Typed(str(path)).error(*command, expect=5)
        assert error["message"] == f"There is no store at {path}."
        assert error["hint"].endswith("tertulia store migrate")
        assert not path.exists()

    def test_an_empty_file_stays_empty(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "empty.db"
        path.touch()
        assert "There is no store" in Typed(str(path)).error(*command, expect=5)["message"]
        assert path.stat().st_size == 0

    def test_a_file_that_is_something_else(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("Dear diary, " * 500)
        assert Typed(str(path)).error(*command, expect=5)["code"] == "not_a_store"
        assert path.read_text() == "Dear diary, " * 500


class TestWrongStores:
    @pytest.mark.parametrize("command", [["store", "check"], ["store", "migrate"]])
    def test_the_database_of_another_program(self, tmp_path: Path, command: list[str]) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table notes (text)")
        connection.close()
        before = path.read_bytes()
        error = Typed(str(path)).error(*command, expect=5)
        assert error["code"] == "not_a_store"
        assert "another program" in error["message"]
        assert path.read_bytes() == before

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    def test_a_newer_store(self, demo: Demo, command: list[str]) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("insert into migrations values ('9999_later', '')")
        connection.close()
        error = Typed(demo.path).error(*command, expect=5)
        assert error["code"] == "schema_mismatch"
        assert "pip install --upgrade" in error["hint"]

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    def test_a_folder(self, tmp_path: Path, command: list[str]) -> None:
        assert "is a folder" in Typed(str(tmp_path)).error(*command, expect=5)["message"]

    @pytest.mark.parametrize("command", [["sessions", "list"], ["store", "migrate"]])
    @pytest.mark.parametrize("where", ["", "redis://x"])
    def test_a_place_that_is_none(self, where: str, command: list[str]) -> None:
        assert Typed(where).error(*command, expect=2)["code"] == "config"

    def test_a_locked_store(self, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(locations, "_BUSY_SECONDS", 0.1)
        connection = apsw.Connection(demo.path)
        connection.execute("begin immediate")
        try:
            error = Typed(demo.path).error("sessions", "rename", demo.new, "x", expect=5)
            assert Typed(demo.path).json("sessions", "list")
        finally:
            connection.close()
        assert error["code"] == "store_unavailable"
        assert "another program" in error["message"]


def test_where_the_store_is_named(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option nearest to the command, then the others, then the variable, then the default."""
    none = str(tmp_path / "none.db")
    typed = Typed(None)
    assert "home" in typed("sessions", "list", expect=5).stderr
    monkeypatch.setenv("TERTULIA_STORE", demo.path)
    assert typed.json("sessions", "list")
    monkeypatch.setenv("TERTULIA_STORE", none)
    assert typed.json("--store", demo.path, "sessions", "list")
    assert typed.json("sessions", "--store", demo.path, "list")
    assert typed.json("sessions", "list", "--store", demo.path)
    assert typed.json("--store", none, "sessions", "list", "--store", f"sqlite:///{demo.path}")
    typed("--store", demo.path, "sessions", "list", "--store", none, expect=5)
