"""The questions that create a configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tertulia.cli import locations, wizard
from tertulia.cli.options import CommandOptions
from tertulia.errors import ConfigError


@click.command()
def ask() -> None:
    wizard.create_config(CommandOptions())


@pytest.mark.parametrize(
    ("answers", "agent"),
    [
        ("\n", {"kind": "parrot"}),
        (
            "openai\nmy-model\n\nMY_KEY\n",
            {"kind": "openai", "model": "my-model", "api_key_env": "MY_KEY"},
        ),
        (
            "anthropic\n\n\n",
            {
                "kind": "anthropic",
                "model": "claude-sonnet-4-5",
                "api_key_env": "ANTHROPIC_API_KEY",
            },
        ),
        (
            "command\n'my agent' --fast\n",
            {"kind": "command", "command": ["my agent", "--fast"]},
        ),
        (
            "http\nnot an address\nhttp://localhost:1234/agent\n",
            {"kind": "http", "url": "http://localhost:1234/agent"},
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_answers_become_the_agent_section(answers: str, agent: dict[str, Any]) -> None:
    result = CliRunner().invoke(ask, input=answers)
    assert result.exit_code == 0, result.output
    path = locations.default_config_path()
    assert f"Written to {path}." in result.output
    assert tomllib.loads(Path(path).read_text("utf-8"))["agent"] == agent


def test_unclosed_quote_is_asked_again() -> None:
    result = CliRunner().invoke(ask, input="command\n'open\nagent\n")
    assert "A quote is not closed." in result.output
    assert result.exit_code == 0


def test_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="already a configuration"):
        wizard.write_config(str(path), "new")
    assert path.read_text() == "mine"
    wizard.write_config(str(path), "new", is_forced=True)
    assert path.read_text() == "new"


def test_existing_configuration_is_replaced_only_after_a_question() -> None:
    assert CliRunner().invoke(ask, input="parrot\n").exit_code == 0
    refused = CliRunner().invoke(ask, input="n\nopenai\n")
    assert isinstance(refused.exception, ConfigError)
    path = Path(locations.default_config_path())
    assert tomllib.loads(path.read_text("utf-8"))["agent"] == {"kind": "parrot"}
    replaced = CliRunner().invoke(ask, input="y\ncommand\nmine\n")
    assert replaced.exit_code == 0, replaced.output
    assert tomllib.loads(path.read_text("utf-8"))["agent"]["command"] == ["mine"]


def test_nothing_is_asked_for_a_file_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    result = CliRunner().invoke(ask, input="parrot\n")
    assert isinstance(result.exception, ConfigError)
    assert "cannot be written: Permission denied" in result.exception.message
    assert result.output == ""


def test_key_in_place_of_its_variable_is_refused_and_not_shown() -> None:
    result = CliRunner().invoke(ask, input="openai\nmy-model\n\nsk-proj-1\nMY_KEY\n")
    assert result.exit_code == 0, result.output
    assert "not the key." in result.output.partition("sk-proj-1")[2]
    assert result.output.count("sk-proj-1") == 1  # only where it was typed
    assert "sk-proj-1" not in Path(locations.default_config_path()).read_text("utf-8")


@pytest.mark.parametrize("is_set", [False, True])
def test_next_step_is_to_set_the_key_and_to_talk(
    monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    if is_set:
        monkeypatch.setenv("MY_KEY", "k")
    text = wizard.next_step(CommandOptions(), {"kind": "openai", "api_key_env": "MY_KEY"})
    assert ("Set the key first: export MY_KEY=…" in text) == (not is_set)
    assert text.endswith("tertulia chat")


@pytest.mark.parametrize("columns", [40, 60, 90])
def test_questions_are_not_broken_inside_of_words(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = CliRunner().invoke(ask, input="openai\nmy-model\n\nMY_KEY\n")
    rows = result.output.splitlines()
    menu = rows[: rows.index("Agent [parrot]: openai")]
    assert all(len(row) <= columns for row in menu)
    assert {"parrot", "openai", "anthropic", "command", "http"} <= set(" ".join(menu).split())


CONFIG = """\
# mine
routes = []

[store]
zone = "UTC"  # here

[agent]
kind = "parrot"
# a note on the agent

[agent.retry]
tries = 2

[platforms.telegram]
token = "1:x"
"""


def test_new_agent_leaves_the_rest_of_the_file() -> None:
    assert CliRunner().invoke(ask, input="parrot\n").exit_code == 0
    path = Path(locations.default_config_path())
    path.write_text(CONFIG, "utf-8")
    result = CliRunner().invoke(ask, input="y\nopenai\nmy-model\n\nMY_KEY\n")
    assert result.exit_code == 0, result.output
    text = path.read_text("utf-8")
    agent = {"kind": "openai", "model": "my-model", "api_key_env": "MY_KEY"}
    assert tomllib.loads(text) == {**tomllib.loads(CONFIG), "agent": agent}
    assert text.startswith('# mine\nroutes = []\n\n[store]\nzone = "UTC"  # here\n')


def test_missing_agent_is_added() -> None:
    changed = wizard.with_agent('[store]\nzone = "UTC"\n', {"kind": "parrot"}, "x.toml")
    assert tomllib.loads(changed) == {"store": {"zone": "UTC"}, "agent": {"kind": "parrot"}}


@pytest.mark.parametrize(
    "text",
    [
        "agent = { kind = 'parrot' }\n",  # not in a form that can be replaced
        "[agent]\ninstructions = '''\n[store]\n'''\n",
        "[agent\n",
    ],
)
def test_agent_that_cannot_be_replaced_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError) as problem:
        wizard.with_agent(text, {"kind": "parrot"}, "x.toml")
    assert problem.value.hint
