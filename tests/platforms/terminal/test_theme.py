"""The theme: attributes and the terminal's own colours; none with NO_COLOR."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.config.load import load_config
from tertulia.errors import ConfigError
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.terminal.theme import Theme, terminal_theme
from tertulia.platforms.terminal.wrap import Segment

ROW = (Segment("person", "me"), Segment("", " x"))


def test_styles_become_control_sequences() -> None:
    assert Theme().escape(ROW) == "\x1b[1;36mme\x1b[0m x"


def test_without_colours_the_attributes_stay() -> None:
    assert Theme(has_colours=False).escape(ROW) == "\x1b[1mme\x1b[0m x"


def test_unknown_style_is_plain() -> None:
    assert Theme().escape((Segment("no-such-style", "a"),)) == "a"


def test_no_color_turns_colours_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal_theme().has_colours
    monkeypatch.setenv("NO_COLOR", "")
    assert terminal_theme().has_colours


def test_styles_of_the_configuration_replace_those_of_the_theme() -> None:
    section = LocalSettings(style={"person": "bold green", "status": ""})
    theme = Theme(styles=section.style)
    assert theme.describe("person") == "bold ansigreen"
    assert theme.escape((Segment("person", "me"),)) == "\x1b[1;32mme\x1b[0m"
    assert theme.describe("status") == ""
    assert theme.describe("error") == Theme().describe("error")


@pytest.mark.parametrize(
    ("style", "message"),
    [({"persons": "bold"}, "no style 'persons'"), ({"person": "pink"}, "the word 'pink'")],
)
def test_unknown_styles_and_colours_are_named(style: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as problem:
        LocalSettings(style=style)
    assert problem.value.hint is not None


def test_configuration_with_styles_reaches_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[platforms.local.style]\nperson = 'bold green'\n")
    section = load_config(str(path), {}).config.platform("local")
    assert isinstance(section, LocalSettings)
    assert section.style == {"person": "bold green"}
    path.write_text("[platforms.local.style]\nperson = 'pink'\n")
    with pytest.raises(ConfigError, match="pink"):
        load_config(str(path), {})
