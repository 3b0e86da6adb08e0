"""What a platform can do, as data."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from tertulia.core.text.prompt_safe import plain
from tertulia.errors import ConfigError

LengthUnit = Literal["characters", "utf16", "bytes"]
"""What a length limit counts: code points, UTF-16 code units, or bytes of UTF-8."""

Markup = Literal["plain", "markdown", "html", "mrkdwn", "simple"]
"""How formatted text is sent: none at all, CommonMark, a few HTML tags, `*bold*` with
`<url|text>` links, or `*bold*` and `_italic_` without links."""

_WORDS = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")


class _Abilities(msgspec.Struct, frozen=True, kw_only=True):
    length_limit: int | None = 2000
    length_unit: LengthUnit = "characters"
    markdown: Markup = "plain"
    threads: bool = False
    edits: bool = False
    typing: bool = False
    media: bool = False
    commands: bool = False
    mentions_need_raw_ids: bool = False
    notify: bool = True
    notes: tuple[str, ...] = ()


class Platform(_Abilities, frozen=True):
    """A place people write from.

    The defaults are what is safe to assume of a platform nothing is known about: short plain
    messages and nothing else, so `Platform(name)` stands for any unknown one.

    `title` is its name for people. `length_limit` None means any length. `commands` says that it
    has a menu of commands that can be filled. `mentions_need_raw_ids` says that a person can only
    be addressed by the id, so that hiding ids would break mentions. `notify` False says that
    nobody there reads a notice of an automatic reset. `notes` tell the agent what holds there;
    they are written by whoever wrote the platform, never by the people on it.
    """

    name: str
    title: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError(
                "A platform needs a name.",
                hint="Give for example 'matrix'.",
                field="name",
            )
        if self.length_limit is not None and self.length_limit < 1:
            raise ConfigError(
                f"The length limit of the platform {self.name!r} is {self.length_limit!r}.",
                hint="Give a number above 0, or None where messages may have any length.",
                field="length_limit",
            )
        force_setattr(self, "title", self.title or _title(self.name))


def _title(name: str) -> str:
    """`home_assistant` becomes `Home Assistant`; what is no word is only made harmless."""
    if not _WORDS.fullmatch(name):
        return plain(name, 40) or "Unknown"
    return " ".join(word[:1].upper() + word[1:] for word in re.split("[_-]", name))
