"""Notifications of WhatsApp, as what the gateway understands. Pure: nothing is asked or sent here.

`entry`, `changes`, `messages` and `statuses` are lists, and all of each are read. Who wrote is read
first (`sender_of`): the id by which a person is known is looked up in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming, Pressed, Settled
from tertulia.platforms.whatsapp.graph_api import describe_error

Json = Mapping[str, Any]

_FILES: Final = ("image", "audio", "video", "document", "sticker", "voice")
# The ids of our buttons begin so; buttons of other programs of the number are texts.
BUTTON_PREFIX: Final = "tertulia:"
_REACHED: Final = ("sent", "delivered", "read", "played")


class MessageSender(msgspec.Struct, frozen=True, kw_only=True):
    """The person who wrote: the id of WhatsApp, the number unless it is hidden, the name."""

    user_id: str | None
    number: str | None
    name: str | None


class KnownSender(msgspec.Struct, frozen=True, kw_only=True):
    """A person with the id by which the store knows them; `number` is set if it is the number."""

    known_id: str
    number: str | None
    user_id: str | None
    name: str | None


def values_of(payload: Json) -> Iterator[Json]:
    """Yield the value of each change about messages, in each entry."""
    for entry in _list(payload.get("entry")):
        for change in _list(entry.get("changes")):
            value = change.get("value")
            if change.get("field") == "messages" and isinstance(value, Mapping):
                yield value


def number_id_of(value: Json) -> str | None:
    """Return the id of the business number that a value is about."""
    metadata = value.get("metadata")
    number_id = metadata.get("phone_number_id") if isinstance(metadata, Mapping) else None
    return str(number_id) if isinstance(number_id, str | int) else None


def items_of(value: Json, name: Literal["messages", "statuses", "errors"]) -> list[Any]:
    """Return the messages, statuses or errors of a value."""
    items = value.get(name)
    return items if isinstance(items, list) else []


def sender_of(message: Json, value: Json) -> MessageSender:
    """Return who wrote a message."""
    number, user_id = _text(message.get("from")), None
    for name in ("user_id", "from_user_id"):
        user_id = user_id or _text(message.get(name))
    contacts = [item for item in _list(value.get("contacts")) if isinstance(item, Mapping)]
    own = [
        contact
        for contact in contacts
        if (user_id is not None and contact.get("user_id") == user_id)
        or (number is not None and contact.get("wa_id") == number)
    ]
    if not own and len(contacts) == 1 and number is None and user_id is None:
        own = contacts
    contact: Json = own[0] if own else {}
    profile = contact.get("profile")
    profile = profile if isinstance(profile, Mapping) else {}
    return MessageSender(
        user_id=user_id or _text(contact.get("user_id")),
        number=number or _text(contact.get("wa_id")),
        name=_text(profile.get("name")) or _text(profile.get("username")),
    )


def read_message(
    message: Json, value: Json, sender: KnownSender, account: str
) -> Incoming | Changed | Pressed | None:
    """Return the message, the change or the press, or None if there is nothing to do.

    Raises one of `MALFORMED` if it is malformed.
    """
    source = _source(message, sender, account)
    match message["type"]:
        case "reaction":
            reaction = message["reaction"]
            target, text = _required(reaction["message_id"]), _text(reaction.get("emoji"))
            return Changed(kind="reacted", source=source, message_id=target, text=text)
        case "revoke":
            target = _required(message["revoke"]["original_message_id"])
            return Changed(kind="deleted", source=source, message_id=target)
        case "edit":
            edit = message["edit"]
            text, media = _content(edit["message"])
            target = _required(edit["original_message_id"])
            return Changed(kind="edited", source=source, message_id=target, text=text, media=media)
        case "interactive" if (value_of_button := _own_button(message)) is not None:
            press_id = _required(message["id"])
            return Pressed(source=source, value=value_of_button, press_id=press_id)
    text, media = _content(message)
    if text is None and not media:
        return None
    context = message.get("context")
    context = context if isinstance(context, Mapping) else {}
    return Incoming(
        source=source,
        text=text,
        message_id=_required(message["id"]),
        media=media,
        is_addressed=_is_addressed(source, text, context, value),
        reply_to=_text(context.get("id")),
    )


def _own_button(message: Json) -> str | None:
    """Return the value of a pressed button that we sent, or None."""
    reply = message["interactive"].get("button_reply")
    button_id = _text(reply.get("id")) if isinstance(reply, Mapping) else None
    if button_id is None or not button_id.startswith(BUTTON_PREFIX):
        return None
    return button_id.removeprefix(BUTTON_PREFIX)


def read_status(status: Json) -> Settled | None:
    """Return the late outcome of a delivery, or None if it is not about one of ours."""
    delivery, state = _text(status.get("biz_opaque_callback_data")), status["status"]
    if delivery is None or state not in (*_REACHED, "failed"):
        return None
    errors = _list(status.get("errors"))
    problem = describe_error(errors[0]) if errors else "WhatsApp gave no reason."
    is_sent = state != "failed"
    return Settled(
        delivery=delivery,
        is_sent=is_sent,
        message_id=_text(status.get("id")),
        problem=None if is_sent else problem,
    )


def _source(message: Json, sender: KnownSender, account: str) -> Source:
    group = _text(message.get("group_id"))
    return Source(
        "whatsapp",
        group or sender.known_id,
        account=account,
        chat_type="dm" if group is None else "group",
        user_id=sender.user_id or sender.known_id,
        # The number is the alternative id, if the person is known by it.
        user_id_alt=sender.number if sender.user_id is not None else None,
        user_name=sender.name,
    )


def _is_addressed(source: Source, text: str | None, context: Json, value: Json) -> bool:
    if source.chat_type == "dm":
        return True
    metadata = value.get("metadata")
    own = _text(metadata.get("display_phone_number")) if isinstance(metadata, Mapping) else None
    digits = "".join(filter(str.isdigit, own or ""))
    writer = "".join(filter(str.isdigit, _text(context.get("from")) or ""))
    return bool(digits) and (writer == digits or f"@{digits}" in (text or ""))


def _content(message: Json) -> tuple[str | None, tuple[Media, ...]]:
    """Return the text and the files of a message."""
    kind = message["type"]
    if kind in _FILES:
        file = message[kind]
        return _text(file.get("caption")), (_file(file),)
    return _described(message, kind), ()


def _described(message: Json, kind: Any) -> str | None:
    """Return the text, or a line for what has none; None for a kind that is not understood."""
    text: str | None = None
    if kind == "text":
        text = _text(message["text"]["body"])
    elif kind == "button":
        text = _text(message["button"]["text"])
    elif kind == "interactive":
        interactive = message["interactive"]
        replies = (interactive.get("button_reply"), interactive.get("list_reply"))
        text = next((_text(reply["title"]) for reply in replies if reply), None)
    elif kind == "location":
        location = message["location"]
        text = f"[location: {float(location['latitude'])}, {float(location['longitude'])}]"
    elif kind == "contacts":
        names = [_text(item["name"].get("formatted_name")) for item in message["contacts"]]
        text = f"[contact: {', '.join(name for name in names if name)}]"
    return text


def _file(file: Json) -> Media:
    size = file.get("file_size")
    return Media(
        type=(_text(file.get("mime_type")) or "").partition(";")[0] or None,
        name=_text(file.get("filename")),
        size=size if isinstance(size, int) and not isinstance(size, bool) else None,
        source=_required(file["id"]),
    )


def _list(value: object) -> list[Any]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _required(value: object) -> str:
    """Return a text that must be there; raise `ValueError` otherwise."""
    if not isinstance(value, str) or not value:
        raise ValueError("a field is missing")
    return value
