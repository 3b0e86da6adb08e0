"""`tertulia store`: migrate, check, backup and vacuum."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import apsw

import tertulia
from tertulia.cli import locations
from tests.cli.conftest import CommandLine, Demo


def test_move_of_a_missing_store_names_its_own_arguments(cli: CommandLine) -> None:
    error = cli.error("store", "move", "none.db", "new.db", expect=5)
    assert error["message"] == "There is no store at none.db."
    assert "--store" not in error["hint"]


class TestMigrate:
    def test_migrate_creates_a_private_store(self, tmp_path: Path) -> None:
        cli = CommandLine(str(tmp_path / "new.db"))
        text = cli("store", "migrate").stdout
        assert text == f"Created a new store at {tmp_path / 'new.db'}.\n"
        assert stat.S_IMODE((tmp_path / "new.db").stat().st_mode) == 0o600

    def test_migrate_lists_applied_migrations(self, tmp_path: Path) -> None:
        path = str(tmp_path / "new.db")
        first = CommandLine(path).json("store", "migrate")
        assert (first["store"], first["created"]) == (path, True)
        assert first["applied"][0] == "0001_store"
        again = CommandLine(path).json("store", "migrate")
        assert again == {"store": path, "created": False, "applied": []}

    def test_migrate_of_a_current_store_changes_nothing(self, cli: CommandLine, demo: Demo) -> None:
        text = cli("store", "migrate").stdout
        assert text == f"{demo.path} is up to date; nothing was changed.\n"

    def test_empty_database_becomes_a_store(self, tmp_path: Path) -> None:
        path = str(tmp_path / "empty.db")
        with sqlite3.connect(path) as connection:
            connection.execute("vacuum")
        connection.close()
        assert "0001_store" in CommandLine(path)("store", "migrate").stdout

    def test_default_store_is_created_privately(self, tmp_path: Path) -> None:
        CommandLine(None)("store", "migrate")
        path = Path(locations.default_store_path())
        assert path.is_relative_to(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert CommandLine(None).json("sessions", "list") == []


class TestCheck:
    def test_store_without_faults(self, cli: CommandLine, demo: Demo) -> None:
        assert cli("store", "check").stdout == f"{demo.path} has no faults.\n"
        text = cli.json("store", "check")
        assert text == {"store": demo.path, "sound": True, "faults": []}

    def test_each_fault_is_listed(self, cli: CommandLine, demo: Demo) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("update sessions set revision = 99, last_seq = last_seq - 1")
        connection.close()
        lines = cli("store", "check", expect=1).stdout.splitlines()
        assert "faults:" in lines[0]
        assert all(line.startswith("  ✗ ") for line in lines[1:])
        assert demo.old in lines[1]
        text = cli.json("store", "check", expect=1)
        assert text["sound"] is False
        assert len(text["faults"]) == len(lines) - 1

    def test_rebuild_search(self, cli: CommandLine, demo: Demo) -> None:
        connection = apsw.Connection(demo.path)
        connection.execute("insert into words (words) values ('delete-all')")
        connection.close()
        assert cli.json("sessions", "search", "soleado") == []
        cli("store", "check", "--rebuild-search")
        assert len(cli.json("sessions", "search", "soleado")) == 1

    def test_damaged_store_is_reported(self, cli: CommandLine, demo: Demo) -> None:
        with open(demo.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 20)
        error = cli.error("store", "check", expect=5)
        assert error["code"] == "store_corrupt"
        assert "store check" not in error["hint"]


class TestBackup:
    def test_backup_is_a_store(self, cli: CommandLine, demo: Demo, tmp_path: Path) -> None:
        target = str(tmp_path / "copy.db")
        text = cli("store", "backup", target).stdout
        assert text.startswith(f"{demo.path} was copied to {target} (")
        assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
        assert len(CommandLine(target).json("sessions", "list")) == 3

    def test_json(self, cli: CommandLine, demo: Demo) -> None:
        text = cli.json("store", "backup", "copy.db")
        size = os.path.getsize("copy.db")
        assert text == {"store": demo.path, "backup": "copy.db", "bytes": size}

    def test_backup_never_replaces_a_file(self, cli: CommandLine) -> None:
        Path("copy.db").write_text("mine")
        error = cli.error("store", "backup", "copy.db", expect=2)
        assert error["message"] == "copy.db exists already."
        assert Path("copy.db").read_text() == "mine"

    def test_backup_into_a_missing_folder_is_refused(self, cli: CommandLine) -> None:
        assert cli.error("store", "backup", "no/copy.db", expect=2)["code"] == "config"


class TestVacuum:
    def test_vacuum_prints_the_freed_space(self, cli: CommandLine, demo: Demo) -> None:
        with tertulia.open(demo.path) as store:
            noise = os.urandom(200_000).hex()
            store.transcript(demo.new).append({"role": "user", "content": noise})
            store.sessions.delete(demo.new)
        text = cli("store", "vacuum").stdout
        assert " freed (" in text
        assert "had no unused space" in cli("store", "vacuum").stdout

    def test_json(self, cli: CommandLine, demo: Demo) -> None:
        text = cli.json("store", "vacuum")
        assert text["bytes_after"] == os.path.getsize(demo.path)
