"""The abilities of a platform, as data."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import ConfigError

LengthUnit = Literal["characters", "utf16", "bytes"]
"""The unit of a length limit: code points, UTF-16 code units, or bytes of UTF-8."""

Markup = Literal["plain", "markdown", "html", "mrkdwn", "simple"]
"""The format of a sent text: plain text, CommonMark, a few HTML tags, `*bold*` with `<url|text>`
links, or `*bold*` and `_italic_` without links."""

_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")


class _Abilities(msgspec.Struct, frozen=True, kw_only=True):
    length_limit: int | None = 2000
    length_unit: LengthUnit = "characters"
    markdown: Markup = "plain"
    threads: bool = False
    edits: bool = False
    typing: bool = False
    media: bool = False
    commands: bool = False
    buttons: int = 0
    button_text_limit: int | None = None
    mentions_need_raw_ids: bool = False
    notify: bool = True
    notes: tuple[str, ...] = ()


class Platform(_Abilities, frozen=True):
    """A chat system that people write from.

    The defaults are safe for a platform that Tertulia knows nothing about: short plain messages and
    nothing else, so `Platform(name)` describes any unknown one.

    `title` is its name for people. A `length_limit` of None means any length. `commands` is true if
    it has a menu of commands that can be set. `buttons` is how many a message can have, and
    `button_text_limit` the length of such a message, if it is shorter. `mentions_need_raw_ids` is
    true if a person can only be mentioned by the raw id, so that hiding ids would break mentions.
    `notify` is false if nobody there reads a notice of an automatic reset. `notes` describe the
    platform to the agent; they are written by the author of the platform's adapter, never by the
    people on it.
    """

    name: str
    title: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError(
                "The platform has no name.",
                hint="Give a name, for example 'matrix'.",
                field="name",
            )
        if self.length_limit is not None and self.length_limit < 1:
            raise ConfigError(
                f"The length limit of the platform {self.name!r} is {self.length_limit!r}.",
                hint="Give a number above 0, or None if messages may have any length.",
                field="length_limit",
            )
        force_setattr(self, "title", self.title or _title(self.name))


def _title(name: str) -> str:
    """Return `Home Assistant` for `home_assistant`; other text is only made safe for a prompt."""
    if not _NAME.fullmatch(name):
        return clean_for_prompt(name, 40) or "Unknown"
    return " ".join(word[:1].upper() + word[1:] for word in re.split("[_-]", name))
