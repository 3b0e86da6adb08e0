"""The theme: attributes and the terminal's own colours; none with NO_COLOR."""

from __future__ import annotations

import pytest

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
