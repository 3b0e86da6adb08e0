"""Updates of Telegram, as what the gateway understands. Pure: nothing is asked or sent here.

An update that is not understood becomes None; it is acknowledged, and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import PlatformUnavailable
from tertulia.platforms.base import MALFORMED, Changed, Incoming, Pressed

# The kinds of updates that are asked for. They are always named: the last list stays in force.
ALLOWED_UPDATES: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "stopped_message_generation",
    "callback_query",
)

_CHAT_TYPES: Final = {
    "private": "dm",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}
# The fields of a message with a file, and the media type if the file does not say it.
_FILES: Final = {
    "document": None,
    "voice": "audio/ogg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "animation": "video/mp4",
    "sticker": "image/webp",
}


class Bot(msgspec.Struct, frozen=True):
    """The bot itself, as `getMe` describes it."""

    id: int
    username: str
    name: str


def read_bot(answer: Any) -> Bot:
    """Return the bot that `getMe` describes; raise `PlatformUnavailable` if it describes none."""
    try:
        return Bot(int(answer["id"]), str(answer.get("username", "")), _name(answer) or "")
    except MALFORMED:
        raise PlatformUnavailable(
            "Telegram did not say which bot this is.", hint="Check base_url."
        ) from None


def read_update(
    update: Mapping[str, Any], bot: Bot, account: str
) -> Incoming | Changed | Pressed | None:
    """Return the message, the change or the press in an update; None if there is nothing to do.

    Raises one of `MALFORMED` if the update is malformed.
    """
    for kind in ("message", "channel_post"):
        if kind in update:
            return _incoming(update[kind], bot, account)
    for kind in ("edited_message", "edited_channel_post"):
        if kind in update:
            return _edited(update[kind], bot, account)
    if "stopped_message_generation" in update:
        return _stopped(update, account)
    if "callback_query" in update:
        return _pressed(update["callback_query"], account)
    return None


def chat_of(update: Mapping[str, Any]) -> object:
    """Return the chat of an update, whose updates are handed over one after the other."""
    press = update.get("callback_query")
    if isinstance(press, Mapping) and isinstance(press.get("message"), Mapping):
        return chat_of({"message": press["message"]})
    for value in update.values():
        if isinstance(value, Mapping) and isinstance(value.get("chat"), Mapping):
            chat_id = value["chat"].get("id")
            return chat_id if isinstance(chat_id, int | str) else None
    return None


def _incoming(message: Mapping[str, Any], bot: Bot, account: str) -> Incoming | None:
    text, media = _text(message, bot), _media(message)
    if _is_own(message, bot) or (text is None and not media) or _is_for_another_bot(text):
        return None
    reply = _reply(message)
    return Incoming(
        source=_source(message, account),
        text=text,
        message_id=str(message["message_id"]),
        media=media,
        is_addressed=_is_addressed(message, bot),
        reply_to=None if reply is None else str(reply["message_id"]),
        is_bot=_is_program(message),
        group=_text_or_none(message.get("media_group_id")),
    )


def _edited(message: Mapping[str, Any], bot: Bot, account: str) -> Changed | None:
    if _is_own(message, bot):
        return None
    return Changed(
        kind="edited",
        source=_source(message, account),
        message_id=str(message["message_id"]),
        text=_text(message, bot),
        media=_media(message),
    )


def _stopped(update: Mapping[str, Any], account: str) -> Incoming:
    """Return the command to stop: the person pressed the button under a draft."""
    stopped = update["stopped_message_generation"]
    chat = stopped["chat"]
    thread = stopped.get("message_thread_id")
    source = Source(
        "telegram",
        str(chat["id"]),
        account=account,
        chat_name=_chat_name(chat),
        user_id=str(chat["id"]),  # drafts are only in private chats
        user_name=_name(chat),
        thread_id=None if thread is None else str(thread),
    )
    return Incoming(source=source, text="/stop", message_id=f"stopped-{int(update['update_id'])}")


def _pressed(press: Mapping[str, Any], account: str) -> Pressed | None:
    """Return the press of a button under a message of the bot."""
    message = press.get("message")
    if message is None or "data" not in press:
        return None  # of a message that was sent by an inline query, or of a game
    # Of a message that is too old, Telegram gives neither the text nor the topic.
    if not message.get("date") and message["chat"]["type"] != "private":
        return None
    return Pressed(
        source=_source({**message, "from": press["from"], "sender_chat": None}, account),
        value=str(press["data"]),
        press_id=str(press["id"]),
    )


def _is_own(message: Mapping[str, Any], bot: Bot) -> bool:
    return bool((message.get("from") or {}).get("id") == bot.id)


def _is_program(message: Mapping[str, Any]) -> bool:
    """Return whether a program wrote it. An anonymous admin has a bot's name, but is a person."""
    return bool((message.get("from") or {}).get("is_bot")) and "sender_chat" not in message


