"""docs/cli.md is what the program says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import tertulia
from tertulia import Session, Source
from tertulia.cli import (
    errors,
    main,
)
from tertulia.cli.cli_reference import (
    SHAPES,
    reference,
)
from tests.cli.conftest import Demo, Typed
from tests.transfer.filled_stores import program

SHOW = "sessions show"
PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), (
        "run: python -m tertulia.cli.cli_reference > docs/cli.md"
    )


def test_it_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = reference()
    monkeypatch.setenv("COLUMNS", "40")
    assert reference() == wide


def test_every_command_and_option_is_there() -> None:
    page = reference()
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")}
    everywhere = sections["Options of every command"]
    for name, command in main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        for leaf, found in inner.items():
            section = sections[f"tertulia {name} {leaf}".strip()]
            for param in found.params:
                if isinstance(param, click.Option):
                    assert any(opt in section + everywhere for opt in param.opts)


def test_what_programs_get_is_told_of_every_command_that_has_json() -> None:
    told = set()
    for name, command in main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        for leaf, found in inner.items():
            if any("--json" in param.opts for param in found.params):
                told.add(f"{name} {leaf}".strip())
    assert set(SHAPES) == told


@pytest.mark.parametrize("command", SHAPES)
def test_the_fields_are_the_ones_that_are_told(typed: Typed, demo: Demo, command: str) -> None:
    more = {
        "sessions rename": ["x"],
        "sessions search": ["message"],
        "sessions delete": ["--yes"],
        "store backup": ["copy.db"],
        "store move": [demo.path, "moved.db"],
        "export": ["--output", "a.zip"],
        "import archive": ["a.zip"],
        "config init": ["--config", "config.toml"],
        "pair revoke": ["telegram:42"],
        "schedules add": ["every 2h", "look"],
        "bench": ["--turns", "10"],
    }
    if command.startswith("schedules") and command != "schedules add":
        number = str(typed.json("schedules", "add", "every 2h", "look")["id"])
        typed("schedules", "run", number)
        more[command] = [] if command == "schedules list" else [number]
    if command == "pair approve":
        with tertulia.open(demo.path) as store:
            more[command] = [str(store.people.ask(Source("signal", "7", user_id="7")))]
    if command == "ps":
        with tertulia.open(demo.path) as store:
            store.processes.begin(program(store))
    more |= {f"import {kind}": ["."] for kind in ("hermes", "nanobot", "openclaw", "jsonl")}
    noun, _, verb = command.partition(" ")
    needs_id = noun == "sessions" and verb not in ("list", "search")
    words = [*([demo.old] if needs_id else []), *more.get(command, [])]
    if command == "import archive":
        typed("export", "--output", "a.zip")
        typed = Typed("new.db")
    given = typed.json(*command.split(), *words)
    if isinstance(given, list):
        given = given[0]
    shape = re.sub(r"\(.*?\)", "", SHAPES[command].replace("as `sessions show`", SHAPES[SHOW]))
    fields = set(re.findall(r"`(\w+)`", shape))
    if re.search(r"\bsessions?\b", re.sub(r"`.*?`", "", shape)):
        fields |= set(Session.__struct_fields__)
    assert set(given) == fields


def test_every_exit_code_is_there() -> None:
    for code, meaning in errors.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in reference()
