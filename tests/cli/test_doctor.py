"""`tertulia doctor`: what it looks at, and what it advises."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import tertulia
from tertulia.cli import doctor
from tests.cli.conftest import Demo, Typed


def findings(typed: Typed, expect: int = 0) -> dict[str, dict[str, Any]]:
    told = typed.json("doctor", expect=expect)
    assert told["healthy"] is (expect == 0)
    return {finding["name"]: finding for finding in told["findings"]}


def test_a_healthy_store(typed: Typed, demo: Demo) -> None:
    os.chmod(demo.path, 0o600)
    found = findings(typed)
    assert {name for name, finding in found.items() if finding["state"] != "ok"} <= {"disk"}
    assert found["SQLite"]["detail"] == apsw.sqlite_lib_version()
    assert found["store"]["detail"] == demo.path
    assert found["time zone"]["detail"] == "UTC"
    assert found["schema"]["detail"].endswith("up to date")
    assert found["contents"]["detail"] == (
        "sessions 3 (current 2), messages 35, people 2, model calls 2"
    )
    assert found["search"]["detail"] == "up to date"
    assert found["integrity"]["detail"] == "no damage was found"


def test_what_did_not_arrive_is_told(typed: Typed, demo: Demo) -> None:
    assert findings(typed)["deliveries"]["detail"] == "nothing is left undelivered"
    with tertulia.open(demo.path) as store:
        for number in range(3):
            store.outbox.put("Hello", "telegram:42", delivery=str(number))
            (parcel,) = store.outbox.claim()
            store.outbox.failed(parcel, "no", outcome="unknown" if number else "dead")
    found = findings(typed)["deliveries"]
    assert (found["state"], found["detail"]) == (
        "warning", "1 refused or given up, 2 perhaps not arrived",
    )  # fmt: skip
    assert "/deliveries" in found["advice"]


def test_people_see_a_line_for_each(typed: Typed) -> None:
    told = typed("doctor").stdout
    names = findings(typed)
    assert all(f"✓  {name} " in told or f"!  {name} " in told for name in names)


def test_nothing_is_changed(typed: Typed, demo: Demo) -> None:
    before = Path(demo.path).read_bytes()
    typed("doctor")
    assert Path(demo.path).read_bytes() == before


def test_no_store_is_a_warning(tmp_path: Path) -> None:
    found = findings(Typed(str(tmp_path / "none" / "talk.db")))
    assert found["store"]["state"] == "warning"
    assert found["store"]["advice"] == "Make it with: tertulia store migrate"
    assert "disk" in found
    assert not (tmp_path / "none").exists()


def test_files_of_others_are_problems(tmp_path: Path, demo: Demo) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("Dear diary, " * 500)
    assert "no Tertulia store" in findings(Typed(str(text)), expect=1)["schema"]["detail"]
    connection = apsw.Connection(demo.path)
    connection.execute("pragma application_id = 7")
    connection.close()
    assert "another program" in findings(Typed(demo.path), expect=1)["schema"]["detail"]


def test_a_place_that_is_none_is_a_problem(tmp_path: Path) -> None:
    assert findings(Typed("postgresql://host/talk"), expect=1)["store"]["state"] == "problem"
    assert findings(Typed(str(tmp_path)), expect=1)["store"]["state"] == "problem"
    assert findings(Typed(""), expect=1)["store"]["state"] == "problem"


def test_damage_is_a_problem(typed: Typed, demo: Demo) -> None:
    connection = apsw.Connection(demo.path)
    query = "select rootpage from sqlite_schema where name = 'sessions_ended'"
    root = int(str(connection.execute(query).fetchall()[0][0]))
    connection.close()
    with open(demo.path, "r+b") as file:
        file.seek(4096 * (root - 1))
        file.write(b"\xff" * 4096)
    found = findings(typed, expect=1)["integrity"]
    assert found["state"] == "problem"
    assert "store check" in found["advice"]


def test_a_store_that_is_too_old(typed: Typed, demo: Demo) -> None:
    connection = apsw.Connection(demo.path)
    connection.execute("delete from migrations")
    connection.close()
    found = findings(typed)
    assert found["schema"]["state"] == "warning"
    assert found["schema"]["advice"].endswith("tertulia store migrate")
    assert "contents" not in found


def test_an_index_that_stays_behind(
    typed: Typed, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = apsw.Connection(demo.path)
    connection.execute(
        "insert into unindexed select ref from sessions; update sessions set indexed_seq = 0"
    )
    connection.close()
    assert findings(typed)["search"]["detail"] == "35 messages behind, to be caught up"
    monkeypatch.setattr(doctor, "_LAG", 30)
    assert findings(typed)["search"]["state"] == "warning"


def test_a_file_that_others_may_read(typed: Typed, demo: Demo) -> None:
    os.chmod(demo.path, 0o644)
    assert findings(typed)["access"]["advice"].endswith(f"chmod 600 {demo.path}")


def test_a_file_that_may_not_be_written(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, right: right != os.W_OK)
    found = findings(typed, expect=1)
    assert found["access"]["detail"] == "the file is not writable"
    assert found["folder"]["state"] == "problem"


class _Disk(NamedTuple):
    free: int


@pytest.mark.parametrize(
    ("free", "state"), [(5_000_000_000, "ok"), (500_000_000, "warning"), (5_000_000, "problem")]
)
def test_space(typed: Typed, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Disk(free))
    assert findings(typed, expect=int(state == "problem"))["disk"]["state"] == state


def test_no_price_list(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    found = findings(typed)["prices"]
    assert found["state"] == "warning"
    assert "tertulia[prices]" in found["advice"]


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.1", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.54.1", False),
    ],
)
def test_the_bug_of_the_write_ahead_log(version: str, has_bug: bool) -> None:
    assert doctor.has_wal_reset_bug(version) is has_bug


def test_the_bug_is_a_warning(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert findings(typed)["SQLite"]["state"] == "warning"
