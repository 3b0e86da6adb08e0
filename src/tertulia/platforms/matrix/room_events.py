"""Rooms and their events: who is there, and what an event says."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Literal

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming, Update
from tertulia.platforms.matrix.client_api import Json, as_dict, as_list, as_text
from tertulia.platforms.matrix.event_content import AGENT_MARK

_MEDIA_KINDS: Final = ("m.image", "m.file", "m.audio", "m.video")
# A reply of an older client repeats the other message as quoted lines before its own text.
_REPLY_FALLBACK = re.compile(r"\A(?:> [^\n]*\n|>\n)+\n")
# Names of members that are remembered for each room.
_MAX_NAMES: Final = 10_000


class Room:
    """What is known of a room: its name, how many are in it, and their names."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.alias: str | None = None
        self.topic: str | None = None
        self.joined: int | None = None
        self.invited = 0
        self.is_encrypted = False
        self.is_public = False
        self.replacement: str | None = None
        self._names: OrderedDict[str, str] = OrderedDict()

    @property
    def is_private(self) -> bool:
        """Return whether only one person is in the room with us, and nobody else may enter it.

        A room that is marked as direct counts as a group once a third person is in it: the two
        would share one conversation.
        """
        return not self.is_public and self.joined is not None and self.joined + self.invited <= 2

    def apply(self, event: Json) -> None:
        """Apply a state event."""
        content = as_dict(event.get("content"))
        match event.get("type"):
            case "m.room.name":
                self.name = as_text(content.get("name"))
            case "m.room.canonical_alias":
                self.alias = as_text(content.get("alias"))
            case "m.room.topic":
                self.topic = as_text(content.get("topic"))
            case "m.room.encryption":
                self.is_encrypted = True  # for ever: encryption cannot be switched off
            case "m.room.join_rules":
                self.is_public = content.get("join_rule") == "public"
            case "m.room.tombstone":
                self.replacement = as_text(content.get("replacement_room"))
            case "m.room.member":
                self._apply_member(event.get("state_key"), as_text(content.get("displayname")))

    def _apply_member(self, user_id: object, name: str | None) -> None:
        if isinstance(user_id, str):
            self._names.pop(user_id, None)
            if name is not None:
                self._names[user_id] = name
        while len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)

    def count(self, summary: Json) -> None:
        """Apply the summary of a sync; it has only the numbers that changed."""
        joined, invited = (summary.get(f"m.{kind}_member_count") for kind in ("joined", "invited"))
        if isinstance(joined, int):
            self.joined = joined
        if isinstance(invited, int):
            self.invited = invited

    def name_of(self, user_id: str) -> str | None:
        """Return the display name of a person in this room, if it is known."""
        return self._names.get(user_id)


