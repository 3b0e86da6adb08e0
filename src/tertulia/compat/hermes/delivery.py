"""Hermes Agent's delivery targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tertulia.compat.hermes.config import Platform, known_platform
from tertulia.compat.hermes.session import SessionSource
from tertulia.core.keys import escape, unescape
from tertulia.core.target import ORIGIN


@dataclass
class DeliveryTarget:
    """A target: the origin, files on this machine, the home of a platform, or a chat by its id."""

    platform: Platform
    chat_id: str | None = None
    thread_id: str | None = None
    is_origin: bool = False
    is_explicit: bool = False

    @classmethod
    def parse(cls, text: str, origin: SessionSource | None = None) -> Self:
        """Parse `origin`, `local`, a platform, or `platform:chat[:thread]`.

        An unknown platform becomes local. A colon inside a chat's id is written `%3A`; the text
        after the second colon is the thread, and may contain colons.
        """
        text = text.strip()
        if text.lower() == ORIGIN:
            return cls._from_origin(origin)
        name, *ids = text.split(":", 2)
        platform = known_platform(name.strip().lower())
        if platform is None:
            return cls(Platform.LOCAL)
        chat, thread, *_ = (*map(_unescape_part, ids), None, None)
        return cls(platform, chat, thread if chat else None, is_explicit=chat is not None)

    @classmethod
    def _from_origin(cls, origin: SessionSource | None) -> Self:
        if origin is None:
            return cls(Platform.LOCAL, is_origin=True)
        return cls(origin.platform, origin.chat_id, origin.thread_id, is_origin=True)

    def to_string(self) -> str:
        """Return the text that `parse` reads."""
        if self.is_origin:
            return ORIGIN
        ids = (self.chat_id, self.thread_id) if self.chat_id else ()
        return ":".join([self.platform.value, *(escape(part) for part in ids if part)])


def _unescape_part(part: str) -> str | None:
    try:
        return unescape(part.strip()) or None
    except UnicodeDecodeError:
        return part.strip()  # a literal percent sign, not an escaped character
