"""The memory: files that people can read, edit and move, and that two may write at once."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.errors import StoreError
from tertulia.gateway.memory_files import FileMemory, _file_name
from tertulia.testing.fixtures import run_in_threads

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def test_memory_is_read_again(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path)
    assert memory.read() == ""
    memory.remember("- Ana sails.\n", NOON)
    memory.remember("- Ben cooks.", NOON + timedelta(days=1))
    assert FileMemory(tmp_path).read() == (
        "# Memory\n"
        "\n<!-- 2026-03-04T12:00:00+00:00 -->\n- Ana sails.\n"
        "\n<!-- 2026-03-05T12:00:00+00:00 -->\n- Ben cooks.\n"
    )
    assert memory.path == tmp_path / "main" / "MEMORY.md"


def test_notes_have_one_file_for_each_day(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path)
    memory.note("one\n# two", NOON)
    memory.note("three", NOON + timedelta(minutes=5))
    memory.note("four", NOON + timedelta(days=1))
    told = (memory.folder / "2026-03-04.md").read_text()
    assert told == "# 2026-03-04\n\n- 12:00 one # two\n- 12:05 three\n"
    assert (memory.folder / "2026-03-05.md").exists()
    assert memory.read() == ""


def test_edits_of_people_are_kept(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path)
    memory.remember("a", NOON)
    memory.path.write_text("My own words.\n")
    memory.remember("b", NOON)
    assert memory.read().startswith("My own words.\n")
    assert memory.read().endswith("\nb\n")


def test_concurrent_writes_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for count in range(20):
            FileMemory(tmp_path).remember(f"entry {number}-{count} " + "x" * 2000, NOON)

    run_in_threads(*[partial(write, number) for number in range(6)])
    told = FileMemory(tmp_path).read()
    assert told.startswith("# Memory\n")
    assert told.count("# Memory") == 1
    for number in range(6):
        for count in range(20):
            assert f"\nentry {number}-{count} {'x' * 2000}\n" in told
    assert [path.name for path in (tmp_path / "main").iterdir()] == ["MEMORY.md"]


@given(st.text(min_size=1), st.text(min_size=1))
def test_folder_is_unique_for_the_agent_and_inside_the_root(one: str, other: str) -> None:
    names = _file_name(one), _file_name(other)
    assert (names[0] == names[1]) == (one == other)
    for name in names:
        assert name not in (".", "..")
        assert not {"/", "\\", "\0"} & {*name}


@given(st.text())
def test_any_text_can_be_stored(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = FileMemory(folder)
        memory.remember(text, NOON)
        memory.note(text, NOON)
        assert memory.read().startswith("# Memory\n")


@pytest.mark.skipif(os.name == "nt", reason="needs a file that is no folder in the way")
def test_unwritable_memory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "main").write_text("in the way")
    with pytest.raises(StoreError, match="could not be written") as caught:
        FileMemory(tmp_path).remember("a", NOON)
    assert caught.value.hint