class EventReader:
    """Turns events into updates, for one account."""

    def __init__(self, account: str, user_id: str) -> None:
        self.account = account
        self.user_id = user_id
        self.display_name: str | None = None
        self.commands: frozenset[str] = frozenset()

    def read(self, event: Json, room_id: str, room: Room) -> Update | None:
        """Return the update of an event, or None if it is not for the agent."""
        event_id, sender = as_text(event.get("event_id")), as_text(event.get("sender"))
        if event_id is None or sender is None or sender == self.user_id or "state_key" in event:
            return None
        content = as_dict(event.get("content"))
        related = as_dict(content.get("m.relates_to"))
        source = self._source(sender, room_id, room, related)
        match event.get("type"):
            case "m.room.message" if related.get("rel_type") == "m.replace":
                return self._read_edit(content, related, source)
            case "m.room.message" | "m.sticker":
                return self._read_message(event, content, related, source)
            case "m.room.redaction":
                target = as_text(event.get("redacts")) or as_text(content.get("redacts"))
                kind: Literal["deleted", "reacted"] = "deleted"
                text = None
            case "m.reaction":
                target, kind = as_text(related.get("event_id")), "reacted"
                text = as_text(related.get("key"))
            case _:
                return None
        if target is None:
            return None
        return Changed(kind=kind, source=source, message_id=target, text=text)

    def _source(self, sender: str, room_id: str, room: Room, related: Json) -> Source:
        is_thread = related.get("rel_type") == "m.thread"
        return Source(
            "matrix",
            room_id,
            account=self.account,
            chat_name=room.name or room.alias,
            chat_type="dm" if room.is_private else "group",
            chat_topic=room.topic,
            user_id=sender,
            user_name=room.name_of(sender),
            thread_id=as_text(related.get("event_id")) if is_thread else None,
        )

    def _read_edit(self, content: Json, related: Json, source: Source) -> Changed | None:
        target, new = as_text(related.get("event_id")), as_dict(content.get("m.new_content"))
        if target is None or not isinstance(new.get("body"), str):
            return None
        text, media = _text_and_media(new, "m.room.message")
        return Changed(
            kind="edited", source=source, message_id=target, media=media,
            text=self._as_command(_without_fallback(text)) if text is not None else None,
        )  # fmt: skip

    def _read_message(
        self, event: Json, content: Json, related: Json, source: Source
    ) -> Incoming | None:
        kind = str(event.get("type"))
        text, media = _text_and_media(content, kind)
        reply_to = as_text(as_dict(related.get("m.in_reply_to")).get("event_id"))
        if related.get("is_falling_back") is True:
            reply_to = None  # only for clients that do not know threads
        if text is not None and "m.in_reply_to" in related:
            text = _without_fallback(text)
        is_bot = content.get("msgtype") == "m.notice" or AGENT_MARK in content
        if (text is None and not media) or content.get("msgtype") == "m.key.verification.request":
            return None
        return Incoming(
            source=source,
            text=None if text is None else self._as_command(text),
            message_id=str(event["event_id"]),
            media=media,
            is_addressed=source.chat_type == "dm" or self._is_mentioned(content, text or ""),
            reply_to=reply_to,
            is_bot=is_bot,
        )

    def _is_mentioned(self, content: Json, text: str) -> bool:
        """Return whether a message names us: as a mention, by our id, or by our name."""
        mentions = as_dict(content.get("m.mentions"))
        if self.user_id in as_list(mentions.get("user_ids")):
            return True
        names = re.compile("|".join(rf"(?<!\w){name}(?!\w)" for name in self._names()), re.I)
        return names.search(text) is not None

    def _names(self) -> Iterable[str]:
        """Return patterns of the names by which people call us."""
        local_part = self.user_id[1:].partition(":")[0]
        names = (self.user_id, f"@{local_part}", self.display_name)
        return [re.escape(name) for name in names if name]

    def _as_command(self, text: str) -> str:
        """Return a command as the gateway reads it; any other text as it is.

        Many clients keep a text that begins with "/" to themselves, so "!new" is taken as well, and
        so is a command after our name.
        """
        names = "|".join(self._names())
        match = re.fullmatch(rf"\s*(?:(?:{names})[:,]?\s+)?([/!])(\w+)(.*)", text, re.I | re.S)
        if match is None or (match[1] == "!" and match[2].lower() not in self.commands):
            return text
        return text if match[1] == "/" and match.start(1) == 0 else f"/{match[2]}{match[3]}"


def _text_and_media(content: Json, event_type: str) -> tuple[str | None, tuple[Media, ...]]:
    """Return the text and the files of a message. Of a file without a caption, there is no text."""
    body = as_text(content.get("body"))
    is_sticker = event_type == "m.sticker"
    if not is_sticker and content.get("msgtype") not in _MEDIA_KINDS:
        return body, ()
    info = as_dict(content.get("info"))
    size, name = info.get("size"), as_text(content.get("filename"))
    media = Media(
        type=as_text(info.get("mimetype")),
        name=name or body,
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        source=as_text(content.get("url")),
    )
    return (body if is_sticker or (name and name != body) else None), (media,)


def _without_fallback(text: str) -> str:
    return _REPLY_FALLBACK.sub("", text, count=1)
