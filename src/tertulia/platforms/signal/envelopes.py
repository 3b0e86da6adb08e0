"""Envelopes of signal-cli, as what the gateway understands. Pure: nothing is asked or sent here.

The person is their UUID, which stays when their phone number changes or is hidden; a message is the
UUID of its author and its time, also in quotes, edits and deletions.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming

Json = Mapping[str, Any]

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class OwnAccount(msgspec.Struct, kw_only=True):
    """The account itself: its number, its UUID once it is known, its name in the sources."""

    number: str
    uuid: str | None = None
    account: str = ""

    def is_self(self, number: object, uuid: object) -> bool:
        """Return whether a number or a UUID is that of the account."""
        return (self.uuid is not None and uuid == self.uuid) or number == self.number


def read_envelope(
    envelope: Json, own: OwnAccount, sent: Container[str]
) -> Incoming | Changed | None:
    """Return the message or the change in an envelope, or None if there is nothing to do.

    `sent` has the times of messages that the account sent lately. Raises one of `MALFORMED` if the
    envelope is malformed.
    """
    if own.is_self(envelope.get("sourceNumber"), envelope.get("sourceUuid")):
        return None
    edit = envelope.get("editMessage")
    if edit is not None:
        message, target = edit["dataMessage"], _time(edit["targetSentTimestamp"])
        return Changed(
            kind="edited",
            source=_source(envelope, message, own),
            message_id=f"{_author(envelope)}:{target}",
            text=_text(message) or None,
            media=_media(envelope, message) if "attachments" in message else None,
        )
    message = envelope.get("dataMessage")
    if message is None:
        return None  # a receipt, a call, somebody types, or our own other device
    if "remoteDelete" in message or "reaction" in message:
        return _change(envelope, message, own)
    return _incoming(envelope, message, own, sent)


def _change(envelope: Json, message: Json, own: OwnAccount) -> Changed:
    source = _source(envelope, message, own)
    if "remoteDelete" in message:
        time = _time(message["remoteDelete"]["timestamp"])
        return Changed(kind="deleted", source=source, message_id=f"{_author(envelope)}:{time}")
    reaction = message["reaction"]
    author = reaction.get("targetAuthorUuid") or reaction.get("targetAuthorNumber")
    return Changed(
        kind="reacted",
        source=source,
        message_id=f"{author}:{_time(reaction['targetSentTimestamp'])}",
        text="" if reaction.get("isRemove") else str(reaction["emoji"]),
    )


def _incoming(
    envelope: Json, message: Json, own: OwnAccount, sent: Container[str]
) -> Incoming | None:
    text, media = _text(message), _media(envelope, message)
    if not text and not media:
        return None
    source = _source(envelope, message, own)
    quote = message.get("quote")
    reply_to = None
    if quote is not None:
        author = quote.get("authorUuid") or quote.get("authorNumber") or quote.get("author")
        reply_to = f"{author}:{_time(quote['id'])}"
    return Incoming(
        source=source,
        text=_as_command(text, message, own) or None,
        message_id=f"{_author(envelope)}:{_time(message.get('timestamp', envelope['timestamp']))}",
        media=media,
        is_addressed=source.chat_type == "dm" or _is_addressed(message, own, sent),
        reply_to=reply_to,
    )


def is_person(chat_id: str) -> bool:
    """Return whether a chat is that with a person: a UUID, a number or a user name."""
    return bool(_UUID.fullmatch(chat_id)) or chat_id.startswith(("+", "u:"))


def _author(envelope: Json) -> str:
    author = envelope.get("sourceUuid") or envelope.get("sourceNumber") or envelope["source"]
    if not isinstance(author, str) or not author:
        raise ValueError("an envelope without a sender")
    return author


def _source(envelope: Json, message: Json, own: OwnAccount) -> Source:
    group = message.get("groupInfo")
    author, number = _author(envelope), envelope.get("sourceNumber")
    return Source(
        "signal",
        author if group is None else _group_id(group),
        account=own.account,
        chat_name=None if group is None else _name(group.get("groupName")),
        chat_type="dm" if group is None else "group",
        # The alternative id is that of the person in keys and roles, because it stays.
        user_id=_name(number) or author,
        user_id_alt=author,
        user_name=_name(envelope.get("sourceName")),
    )


def _group_id(group: Json) -> str:
    group_id = group["groupId"]
    if not isinstance(group_id, str) or not group_id:
        raise ValueError("a group without an id")
    return group_id


def _is_addressed(message: Json, own: OwnAccount, sent: Container[str]) -> bool:
    for mention in message.get("mentions") or ():
        if own.is_self(mention.get("number"), mention.get("uuid")):
            return True
    quote = message.get("quote")
    if quote is None:
        return False
    return own.is_self(quote.get("authorNumber"), quote.get("authorUuid")) or (
        str(quote.get("id")) in sent
    )


def _text(message: Json) -> str:
    """Return the text, with the name of each mentioned person in place of Signal's mark."""
    text = message.get("message") or ""
    if not isinstance(text, str):
        raise TypeError("a text that is none")
    mentions = message.get("mentions") or ()
    if mentions:
        encoded = text.encode("utf-16-le", "surrogatepass")
        for mention in sorted(mentions, key=lambda item: int(item["start"]), reverse=True):
            start, end = int(mention["start"]), int(mention["start"]) + int(mention["length"])
            name = mention.get("name") or mention.get("number") or mention.get("uuid")
            mark = f"@{name}".encode("utf-16-le", "surrogatepass")
            encoded = encoded[: 2 * start] + mark + encoded[2 * end :]
        text = encoded.decode("utf-16-le", "surrogatepass")
    sticker = message.get("sticker")
    if not text and sticker is not None:
        text = f"(sticker: {sticker.get('emoji') or 'no text'})"
    return text


def _as_command(text: str, message: Json, own: OwnAccount) -> str:
    """Return a command after a mention of the account as the gateway reads it."""
    mentions = message.get("mentions") or ()
    for mention in mentions:
        if int(mention["start"]) == 0 and own.is_self(mention.get("number"), mention.get("uuid")):
            name = mention.get("name") or mention.get("number") or mention.get("uuid")
            rest = text.removeprefix(f"@{name}").lstrip()
            return rest if rest.startswith("/") else text
    return text


def _media(envelope: Json, message: Json) -> tuple[Media, ...]:
    group = message.get("groupInfo")
    chat = _author(envelope) if group is None else _group_id(group)
    return tuple(_file(file, chat) for file in message.get("attachments") or ())


def _file(file: Json, chat: str) -> Media:
    size = file.get("size")
    return Media(
        type=_name(file.get("contentType")),
        name=_name(file.get("filename")),
        size=size if isinstance(size, int) else None,
        source=f"{chat}#{file['id']}",
    )


def _time(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError("a time that is none")
    return value


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