def _source(message: Mapping[str, Any], account: str) -> Source:
    chat = message["chat"]
    sender = message.get("sender_chat") or message.get("from") or chat
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    return Source(
        "telegram",
        str(int(chat["id"])),
        account=account,
        chat_name=_chat_name(chat),
        chat_type=_CHAT_TYPES[chat["type"]],
        user_id=str(int(sender["id"])),
        user_name=_name(sender),
        # A message outside a topic may have a thread id too: that of the message it replies to.
        thread_id=None if thread in (None, 1) else str(int(thread)),
    )


def _chat_name(chat: Mapping[str, Any]) -> str | None:
    return _text_or_none(chat.get("title"))


def _name(person: Mapping[str, Any]) -> str | None:
    """Return the name of a person, or the title of a chat that writes under its own name."""
    parts = (person.get("first_name"), person.get("last_name"))
    name = " ".join(part for part in parts if isinstance(part, str) and part)
    return name or _text_or_none(person.get("title")) or _text_or_none(person.get("username"))


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _text(message: Mapping[str, Any], bot: Bot) -> str | None:
    """Return the text that the person wrote, or a line for what has no text."""
    text = _text_or_none(message.get("text")) or _text_or_none(message.get("caption"))
    if text is not None:
        return _without_own_name(text, bot)
    return _description(message)


def _description(message: Mapping[str, Any]) -> str | None:
    text = None
    if "location" in message:
        location = message["location"]
        text = f"[location: {float(location['latitude'])}, {float(location['longitude'])}]"
    elif "contact" in message:
        contact = message["contact"]
        text = f"[contact: {_name(contact) or ''} {contact.get('phone_number', '')}]"
    elif "poll" in message:
        text = f"[poll: {message['poll'].get('question', '')}]"
    elif "dice" in message:
        text = f"{message['dice'].get('emoji', '')} {int(message['dice']['value'])}"
    elif "sticker" in message:
        text = _text_or_none(message["sticker"].get("emoji"))
    return text


def _without_own_name(text: str, bot: Bot) -> str:
    """Return `/new` for `/new@my_bot`; a command for another bot stays as it is."""
    head, blank, rest = text.partition(" ")
    command, _, name = head.partition("@")
    if command.startswith("/") and name and name.lower() == bot.username.lower():
        return f"{command}{blank}{rest}"
    return text


def _is_for_another_bot(text: str | None) -> bool:
    """Return whether a text is a command for another bot; the names of all bots end in "bot".

    The own name is removed from commands before.
    """
    command, _, name = "".join((text or "").split(None, 1)[:1]).partition("@")
    return command.startswith("/") and name.lower().endswith("bot")


def _media(message: Mapping[str, Any]) -> tuple[Media, ...]:
    photos = message.get("photo")
    if photos:
        return (_file(photos[-1], "image/jpeg"),)  # the largest one comes last
    # An animation comes as a document too, for programs that know no animations.
    kinds = [kind for kind in _FILES if isinstance(message.get(kind), Mapping)]
    kinds = [kind for kind in kinds if kind != "document" or "animation" not in kinds]
    return tuple(_file(message[kind], _FILES[kind]) for kind in kinds)


def _file(file: Mapping[str, Any], media_type: str | None) -> Media:
    size = file.get("file_size")
    return Media(
        type=_text_or_none(file.get("mime_type")) or media_type,
        name=_text_or_none(file.get("file_name")),
        size=size if isinstance(size, int) else None,
        source=str(file["file_id"]),
    )


def _reply(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message that it replies to.

    Every message of a topic has the beginning of the topic there, which is no reply.
    """
    reply = message.get("reply_to_message")
    if not isinstance(reply, Mapping) or "forum_topic_created" in reply:
        return None
    return reply


def _is_addressed(message: Mapping[str, Any], bot: Bot) -> bool:
    if message["chat"]["type"] == "private":
        return True
    reply = _reply(message)
    if reply is not None and (reply.get("from") or {}).get("id") == bot.id:
        return True
    own = f"@{bot.username}".lower()
    for entity, text in _entities(message):
        match entity.get("type"):
            case "mention" if text.lower() == own:
                return True
            case "text_mention" if (entity.get("user") or {}).get("id") == bot.id:
                return True
            case "bot_command" if text.lower().endswith(own):
                return True
    return False


def _entities(message: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the entities of a text or a caption, each with its piece of the text."""
    for text_field, field in (("text", "entities"), ("caption", "caption_entities")):
        text, entities = message.get(text_field), message.get(field)
        if not isinstance(text, str) or not isinstance(entities, list):
            continue
        encoded = text.encode("utf-16-le", "surrogatepass")
        for entity in entities:
            start, length = int(entity["offset"]), int(entity["length"])
            piece = encoded[2 * start : 2 * (start + length)]
            yield entity, piece.decode("utf-16-le", "replace")
