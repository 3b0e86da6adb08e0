"""`tertulia people`: who is known, and who may do what."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import Source
from tests.cli.conftest import CommandLine, Demo


def test_role_is_set_and_listed(cli: CommandLine, demo: Demo) -> None:
    assert cli.json("people", "role", "telegram:42", "owner")["role"] == "owner"
    assert [row["id"] for row in cli.json("people", "list", "--role", "owner")] == ["telegram:42"]
    assert "telegram:42" in cli("people", "list").stdout


def test_unknown_person_is_not_found(cli: CommandLine, demo: Demo) -> None:
    assert "telegram:nobody" in cli("people", "role", "telegram:nobody", "owner", expect=3).stderr
    assert "telegram:nobody" in cli("people", "memory", "telegram:nobody", expect=3).stderr
    assert cli.json("people", "memory", "telegram:42") == []


def test_memory_is_read_from_a_store_that_cannot_be_written(
    cli: CommandLine, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("tertulia.cli.locations.open_existing_store")
    assert cli.json("people", "memory", "telegram:42") == []


def test_stranger_is_let_in_by_code(cli: CommandLine, demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        code = str(store.people.request_pairing(Source("signal", "7", user_id="7")))
    assert cli.json("people", "approve", code)["role"] == "member"


def test_person_at_the_terminal_is_listed_as_the_owner(cli: CommandLine, demo: Demo) -> None:
    with tertulia.open(demo.path) as store, store.turn(Source.local(), "hello") as turn:
        turn.add_assistant("good day")
    (row,) = [line for line in cli("people", "list").stdout.splitlines() if "local:cli" in line]
    assert row.split()[1:6] == ["you,", "at", "the", "terminal", "owner"]


def test_one_is_shown_with_their_conversations(cli: CommandLine, demo: Demo) -> None:
    row = cli.json("people", "show", "telegram:42")
    assert row["id"] == "telegram:42"
    assert demo.new in row["session_ids"]
    shown = cli("people", "show", "telegram:42").stdout
    assert "Ana López" in shown
    assert demo.new in shown
    assert "telegram:nobody" in cli("people", "show", "telegram:nobody", expect=3).stderr
