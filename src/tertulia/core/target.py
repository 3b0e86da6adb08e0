"""Delivery targets and home channels.

    origin                          the chat and thread it came from
    local                           files on this machine
    <platform>                      the home of that platform
    <platform>:<chat>[:<thread>]    a chat by its id

A colon inside an id is written `%3A`, as in keys. `str()` of a target returns this text form.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn, Self

import msgspec
from msgspec.structs import force_setattr

from tertulia.core import validate
from tertulia.core.keys import escape, unescape
from tertulia.core.source import LOCAL, Source
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

ORIGIN = "origin"

_FORMS = "Use origin, local, a platform, or platform:chat or platform:chat:thread."


class HomeChannel(msgspec.Struct, frozen=True):
    """The default chat of a platform.

    chat_id     the platform's id of the chat
    name        what the agent calls it
    thread_id   the topic or thread in it
    account     the account of the platform, if it has several; for web the name of the token whose
                chat it is
    """

    chat_id: str
    name: str = "Home"
    thread_id: str | None = None
    account: str = ""

    def __post_init__(self) -> None:
        validate.text("name", self.name, optional=True)
        validate.text("account", self.account)
        force_setattr(self, "chat_id", _as_id("chat_id", self.chat_id) or "")
        force_setattr(self, "name", self.name or "Home")
        force_setattr(self, "thread_id", _as_id("thread_id", self.thread_id))
        if not self.chat_id:
            raise ConfigError(
                "The home channel has no chat id.",
                hint="Give one, for example HomeChannel('42').",
                field="chat_id",
            )


class Target(msgspec.Struct, frozen=True):
    """A destination. Without a chat it is the platform's home, or files for `local`."""

    platform: str
    chat_id: str | None = None
    thread_id: str | None = None
    is_origin: bool = False
    is_explicit: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "chat_id", _as_id("chat_id", self.chat_id))
        force_setattr(self, "thread_id", _as_id("thread_id", self.thread_id))
        if self.thread_id and not (self.chat_id or self.is_origin):
            raise ConfigError(
                f"The target names the thread {short_repr(self.thread_id)} but no chat.",
                hint="Write platform:chat:thread.",
                field="chat_id",
            )

    @classmethod
    def parse(cls, text: str, origin: Source | None = None, *, known: Collection[str] = ()) -> Self:
        """Parse a target. `known` are the platform names; that of the origin is valid too.

        Without an origin, "origin" is local output and still marked as the origin. Raise
        `ConfigError` for an unknown platform: a message for a person must not end in a file that
        nobody reads.
        """
        name, *ids = (part.strip() for part in text.strip().split(":"))
        if name.lower() == ORIGIN and not ids:
            return cls._of_origin(origin)
        platform = _match_platform(_unescape(name, text), text, origin, known)
        if len(ids) > 2 or not all(ids):
            _refuse(text, f"{_FORMS} A colon inside an id is written %3A.")
        chat, thread, *_ = (*(_unescape(part, text) for part in ids), None, None)
        return cls(platform, chat, thread, is_explicit=chat is not None)

    @classmethod
    def _of_origin(cls, origin: Source | None) -> Self:
        if origin is None:
            return cls(LOCAL, is_origin=True)
        return cls(origin.platform, origin.chat_id, origin.thread_id, is_origin=True)

    def __str__(self) -> str:
        if self.is_origin:
            return ORIGIN
        parts = (self.platform, self.chat_id, self.thread_id)
        return ":".join(escape(part) for part in parts if part)


def _match_platform(name: str, text: str, origin: Source | None, platforms: Collection[str]) -> str:
    always = {LOCAL, origin.platform} if origin else {LOCAL}
    # Test membership before iterating: the collection may load its names to list them.
    if name in always or name in platforms:
        return name
    by_lower = {platform.lower(): platform for platform in sorted({*always, *platforms})}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    from difflib import get_close_matches

    nearest = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if nearest:
        return _refuse(text, f"Did you mean {short_repr(by_lower[nearest[0]])}? {_FORMS}")
    return _refuse(text, f"Known: {', '.join(by_lower)}. {_FORMS}")


def _unescape(part: str, text: str) -> str:
    try:
        return unescape(part)
    except UnicodeDecodeError:
        _refuse(text, "A % sign in it is followed by an invalid code; write a plain % as %25.")


def _refuse(text: str, hint: str) -> NoReturn:
    raise ConfigError(f"Invalid target {short_repr(text)}.", hint=hint, field="target")


def _as_id(name: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value == ""):
        return None
    validate.identifier(name, value)
    return str(value)
