"""`tertulia export`: archives, folders of sessions and their filters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, Demo


def test_archive_is_restored_into_a_new_store(cli: CommandLine) -> None:
    assert cli("export", "--output", "a.zip").stdout == (
        "3 sessions with 35 messages written to a.zip.\n"
    )
    restored = CommandLine("new.db")
    answer = restored("import", "archive", "a.zip").stdout
    assert answer.startswith("Restored 3 sessions with 35 messages, as of ")
    assert answer.endswith(" UTC, to new.db.\n")
    assert restored.json("sessions", "list") == cli.json("sessions", "list")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--platform", "telegram"], ["new", "old"]),
        (["--person", "telegram:42"], ["new", "old"]),
        (["--state", "ended"], ["old"]),
        (["--active-minutes", "1440"], ["hostile", "new"]),
        (["--active-minutes", "9" * 30], ["hostile", "new", "old"]),
    ],
)
def test_filters_select_sessions(
    cli: CommandLine, demo: Demo, words: list[str], names: list[str]
) -> None:
    result = cli.json("export", "--format", "jsonl", "--output", "out", *words)
    assert result["sessions"] == len(names)
    assert set(os.listdir("out")) == {f"{getattr(demo, name)}.jsonl" for name in names}


def test_sessions_are_named_as_in_other_commands(cli: CommandLine, demo: Demo) -> None:
    cli("sessions", "rename", demo.old, "The garden")
    cli("export", "last", "garden", "--format", "jsonl", "--output", "out")
    newest = cli.json("sessions", "list", "--limit", "1")[0]["id"]
    assert set(os.listdir("out")) == {f"{newest}.jsonl", f"{demo.old}.jsonl"}


def test_existing_file_is_replaced_only_with_force(cli: CommandLine) -> None:
    Path("a.zip").write_text("mine")
    assert "exists already" in cli.error("export", "--output", "a.zip", expect=2)["message"]
    assert Path("a.zip").read_text() == "mine"
    cli("export", "--output", "a.zip", "--force")
    assert Path("a.zip").read_bytes().startswith(b"PK")
