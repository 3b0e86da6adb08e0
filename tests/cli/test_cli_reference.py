"""docs/cli.md is generated from the commands and complete."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import tertulia
from tertulia import Session, Source
from tertulia.cli import errors, main
from tertulia.cli.cli_reference import JSON_OUTPUT, reference
from tests.cli.conftest import CommandLine, Demo, background_process

SHOW = "sessions show"
PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), (
        "run: python -m tertulia.cli.cli_reference > docs/cli.md"
    )


def test_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = reference()
    monkeypatch.setenv("COLUMNS", "40")
    assert reference() == wide


def test_page_lists_every_command_and_option() -> None:
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


def test_page_lists_every_command_with_json() -> None:
    text = set()
    for name, command in main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        for leaf, leaf_command in {"": command, **inner}.items():
            if any("--json" in param.opts for param in leaf_command.params):
                text.add(f"{name} {leaf}".strip())
    assert set(JSON_OUTPUT) == text


# `platforms` and `mcp` need servers: test_platforms.py and test_mcp.py have their own tests.
@pytest.mark.parametrize(
    "command", [command for command in JSON_OUTPUT if not command.startswith(("platforms", "mcp"))]
)
def test_json_has_the_documented_fields(cli: CommandLine, demo: Demo, command: str) -> None:
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
        "people role": ["telegram:42", "owner"],
        "people memory": ["telegram:42"],
        "people show": ["telegram:42"],
        "ask": ["hello"],
        "schedules add": ["every 2h", "look"],
        "bench": ["--turns", "10"],
        "console": ["--print", "--config", "http.toml"],
    }
    if command.startswith("schedules") and command != "schedules add":
        number = str(cli.json("schedules", "add", "every 2h", "look")["id"])
        cli("schedules", "run", number)
        more[command] = [] if command == "schedules list" else [number]
    if command == "sessions redo":
        cli("sessions", "undo", demo.old)
    if command.startswith("import ") and command != "import archive":
        Path("one.jsonl").write_text('{"role": "user", "content": "hola"}\n', "utf-8")
    if command == "console":
        Path("http.toml").write_text("[http]\nenabled = true\n", "utf-8")
    if command == "pair approve":
        with tertulia.open(demo.path) as store:
            more[command] = [str(store.people.request_pairing(Source("signal", "7", user_id="7")))]
    if command == "people approve":
        with tertulia.open(demo.path) as store:
            more[command] = [str(store.people.request_pairing(Source("signal", "7", user_id="7")))]
    if command.startswith("deliveries"):
        with tertulia.open(demo.path) as store:
            store.outbox.put("hello", "telegram:42")
            (delivery,) = store.outbox.claim()
            store.outbox.failed(delivery, "it is gone", outcome="dead")
        more[command] = [] if command == "deliveries list" else [str(delivery.id)]
    if command in ("pair refuse", "people refuse"):
        with tertulia.open(demo.path) as store:
            store.people.request_pairing(Source("signal", "7", user_id="7"))
        more[command] = ["signal:7"]
    if command == "people memory":
        with tertulia.open(demo.path) as store:
            store.memories.add(Source("telegram", "42", user_id="42"), "Ana sails.")
    if command == "ps":
        with tertulia.open(demo.path) as store:
            store.processes.begin(background_process(store))
    if command == "people memory":
        with tertulia.open(demo.path) as store:
            store.memories.add(Source("telegram", "42", user_id="42"), "Ana sails.")
    if command == "import jsonl":
        cli("export", "--format", "jsonl", "--output", "a.jsonl")
        cli = CommandLine("new.db")
    more |= {f"import {kind}": ["."] for kind in ("hermes", "nanobot", "openclaw", "jsonl")}
    noun, _, verb = command.partition(" ")
    needs_id = noun == "sessions" and verb not in ("list", "search")
    session_id = demo.new if command == "sessions retry" else demo.old
    words = [*([session_id] if needs_id else []), *more.get(command, [])]
    if command == "import archive":
        cli("export", "--output", "a.zip")
        cli = CommandLine("new.db")
    given = cli.json(*command.split(), *words)
    if isinstance(given, list):
        given = given[0]
    shape = re.sub(
        r"\(.*?\)", "", JSON_OUTPUT[command].replace("as `sessions show`", JSON_OUTPUT[SHOW])
    )
    fields = set(re.findall(r"`(\w+)`", shape))
    if re.search(r"\bsessions?\b", re.sub(r"`.*?`", "", shape)):
        fields |= set(Session.__struct_fields__)
    assert set(given) == fields


def test_page_lists_every_exit_code() -> None:
    for code, meaning in errors.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in reference()
