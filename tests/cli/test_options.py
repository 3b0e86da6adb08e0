"""The options that all commands share."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tertulia.cli.options import (
    TEXT,
    CommandGroup,
    CommandOptions,
    json_option,
    program_name,
    session_filters,
    with_program_name,
)


@click.group(cls=CommandGroup)
def group() -> None:
    """Group."""


@group.command()
@click.argument("word", type=TEXT, default="")
@json_option
@click.pass_obj
def command(options: CommandOptions, word: str) -> None:
    """Print the options. This sentence is not part of the short help."""
    click.echo(f"{options.store} {options.config} {options.json} {options.no_color} {word!a}")


def invoke(*args: str) -> str:
    result = CliRunner().invoke(group, list(args), obj=CommandOptions())
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_options_are_accepted_before_and_after_the_command() -> None:
    expected = "x c True True ''"
    assert invoke("--store", "x", "--config", "c", "--no-color", "command", "--json") == expected
    assert invoke("command", "--store", "x", "--config", "c", "--no-color", "--json") == expected


def test_value_nearest_to_the_command_wins() -> None:
    assert invoke("--store", "far", "command", "--store", "near").startswith("near ")
    assert invoke("command").startswith("None ")


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert invoke("command", "caf\udce9 é").endswith(r"'caf? \xe9'")


def test_short_help_is_the_first_sentence() -> None:
    assert "Print the options." in invoke("--help")
    assert "not part" not in invoke("--help")


def test_session_filters_limit_minutes_to_a_time_that_exists() -> None:
    @click.command()
    @session_filters
    def find(**filters: object) -> None:
        click.echo(str(filters))

    result = CliRunner().invoke(find, ["--active-minutes", str(10**30), "--key", "k"])
    assert result.exit_code == 0, result.output
    assert "'active_minutes': 52560000" in result.output
    assert "'key': 'k'" in result.output
    assert CliRunner().invoke(find, ["--active-minutes", "0"]).exit_code == 2


@pytest.mark.parametrize(
    ("started", "on_path", "name"),
    [
        (".venv/bin/tertulia", None, ".venv/bin/tertulia"),
        ("bin/tertulia", "bin/tertulia", "tertulia"),
        ("bin/tertulia", "other/tertulia", "bin/tertulia"),
        ("src/tertulia/__main__.py", None, "python -m tertulia"),
    ],
)
def test_hints_name_the_program_as_it_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: str, on_path: str | None, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / started)])
    monkeypatch.setattr("shutil.which", lambda _: on_path and str(tmp_path / on_path))
    assert program_name() == name


def test_program_that_was_imported_has_its_usual_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("-c", "/usr/bin/pytest", "/lib/pytest/__main__.py"):
        monkeypatch.setattr("sys.argv", [name])
        assert program_name() == "tertulia"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("List them with: tertulia people list", "List them with: x/tertulia people list"),
        ("Try: tertulia --help", "Try: x/tertulia --help"),
        ("See docs/tertulia man, or my-tertulia run", "See docs/tertulia man, or my-tertulia run"),
        ("The package tertulia.", "The package tertulia."),
    ],
)
def test_commands_in_hints_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "x/tertulia")])
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert with_program_name(text) == hint
