"""Events of Discord's gateway, as what the gateway of this program understands.

Pure: nothing is asked or sent here. An event that is not understood becomes None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming, Pressed

DM: Final = 1
GROUP_DM: Final = 3
THREADS: Final = frozenset({10, 11, 12})
# The channels whose messages are read after an absence, besides threads.
READABLE: Final = frozenset({0, 2, 5, 13})
# A message of a person, or their reply; all other types are notices of Discord.
_MESSAGE_TYPES: Final = frozenset({0, 19})
_COMMAND: Final = 2
_COMPONENT: Final = 3
_BUTTON: Final = 2
_EPOCH_MILLIS: Final = 1_420_070_400_000
_ID: Final = re.compile(r"[0-9]{1,20}")

Json = Mapping[str, Any]


class DiscordBot(msgspec.Struct, frozen=True):
    """The bot itself."""

    id: str
    name: str
    application_id: str


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, or a thread in one."""

    id: str
    type: int
    name: str | None = None
    topic: str | None = None
    parent_id: str | None = None
    guild_id: str | None = None
    last_message_id: str | None = None

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS

    @classmethod
    def read(cls, data: Json) -> Channel:
        """Return the channel that Discord describes."""
        kind = data["type"]
        if not isinstance(kind, int):
            raise TypeError("a channel without a type")
        return cls(
            id=read_id(data["id"]),
            type=kind,
            name=_text(data.get("name")),
            topic=_text(data.get("topic")),
            parent_id=_text(data.get("parent_id")),
            guild_id=_text(data.get("guild_id")),
            last_message_id=_text(data.get("last_message_id")),
        )


class ChatContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was written; `parent` is that of a thread, `roles` are the bot's own."""

    account: str
    channel: Channel
    parent: Channel | None = None
    roles: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


def snowflake(seconds: float) -> int:
    """Return the smallest id of a message of that time."""
    return max(0, int(seconds * 1000) - _EPOCH_MILLIS) << 22


def is_own(message: Json, bot: DiscordBot) -> bool:
    """Return whether the bot wrote a message, also as the answer to a command."""
    author = message.get("author") or {}
    return author.get("id") == bot.id or message.get("webhook_id") == bot.application_id


def is_message(message: Json) -> bool:
    """Return whether a person or a program wrote this; others are notices of Discord."""
    return message.get("type", 0) in _MESSAGE_TYPES


def mentions_roles(message: Json) -> bool:
    """Return whether a message mentions a role, which may be the bot's."""
    return bool(message.get("mention_roles"))


def read_message(message: Json, bot: DiscordBot, context: ChatContext) -> Incoming | None:
    """Return a message of somebody else, or None if there is nothing to do.

    Raises one of `MALFORMED` if it is malformed.
    """
    text, media = _content(message, bot, context), _media(message)
    if not text and not media:
        return None
    reference = _mapping(message.get("message_reference"))
    is_reply = message.get("type") == 19
    return Incoming(
        source=read_source(message, context),
        text=text or None,
        message_id=read_id(message["id"]),
        media=media,
        is_addressed=_is_addressed(message, bot, context),
        reply_to=_text(reference.get("message_id")) if is_reply else None,
        is_bot=_is_program(message),
    )


def read_edit(message: Json, bot: DiscordBot, context: ChatContext) -> Changed | None:
    """Return the edit in an update; None if it is none, as when Discord adds a preview."""
    if not message.get("edited_timestamp") or not isinstance(message.get("content"), str):
        return None
    return Changed(
        kind="edited",
        source=read_source(message, context),
        message_id=read_id(message["id"]),
        text=_content(message, bot, context) or None,
        media=_media(message) if "attachments" in message else None,
    )


def read_command(interaction: Json, context: ChatContext) -> Incoming | None:
    """Return a command that somebody chose from the menu, as a message."""
    if interaction.get("type") != _COMMAND:
        return None
    data = interaction["data"]
    values = [str(option["value"]) for option in data.get("options") or () if "value" in option]
    return Incoming(
        source=read_source(_presser(interaction), context),
        text=" ".join([f"/{data['name']}", *values]),
        message_id=read_id(interaction["id"]),
        is_addressed=True,
    )


