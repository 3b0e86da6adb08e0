"""The environment interface: checks of commands and variables."""

from __future__ import annotations

import pytest

from tertulia.errors import ConfigError
from tertulia.processes.environments.base import Command, command_words, inherited_variables


def test_words_of_a_command() -> None:
    assert command_words("echo a b") == ["echo a b"]
    assert command_words(("printf", "%s", "")) == ["printf", "%s", ""]


@pytest.mark.parametrize("command", ["", " \n", [], [" ", "a"], "a\0b", ["a", "\0"]])
def test_invalid_command_is_refused(command: Command) -> None:
    with pytest.raises(ConfigError, match="no command"):
        command_words(command)


def test_only_named_variables_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "blue")
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.delenv("SHAPE", raising=False)
    assert inherited_variables(["COLOUR", "SHAPE"]) == {"COLOUR": "blue"}
