"""How styles look: attributes and the 16 colours that every terminal has chosen for itself.

RGB colours that are chosen for a light background cannot be read on a dark one, so there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tertulia.errors import ConfigError
from tertulia.platforms.terminal.wrap import Row, Segment

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

# By style: the attributes and colours, in the words of prompt_toolkit.
_STYLES: Final[Mapping[str, str]] = {
    "bold": "bold",
    "italic": "italic",
    "strike": "strike",
    "dim": "dim",
    "link": "underline",
    "heading": "bold ansimagenta",
    "marker": "ansicyan",
    "code": "ansicyan",
    "code-comment": "dim",
    "code-keyword": "ansimagenta",
    "code-string": "ansigreen",
    "code-number": "ansiyellow",
    "code-name": "ansiblue",
    "person": "bold ansicyan",
    "notice": "ansiyellow",
    "tool": "ansiblue",
    "error": "ansired",
    "status": "dim",
}
_ATTRIBUTES: Final = {
    "bold": "1", "dim": "2", "italic": "3", "underline": "4", "strike": "9",
    "ansired": "31", "ansigreen": "32", "ansiyellow": "33", "ansiblue": "34",
    "ansimagenta": "35", "ansicyan": "36", "ansiblack": "30", "ansigray": "37",
}  # fmt: skip


class Theme:
    """The look of each style. Without colours only the attributes are left.

    `styles` replaces the look of some styles: attributes and the names of colours, by spaces, such
    as "bold green".
    """

    def __init__(
        self, *, has_colours: bool = True, styles: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.has_colours = has_colours
        self._styles = {**_STYLES, **{name: _own_words(text) for name, text in styles.items()}}

    def describe(self, style: str) -> str:
        """Return a style in the words of prompt_toolkit; names can be combined by spaces."""
        words = " ".join(self._styles.get(name, "") for name in style.split()).split()
        if not self.has_colours:
            words = [word for word in words if not word.startswith("ansi")]
        return " ".join(dict.fromkeys(words))

    def formatted(self, row: Row) -> StyleAndTextTuples:
        """Return a row as formatted text of prompt_toolkit."""
        return [(self.describe(segment.style), segment.text) for segment in row]

    def escape(self, row: Iterable[Segment]) -> str:
        """Return a row as text with control sequences."""
        return "".join(self._escape(segment) for segment in row)

    def _escape(self, segment: Segment) -> str:
        codes = [_ATTRIBUTES[word] for word in self.describe(segment.style).split()]
        return f"\x1b[{';'.join(codes)}m{segment.text}\x1b[0m" if codes else segment.text


def terminal_theme(styles: Mapping[str, str] = MappingProxyType({})) -> Theme:
    """Return the theme of this terminal: https://no-color.org turns the colours off."""
    return Theme(has_colours=not os.environ.get("NO_COLOR"), styles=styles)


def check_styles(styles: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a style, an attribute or a colour is not known."""
    known = sorted(word.removeprefix("ansi") for word in _ATTRIBUTES)
    for name, text in styles.items():
        if name not in _STYLES:
            raise ConfigError(
                f"There is no style {name!r}.", hint=f"There are: {', '.join(_STYLES)}."
            )
        for word in text.split():
            if word not in known:
                raise ConfigError(
                    f"The style {name} has the word {word!r}.", hint=f"Use: {', '.join(known)}."
                )


def _own_words(text: str) -> str:
    """Return the words of a configuration in those of prompt_toolkit."""
    return " ".join(
        f"ansi{word}" if f"ansi{word}" in _ATTRIBUTES else word for word in text.split()
    )
