"""docs/cli.md is what the program says of itself."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tertulia.cli import failures, main
from tertulia.cli.reference import reference

PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), (
        "run: python -m tertulia.cli.reference > docs/cli.md"
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


def test_every_exit_code_is_there() -> None:
    for code, meaning in failures.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in reference()
