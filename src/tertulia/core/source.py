"""Where a message came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import force_setattr

from tertulia.errors import ConfigError

LOCAL = "local"
CHAT_TYPES = ("dm", "group", "channel", "thread")

_ALWAYS = ("chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_WHEN_SET = ("account", "user_id_alt", "chat_id_alt")
# What must be text, and what stands there where nothing was given.
_TEXTS: tuple[tuple[str, str | None], ...] = (
    ("chat_id", ""),
    ("account", ""),
    ("chat_type", "dm"),
    ("chat_name", None),
    ("user_id", None),
    ("user_name", None),
    ("thread_id", None),
    ("chat_topic", None),
    ("user_id_alt", None),
    ("chat_id_alt", None),
)


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    account: str = ""
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None


class Source(_Details, frozen=True):
    """Platform, account, chat, thread and person of one message.

    Everything is text: a number given as an id becomes one, and an empty optional field is absent.
    """

    platform: str
    chat_id: str

    def __post_init__(self) -> None:
        platform: object = self.platform  # callers without a type checker hand in anything
        if not isinstance(platform, str) or not platform:
            raise ConfigError(
                f"A source needs a platform as text, not {self.platform!r}.",
                hint="Give for example 'telegram' or 'local'.",
                field="platform",
            )
        for name, without in _TEXTS:
            value = getattr(self, name)
            # Nearly all are as they should be, and sources are read with every message.
            if value is not without and (not value or type(value) is not str):
                force_setattr(self, name, _as_text(value) or without)

    @property
    def participant(self) -> str | None:
        """Who wrote, by the id that stays when a phone number changes."""
        return self.user_id_alt or self.user_id

    @property
    def description(self) -> str:
        """The source in words for people. Not for prompts: strangers chose the names in it."""
        if self.platform == LOCAL:
            return "CLI terminal"
        place = self.chat_name or self.chat_id
        if self.chat_type == "dm":
            words = f"DM with {self.user_name or self.user_id or 'user'}"
        elif self.chat_type in ("group", "channel"):
            words = f"{self.chat_type}: {place}"
        else:
            words = place
        return f"{words}, thread: {self.thread_id}" if self.thread_id else words

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"platform": self.platform, "chat_id": self.chat_id}
        found.update((name, getattr(self, name)) for name in _ALWAYS)
        found.update((name, getattr(self, name)) for name in _WHEN_SET if getattr(self, name))
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, or a peer's older form of it: only the platform is needed."""
        if "platform" not in data:
            raise ConfigError(
                "A source needs its 'platform'.",
                hint="Give for example {'platform': 'telegram', 'chat_id': '42'}.",
                field="platform",
            )
        known = {n: data[n] for n in (*_ALWAYS, *_WHEN_SET) if data.get(n) is not None}
        return cls(data["platform"], data.get("chat_id", ""), **known)

    @classmethod
    def local(cls) -> Self:
        """The terminal of the machine that runs the agent."""
        return cls(LOCAL, "cli", chat_name="CLI terminal")


def _as_text(value: object) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else str(value)
