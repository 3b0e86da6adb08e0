"""The source of a message: platform, account, chat, thread and person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import force_setattr

from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

LOCAL = "local"
CHAT_TYPES = ("dm", "group", "channel", "thread")

_ALWAYS = ("chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_WHEN_SET = ("account", "user_id_alt", "chat_id_alt", "agent")
_ID_BITS = 128  # UUIDs and the numbers of every platform
# Fields that must be text, and their value if none was passed.
_TEXT_DEFAULTS: tuple[tuple[str, str | None], ...] = (
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
    ("agent", None),
)


class StoredChatType(str):
    """A chat type from stored or foreign data that is not in `CHAT_TYPES`.

    Data of other systems and of other versions keep such a type, in a conversation of their own. A
    program that names a new source cannot use one: it would be a spelling mistake.
    """

    __slots__ = ()


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
    agent: str | None = None


class Source(_Details, frozen=True):
    """The platform, account, chat, thread and person of one message.

    Every field is text: an id passed as an integer becomes text, and an empty optional field is
    stored as absent. The chat id may be empty, but not None. Anything else raises `ConfigError`.
    `agent` is the agent that answers there, if it is not the one of the store's settings.
    """

    platform: str
    chat_id: str

    def __post_init__(self) -> None:
        platform: object = self.platform  # callers without a type checker may pass anything
        if not isinstance(platform, str) or not platform:
            raise ConfigError(
                f"The platform of a source must be text, not {short_repr(self.platform)}.",
                hint="Give a name such as 'telegram' or 'local'.",
                field="platform",
            )
        chat_id: object = self.chat_id
        if chat_id is None:
            raise ConfigError(
                "The chat_id of a source is None.",
                hint="Give the id of the chat, or '' if the platform has none.",
                field="chat_id",
            )
        for name, default in _TEXT_DEFAULTS:
            value = getattr(self, name)
            # Nearly all values are valid already, and a source is read with every message.
            if value is not default and (not value or type(value) is not str):
                force_setattr(self, name, _as_text(name, value) or default)
        if type(self.chat_type) is StoredChatType:
            force_setattr(self, "chat_type", str(self.chat_type))
        elif self.chat_type not in CHAT_TYPES:
            raise ConfigError(
                f"The chat_type of a source is {short_repr(self.chat_type)}.",
                hint=f"Allowed: {', '.join(CHAT_TYPES)}.",
                field="chat_type",
            )

    @property
    def is_terminal(self) -> bool:
        """Return whether it is the terminal on this machine, whichever agent answers there."""
        return self.platform == LOCAL and self.with_fields(agent=None) == Source.local()

    @property
    def participant(self) -> str | None:
        """Return the id of the author; the alternative id wins, as phone numbers change."""
        return self.user_id_alt or self.user_id

    @property
    def description(self) -> str:
        """Describe the source for people. Not safe for prompts: strangers chose the names."""
        if self.platform == LOCAL:
            return "CLI terminal"
        chat = self.chat_name or self.chat_id
        if self.chat_type == "dm":
            text = f"DM with {self.user_name or self.user_id or 'user'}"
        elif self.chat_type in ("group", "channel"):
            text = f"{self.chat_type}: {chat}"
        else:
            text = chat
        return f"{text}, thread: {self.thread_id}" if self.thread_id else text

    def with_fields(self, **changes: Any) -> Self:
        """Return the source with other values in some fields; an unknown chat type is kept."""
        return self.from_dict({**self.to_dict(), **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by `from_dict`, which keeps an unknown chat type."""
        return type(self).from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict; account, alternative ids and agent only if they are set."""
        fields: dict[str, Any] = {"platform": self.platform, "chat_id": self.chat_id}
        fields.update((name, getattr(self, name)) for name in _ALWAYS)
        fields.update((name, getattr(self, name)) for name in _WHEN_SET if getattr(self, name))
        return fields

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the result of `to_dict`, or another system's older form of it.

        An unknown chat type is kept, as an unknown platform is. Raise `ConfigError` if the platform
        is missing; every other field may be.
        """
        value: object = data  # callers without a type checker may pass anything
        if not isinstance(value, Mapping) or "platform" not in value:
            raise ConfigError(
                "The source has no 'platform'.",
                hint="Give for example {'platform': 'telegram', 'chat_id': '42'}.",
                field="platform",
            )
        names = (*_ALWAYS, *_WHEN_SET)
        details = {name: data[name] for name in names if data.get(name) is not None}
        chat_type = details.get("chat_type", "dm")
        if isinstance(chat_type, str) and chat_type not in ("", *CHAT_TYPES):
            details["chat_type"] = StoredChatType(chat_type)
        chat_id = data.get("chat_id")
        return cls(data["platform"], "" if chat_id is None else chat_id, **details)

    @classmethod
    def local(cls) -> Self:
        """Return the source of the terminal on the machine that runs the agent."""
        return cls(LOCAL, "cli", chat_name="CLI terminal")


def is_integer_id(value: object) -> bool:
    """Return whether a value is an id in the form of an integer, with at most 128 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _ID_BITS


def _as_text(name: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value == ""):
        return None
    if isinstance(value, StoredChatType):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # without the methods of a subclass, such as an enumeration's
    if is_integer_id(value):
        return str(value)
    raise ConfigError(
        f"The {name} of a source is {short_repr(value)}.",
        hint="Give text or an integer.",
        field=name,
    )