def read_press(interaction: Json, context: ChatContext) -> Pressed | None:
    """Return the press of a button under a message of the bot."""
    data = _mapping(interaction.get("data"))
    if interaction.get("type") != _COMPONENT or data.get("component_type") != _BUTTON:
        return None
    return Pressed(
        source=read_source(_presser(interaction), context),
        value=str(data["custom_id"]),
        press_id=read_id(interaction["id"]),
    )


def _presser(interaction: Json) -> Json:
    """Return who chose a command or pressed a button, as the author of a message."""
    person = interaction.get("user") or interaction["member"]["user"]
    return {"author": person, "member": interaction.get("member")}


def read_source(message: Json, context: ChatContext) -> Source:
    """Return the chat and the person of a message. The chat of a thread is its parent."""
    channel, author = context.channel, message["author"]
    is_thread = channel.is_thread and channel.parent_id is not None
    named = context.parent or channel
    return Source(
        "discord",
        (channel.parent_id or "") if is_thread else channel.id,
        account=context.account,
        chat_name=named.name,
        chat_type="dm" if channel.type == DM else "group",
        chat_topic=named.topic,
        user_id=read_id(author["id"]),
        user_name=_name(message),
        thread_id=channel.id if is_thread else None,
    )


def _name(message: Json) -> str | None:
    author, member = message["author"], _mapping(message.get("member"))
    names = (member.get("nick"), author.get("global_name"), author.get("username"))
    return next((name for name in names if isinstance(name, str) and name), None)


def _is_program(message: Json) -> bool:
    return bool(message["author"].get("bot")) or bool(message.get("webhook_id"))


def _is_addressed(message: Json, bot: DiscordBot, context: ChatContext) -> bool:
    if context.channel.type == DM:
        return True
    if any(_mapping(person).get("id") == bot.id for person in message.get("mentions") or ()):
        return True
    if context.roles & set(message.get("mention_roles") or ()):
        return True
    replied = _mapping(message.get("referenced_message"))
    return _mapping(replied.get("author")).get("id") == bot.id


def _content(message: Json, bot: DiscordBot, context: ChatContext) -> str:
    text = message.get("content") or ""
    if not isinstance(text, str):
        raise TypeError("a text that is none")
    if not text:
        text = "\n".join(_text(item.get("content")) or "" for item in _forwarded(message)).strip()
    if not text:
        names = [_mapping(item).get("name") for item in message.get("sticker_items") or ()]
        text = " ".join(f"(sticker: {name})" for name in names if name)
    return _as_command(text, bot, context)


def _as_command(text: str, bot: DiscordBot, context: ChatContext) -> str:
    """Return a command as the gateway reads it; any other text as it is.

    Discord keeps a text that begins with "/" to itself in some apps, so "!new" is taken as well,
    and so is a command after the bot's name.
    """
    match = re.fullmatch(rf"\s*(<@!?{bot.id}>\s*)?([/!])(\w+)(.*)", text, re.DOTALL)
    if match is None or match[3].lower() not in context.commands:
        return text
    return f"/{match[3]}{match[4]}" if match[1] or match[2] == "!" else text


def _media(message: Json) -> tuple[Media, ...]:
    files = list(message.get("attachments") or ())
    for forwarded in _forwarded(message):
        files += forwarded.get("attachments") or ()
    location = f"{message.get('channel_id')}/{read_id(message['id'])}" if files else ""
    return tuple(_file(file, location) for file in files)


def _file(file: Json, location: str) -> Media:
    size = file.get("size")
    return Media(
        type=_text(file.get("content_type")),
        name=_text(file.get("filename")),
        size=size if isinstance(size, int) else None,
        source=f"{location}/{read_id(file['id'])}",
    )


def file_url(message: Json, attachment_id: str) -> str | None:
    """Return the address of a file of a message, which is valid for some hours."""
    files = list(message.get("attachments") or ())
    for forwarded in _forwarded(message):
        files += forwarded.get("attachments") or ()
    for file in files:
        if _mapping(file).get("id") == attachment_id:
            return _text(file.get("url"))
    return None


def _forwarded(message: Json) -> list[Json]:
    snapshots = message.get("message_snapshots") or ()
    return [_mapping(_mapping(snapshot).get("message")) for snapshot in snapshots]


def read_id(value: object) -> str:
    """Return an id; raise `ValueError` if it is none."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("an id that is none")
    return value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
