"""Matrix: rooms and direct messages on any homeserver, over its client-server API.

The cursor is the token of /sync: the homeserver sends everything after it again, until we ask with
the next one. It moves behind what is stored, so nothing is lost while no gateway runs. After a long
time the homeserver leaves out the middle of a timeline; the gap is then read page by page. With no
cursor, listening begins with the messages that come from then on.

A send has a transaction id that is derived from its delivery: the homeserver accepts it once and
answers a repeated one with the same event. An answer that is streamed is one message that is
edited; its transaction id is derived from the message it answers, so that no second one is ever
begun, and the complete answer is its last edit.

End-to-end encryption is not supported: an encrypted room gets one sentence that says so. The tests
use a real homeserver (decision 0018).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from msgspec.structs import replace

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.media import Media
from tertulia.core.secret import Secret
from tertulia.core.source import Source
from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import FormattedText, to_html, to_plain
from tertulia.errors import (
    AccountProblem,
    ConfigError,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreError,
    TooLarge,
)
from tertulia.install_command import install_command
from tertulia.platforms.base import (
    Adapter,
    Changed,
    Incoming,
    MenuEntry,
    Outgoing,
    Passed,
    Receive,
    StreamUpdate,
    Update,
)
from tertulia.platforms.definition import BuildContext, PlatformDefinition, SetupQuestion
from tertulia.platforms.settings import PlatformSettings

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("tertulia.platforms.matrix")

Join = Literal["invited", "allowed", "never"]
"""The invitations that are accepted: all, those of people in allow and owners, or none."""

ENCRYPTED: Final = (
    "I cannot read this room, because it is end-to-end encrypted. Please write to me in a room"
    " without encryption."
)
# An event has at most 65,536 bytes, with signatures and references. An edit repeats a little.
MAX_CONTENT_BYTES: Final = 48_000
_POLL_SECONDS: Final = 30.0
# A poll that takes so long has lost its connection.
_SILENCE_SECONDS: Final = 60.0
_FIRST_SYNC_SECONDS: Final = 180.0
_REQUEST_SECONDS: Final = 30.0
_SHOW_SECONDS: Final = 5.0
_TYPING_SECONDS: Final = 20.0
_TIMELINE_EVENTS: Final = 50
_PAGE_EVENTS: Final = 100
# The messages between an invitation and our joining that are read; more are left unanswered.
_MAX_BEFORE_JOIN: Final = 500
_MAX_JOIN_TRIES: Final = 8
_MAX_REMEMBERED: Final = 10_000
_PLAIN_SECONDS: Final = 60.0
_EDIT_PREVIEW: Final = 200
_LONGEST_PAUSE: Final = 3600.0
_RECONNECT: Final = Backoff(first=1, longest=30)
# Tells other instances of this program that a program wrote the message.
_AGENT_MARK: Final = "tertulia.agent"
_NOTICES: Final = "tertulia.notices"

_ACCOUNT_ERRORS: Final = frozenset({
    "M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED",
    "M_USER_SUSPENDED", "M_CONSENT_NOT_GIVEN", "ORG_MATRIX_EXPIRED_ACCOUNT",
})  # fmt: skip
_LATER_ERRORS: Final = frozenset({"M_RESOURCE_LIMIT_EXCEEDED"})
_MEDIA_KINDS: Final = ("m.image", "m.file", "m.audio", "m.video")
_STATE_TYPES: Final = [
    "m.room.name", "m.room.canonical_alias", "m.room.topic", "m.room.member",
    "m.room.encryption", "m.room.join_rules", "m.room.tombstone",
]  # fmt: skip
_TIMELINE_TYPES: Final = [
    *_STATE_TYPES, "m.room.message", "m.room.encrypted", "m.room.redaction", "m.reaction",
    "m.sticker",
]  # fmt: skip
_MEMBERS: Final = {"lazy_load_members": True, "include_redundant_members": True}
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]+)/([A-Za-z0-9._~-]+)")
# A reply of an older client repeats the other message as quoted lines before its own text.
_REPLY_FALLBACK = re.compile(r"\A(?:> [^\n]*\n|>\n)+\n")
_CONTROL = dict.fromkeys(set(range(32)) - {9, 10})

Json = dict[str, Any]


class MatrixSettings(PlatformSettings, frozen=True, kw_only=True):
    """An account on a Matrix homeserver.

    base_url    the address of the homeserver, such as https://matrix.example.org
    token       the access token of the account; better kept out of the file
    token_env   the environment variable that contains it
    user_id     the id of the account, such as @agent:example.org; checked if it is set
    join        which invitations are accepted: all (invited), those of people in allow and owners
                (allowed), or none (never)
    """

    base_url: str
    token: Secret | None = None
    token_env: str | None = None
    user_id: str | None = None
    join: Join = "invited"


# -- the content of events


def format_text(markdown: str) -> list[FormattedText]:
    """Return the agent's Markdown as messages that fit into an event each."""
    return format_parts(markdown, MAX_CONTENT_BYTES, _content_bytes)


def text_content(text: FormattedText) -> Json:
    """Return the content of a message: the plain text, and HTML if it is formatted.

    The empty `m.mentions` says that nobody is to be notified, whatever names the text contains.
    """
    content: Json = {"msgtype": "m.text", "body": to_plain(text), "m.mentions": {}, _AGENT_MARK: {}}
    if text.spans:
        content |= {"format": "org.matrix.custom.html", "formatted_body": to_html(text)}
    return content


def edit_content(content: Json, event_id: str) -> Json:
    """Return the content of an edit. Clients that cannot show edits show the beginning of it."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:_EDIT_PREVIEW]}",
        "m.mentions": {},
        _AGENT_MARK: {},
        "m.new_content": {key: content[key] for key in content if key != "m.relates_to"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }


def relation(thread_id: str | None, reply_to: str | None) -> Json:
    """Return the relation of a message to its thread and to the message it replies to."""
    reply: Json = {"m.in_reply_to": {"event_id": reply_to or thread_id}}
    if thread_id is not None:
        thread = {"rel_type": "m.thread", "event_id": thread_id}
        return {"m.relates_to": {**thread, "is_falling_back": reply_to is None, **reply}}
    return {"m.relates_to": reply} if reply_to is not None else {}


def _content_bytes(text: FormattedText) -> int:
    return len(_encode(text_content(text)))


def _encode(body: Mapping[str, Any]) -> bytes:
    """Return JSON that a homeserver accepts: without lone surrogates."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _as_dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


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
        content = _as_dict(event.get("content"))
        match event.get("type"):
            case "m.room.name":
                self.name = _as_text(content.get("name"))
            case "m.room.canonical_alias":
                self.alias = _as_text(content.get("alias"))
            case "m.room.topic":
                self.topic = _as_text(content.get("topic"))
            case "m.room.encryption":
                self.is_encrypted = True  # for ever: encryption cannot be switched off
            case "m.room.join_rules":
                self.is_public = content.get("join_rule") == "public"
            case "m.room.tombstone":
                self.replacement = _as_text(content.get("replacement_room"))
            case "m.room.member":
                self._apply_member(event.get("state_key"), _as_text(content.get("displayname")))

    def _apply_member(self, user_id: object, name: str | None) -> None:
        if isinstance(user_id, str):
            self._names.pop(user_id, None)
            if name is not None:
                self._names[user_id] = name
        while len(self._names) > _MAX_REMEMBERED:
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
        event_id, sender = _as_text(event.get("event_id")), _as_text(event.get("sender"))
        if event_id is None or sender is None or sender == self.user_id or "state_key" in event:
            return None
        content = _as_dict(event.get("content"))
        related = _as_dict(content.get("m.relates_to"))
        source = self._source(sender, room_id, room, related)
        match event.get("type"):
            case "m.room.message" if related.get("rel_type") == "m.replace":
                return self._read_edit(content, related, source)
            case "m.room.message" | "m.sticker":
                return self._read_message(event, content, related, source)
            case "m.room.redaction":
                target = _as_text(event.get("redacts")) or _as_text(content.get("redacts"))
                kind: Literal["deleted", "reacted"] = "deleted"
                text = None
            case "m.reaction":
                target, kind = _as_text(related.get("event_id")), "reacted"
                text = _as_text(related.get("key"))
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
            thread_id=_as_text(related.get("event_id")) if is_thread else None,
        )

    def _read_edit(self, content: Json, related: Json, source: Source) -> Changed | None:
        target, new = _as_text(related.get("event_id")), _as_dict(content.get("m.new_content"))
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
        reply_to = _as_text(_as_dict(related.get("m.in_reply_to")).get("event_id"))
        if related.get("is_falling_back") is True:
            reply_to = None  # only for clients that do not know threads
        if text is not None and "m.in_reply_to" in related:
            text = _without_fallback(text)
        is_bot = content.get("msgtype") == "m.notice" or _AGENT_MARK in content
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
        mentions = _as_dict(content.get("m.mentions"))
        if self.user_id in _as_list(mentions.get("user_ids")):
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
    body = _as_text(content.get("body"))
    is_sticker = event_type == "m.sticker"
    if not is_sticker and content.get("msgtype") not in _MEDIA_KINDS:
        return body, ()
    info = _as_dict(content.get("info"))
    size, name = info.get("size"), _as_text(content.get("filename"))
    media = Media(
        type=_as_text(info.get("mimetype")),
        name=name or body,
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        source=_as_text(content.get("url")),
    )
    return (body if is_sticker or (name and name != body) else None), (media,)


def _without_fallback(text: str) -> str:
    return _REPLY_FALLBACK.sub("", text, count=1)


# -- the adapter


class MatrixAdapter(Adapter):
    """The adapter of one account on a homeserver."""

    name = "matrix"
    listens_alone = True
    # Synapse remembers transaction ids for a day, others for half an hour.
    idempotent_seconds = 1500.0
    typing_seconds = _TYPING_SECONDS

    def __init__(
        self, settings: MatrixSettings, token: str, *, account: str = "", draft_seconds: float = 2.0
    ) -> None:
        if not settings.base_url.startswith(("https://", "http://")):
            raise ConfigError(
                "The address of the homeserver is not allowed.",
                hint='Set for example: base_url = "https://matrix.example.org"',
                field="base_url",
            )
        self.account = account
        self.draft_seconds = None if settings.stream == "off" else draft_seconds
        self.draft_delay_seconds = draft_seconds
        self._settings = settings
        self._token = token
        self._base_url = settings.base_url.rstrip("/")
        self._client: httpx2.AsyncClient | None = None
        self._reader: EventReader | None = None
        self._rooms: dict[str, Room] = {}
        self._menu: tuple[MenuEntry, ...] = ()
        # Whether an event is ours, and drafts by their transaction.
        self._own_events: OrderedDict[str, bool] = OrderedDict()
        self._drafts: OrderedDict[str, _Draft] = OrderedDict()
        # Until when a room that we do not listen to is taken to be without encryption.
        self._plain_until: OrderedDict[str, float] = OrderedDict()
        self._explained: set[str] = set()
        self._joins: dict[str, asyncio.Task[None]] = {}
        self._quiet_until = 0.0
        # Homeservers answer the same first sync from a cache, for minutes; this makes it another.
        self._fresh = "!0:none.invalid"

    # -- who we are

    async def identify(self) -> str:
        """Return the id of the account and its name."""
        reader = await self._identify()
        name = f" ({reader.display_name})" if reader.display_name else ""
        return f"{reader.user_id}{name}"

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Remember the commands, which people may also write with "!": Matrix has no menu."""
        self._menu = entries

    async def _identify(self) -> EventReader:
        """Ask the homeserver whose token this is; raise `AccountProblem` if it is another's."""
        answer = await self._get("/_matrix/client/v3/account/whoami")
        user_id = _as_text(answer.get("user_id"))
        if user_id is None:
            raise PlatformUnavailable(
                "The homeserver does not say whose token this is.", hint="Check base_url."
            )
        if self._settings.user_id not in (None, user_id):
            raise AccountProblem(
                f"The token belongs to {user_id}, not to {self._settings.user_id}.",
                hint="Correct user_id or the token.",
            )
        reader = EventReader(self.account or "", user_id)
        try:
            profile = await self._get(f"/_matrix/client/v3/profile/{quote(user_id, safe='')}")
            reader.display_name = _as_text(profile.get("displayname"))
        except Refused:
            log.debug("matrix: the account has no profile")
        reader.commands = frozenset(entry.name for entry in self._menu)
        self._reader = reader
        return reader

    async def _own_id(self) -> str:
        return (self._reader or await self._identify()).user_id

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over what people write, from the cursor on, until cancelled."""
        attempts = 0
        reader: EventReader | None = None
        since = ""
        self._fresh = f"!{os.urandom(8).hex()}:none.invalid"
        try:
            while True:
                try:
                    if reader is None:
                        reader, since = await self._begin(receive)
                    since = await self._receive_next(receive, reader, since)
                    self.mark_listening()
                    attempts = 0
                except (PlatformUnavailable, RateLimited, StoreError) as problem:
                    if not problem.retryable:
                        raise
                    attempts += 1
                    await self._pause(problem, attempts)
        except AccountProblem as problem:
            self.mark_problem(problem.message)
            raise
        finally:
            joins, self._joins = self._joins, {}
            for task in joins.values():
                task.cancel()
            await asyncio.gather(*joins.values(), return_exceptions=True)
            if self.state.listening:
                self.mark_problem(None)

    async def _pause(self, problem: PlatformError | StoreError, attempts: int) -> None:
        """Wait before the next connection. One failed poll is no news, a second one is."""
        seconds = max(_RECONNECT.delay(attempts, JITTER.random()), problem.retry_after or 0.0)
        if attempts > 1:
            self.mark_problem(problem.message)
        log.warning("matrix sync failed, retrying in %.1f s: %s", seconds, problem)
        await asyncio.sleep(seconds)

    async def _begin(self, receive: Receive) -> tuple[EventReader, str]:
        """Load the rooms; return where to begin."""
        reader = await self._identify()
        answer = await self._sync(None)
        for room_id, part in _rooms(answer, "join"):
            self._apply_state(room_id, part)
        self._accept_invitations(answer, reader)
        user_id, _, since = (self.cursor or "").partition(" ")
        if since and user_id == reader.user_id:
            return reader, since
        since = str(answer["next_batch"])
        await self._move_cursor(receive, reader, since)
        self.mark_listening()
        return reader, since

    async def _receive_next(self, receive: Receive, reader: EventReader, since: str) -> str:
        """Wait for the next events and hand them over; return where to continue."""
        try:
            answer = await self._sync(since)
        except Refused as problem:
            if problem.status != 400:
                raise
            # The homeserver does not know the token any more; it was set up anew, for example.
            log.warning("matrix: the homeserver refused the cursor, beginning with new messages")
            answer = await self._sync(None)
            await self._move_cursor(receive, reader, str(answer["next_batch"]))
            return str(answer["next_batch"])
        self._accept_invitations(answer, reader)
        for room_id, _ in _rooms(answer, "leave"):
            self._rooms.pop(room_id, None)
        for room_id, part in _rooms(answer, "join"):
            await self._receive_room(receive, reader, room_id, part, since)
        if answer["next_batch"] != since:
            await self._move_cursor(receive, reader, answer["next_batch"])
        return str(answer["next_batch"])

    async def _move_cursor(self, receive: Receive, reader: EventReader, since: str) -> None:
        # The account stands in it: the token of another one means nothing to this one.
        cursor = f"{reader.user_id} {since}"
        await receive(Passed(cursor=cursor))
        self.cursor = cursor

    async def _sync(self, since: str | None) -> Json:
        room_filter: Json = {
            "timeline": {
                "limit": _TIMELINE_EVENTS if since else 1,
                "types": _TIMELINE_TYPES,
                **_MEMBERS,
            },
            "state": {"types": _STATE_TYPES, **_MEMBERS},
            "ephemeral": {"types": []},
            "account_data": {"types": []},
            "not_rooms": [self._fresh],
        }
        options = {"room": room_filter, "presence": {"types": []}, "account_data": {"types": []}}
        params = {"filter": json.dumps(options), "set_presence": "online"}
        if since is not None:
            params |= {"since": since, "timeout": str(int(_POLL_SECONDS * 1000))}
        timeout = _SILENCE_SECONDS if since else _FIRST_SYNC_SECONDS
        answer = await self._get("/_matrix/client/v3/sync", params, seconds=timeout)
        if _as_text(answer.get("next_batch")) is None:
            raise PlatformUnavailable("The homeserver sent no sync.", hint="Check base_url.")
        return answer

    def _apply_state(self, room_id: str, part: Json) -> Room:
        room = self._rooms.setdefault(room_id, Room())
        for event in _events(part, "state"):
            room.apply(event)
        room.count(_as_dict(part.get("summary")))
        return room

    async def _receive_room(
        self, receive: Receive, reader: EventReader, room_id: str, part: Json, since: str
    ) -> None:
        """Hand over the events of one room, with those that the homeserver left out."""
        is_new = room_id not in self._rooms
        room = self._apply_state(room_id, part)
        timeline = _as_dict(part.get("timeline"))
        events = _events(part, "timeline")
        before = _as_text(timeline.get("prev_batch"))
        is_limited = timeline.get("limited") is True and before is not None
        is_new = is_new or any(_is_join(event, reader.user_id) for event in events)
        if is_new:
            if is_limited and not _starts(events, reader.user_id):
                earlier = await self._read_back(room_id, before or "", reader)
                events = earlier + events
            for event in events:
                if "state_key" in event:
                    room.apply(event)
            events = _after_start(events, reader.user_id)
        elif is_limited:
            async for page in self._read_gap(room_id, since, before or "", room):
                await self._hand_over(receive, reader, room_id, room, page)
        await self._hand_over(receive, reader, room_id, room, events)
        if room.replacement is not None and self._settings.join != "never":
            self._start_join(room.replacement)

    async def _hand_over(
        self, receive: Receive, reader: EventReader, room_id: str, room: Room, events: list[Json]
    ) -> None:
        for event in events:
            if "state_key" in event:
                room.apply(event)
            elif event.get("type") == "m.room.encrypted":
                await self._explain_encryption(room_id, room, event, reader)
            else:
                await self._hand_over_event(receive, reader, room_id, room, event)

    async def _hand_over_event(
        self, receive: Receive, reader: EventReader, room_id: str, room: Room, event: Json
    ) -> None:
        try:
            update = reader.read(event, room_id, room)
        except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as problem:
            # One event that is not understood must not stop those after it.
            log.warning("matrix: an event was skipped (%s)", type(problem).__name__)
            return
        if isinstance(update, Incoming) and not update.is_addressed and update.reply_to:
            is_reply_to_us = await self._is_own_event(room_id, update.reply_to, reader.user_id)
            update = replace(update, is_addressed=is_reply_to_us)
        if update is not None:
            await receive(update)

    async def _is_own_event(self, room_id: str, event_id: str, own_id: str) -> bool:
        """Return whether an event is ours; False if that cannot be found out."""
        if event_id not in self._own_events:
            path = f"/_matrix/client/v3/rooms/{_q(room_id)}/event/{_q(event_id)}"
            try:
                event = await self._get(path)
            except Refused:
                event = {}
            self._remember_event(event_id, is_own=event.get("sender") == own_id)
        return self._own_events[event_id]

    def _remember_event(self, event_id: str, *, is_own: bool) -> None:
        self._own_events[event_id] = is_own
        while len(self._own_events) > _MAX_REMEMBERED:
            self._own_events.popitem(last=False)

    # -- gaps in a timeline

    async def _read_gap(
        self, room_id: str, since: str, until: str, room: Room
    ) -> AsyncGenerator[list[Json], None]:
        """Yield the events between two tokens, oldest first, in pages."""
        position: str | None = since
        while position is not None:
            page = await self._messages(room_id, "f", position, until)
            for event in _as_list(page.get("state")):
                room.apply(_as_dict(event))
            chunk = [event for event in _as_list(page.get("chunk")) if isinstance(event, dict)]
            yield chunk
            end = _as_text(page.get("end"))
            position = end if chunk and end not in (position, until) else None

    async def _read_back(self, room_id: str, before: str, reader: EventReader) -> list[Json]:
        """Return the events before a token, oldest first, back to our invitation."""
        events: list[Json] = []
        position: str | None = before
        while position is not None and len(events) < _MAX_BEFORE_JOIN:
            page = await self._messages(room_id, "b", position, None)
            chunk = [event for event in _as_list(page.get("chunk")) if isinstance(event, dict)]
            events = [*reversed(chunk), *events]
            end = _as_text(page.get("end"))
            is_over = not chunk or end == position or bool(_starts(events, reader.user_id))
            position = None if is_over else end
        return events

    async def _messages(self, room_id: str, direction: str, start: str, end: str | None) -> Json:
        params = {
            "dir": direction,
            "from": start,
            "limit": str(_PAGE_EVENTS),
            "filter": json.dumps({"types": _TIMELINE_TYPES, **_MEMBERS}),
        }
        if end is not None:
            params["to"] = end
        try:
            return await self._get(f"/_matrix/client/v3/rooms/{_q(room_id)}/messages", params)
        except Refused as problem:
            # We are not in the room any more: nothing in it can be answered.
            log.info("matrix: older messages of a room cannot be read: %s", problem.message)
            return {}

    # -- invitations

    def _accept_invitations(self, answer: Json, reader: EventReader) -> None:
        for room_id, part in _rooms(answer, "invite"):
            inviter, is_direct = None, False
            for event in _as_list(_as_dict(part.get("invite_state")).get("events")):
                if _as_dict(event).get("state_key") == reader.user_id:
                    inviter = _as_text(event.get("sender"))
                    is_direct = _as_dict(event.get("content")).get("is_direct") is True
            if self._accepts(inviter):
                self._start_join(room_id, inviter if is_direct else None)

    def _accepts(self, inviter: str | None) -> bool:
        settings = self._settings
        if settings.join == "allowed":
            return inviter in {*settings.allow, *settings.owners}
        return settings.join == "invited"

    def _start_join(self, room_id: str, direct_with: str | None = None) -> None:
        """Join a room in the background: with a slow server of others it may take minutes."""
        if room_id in self._joins or room_id in self._rooms:
            return
        task = asyncio.create_task(self._join(room_id, direct_with))
        self._joins[room_id] = task
        task.add_done_callback(lambda _: self._joins.pop(room_id, None))

    async def _join(self, room_id: str, direct_with: str | None) -> None:
        for attempt in range(1, _MAX_JOIN_TRIES + 1):
            try:
                await self._post(f"/_matrix/client/v3/join/{_q(room_id)}", {})
                if direct_with is not None:
                    await self._mark_direct(room_id, direct_with)
            except (PlatformUnavailable, RateLimited, OutcomeUnknown) as problem:
                delay = _RECONNECT.delay(attempt, JITTER.random())
                await asyncio.sleep(max(delay, problem.retry_after or 0.0))
            except PlatformError as problem:
                log.warning("matrix: a room could not be joined: %s", problem)
                return
            else:
                log.info("matrix: joined a room")
                return

    async def _mark_direct(self, room_id: str, user_id: str) -> None:
        """Note the room as the direct chat with a person, as clients do."""
        path = f"/_matrix/client/v3/user/{_q(await self._own_id())}/account_data/m.direct"
        direct = await self._direct_rooms()
        rooms = [*_as_list(direct.get(user_id)), room_id]
        await self._put(path, {**direct, user_id: rooms})

    async def _direct_rooms(self) -> Json:
        path = f"/_matrix/client/v3/user/{_q(await self._own_id())}/account_data/m.direct"
        try:
            return await self._get(path)
        except Refused:
            return {}  # there is none yet

    # -- encrypted rooms

    async def _explain_encryption(
        self, room_id: str, room: Room, event: Json, reader: EventReader
    ) -> None:
        """Say once in a room that it cannot be read; the homeserver remembers that it was said."""
        room.is_encrypted = True
        if room_id in self._explained or event.get("sender") == reader.user_id:
            return
        if not room.is_private and self._settings.groups == "never":
            return
        notices = f"/_matrix/client/v3/user/{_q(reader.user_id)}/rooms/{_q(room_id)}/account_data"
        try:
            try:
                said = await self._get(f"{notices}/{_NOTICES}")
            except Refused:
                said = {}
            if not said.get("encryption"):
                content = {**text_content(FormattedText(ENCRYPTED)), "msgtype": "m.notice"}
                await self._put_event(room_id, content, _transaction("encryption", room_id))
                await self._put(f"{notices}/{_NOTICES}", {**said, "encryption": True})
            self._explained.add(room_id)
        except AccountProblem:
            raise
        except PlatformError as problem:
            log.warning("matrix: an encrypted room could not be told so: %s", problem)

    async def _refuse_encrypted(self, room_id: str) -> None:
        """Raise `Refused` if a room is encrypted: a plain text there would break its secrecy."""
        room = self._rooms.get(room_id)
        is_encrypted = room is not None and room.is_encrypted
        if not is_encrypted and (room is None or not self.state.listening):
            is_encrypted = await self._ask_encrypted(room_id)
        if is_encrypted:
            raise Refused(
                "The room is end-to-end encrypted, which is not supported.",
                hint="Use a room without encryption.",
            )

    async def _ask_encrypted(self, room_id: str) -> bool:
        if self._plain_until.get(room_id, 0.0) > time.monotonic():
            return False
        try:
            path = f"/_matrix/client/v3/rooms/{_q(room_id)}/state/m.room.encryption/"
            await self._get(path)
        except Refused:
            self._plain_until.pop(room_id, None)
            self._plain_until[room_id] = time.monotonic() + _PLAIN_SECONDS
            while len(self._plain_until) > _MAX_REMEMBERED:
                self._plain_until.popitem(last=False)
            return False
        return True

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its event id; raise a `PlatformError` if it is refused."""
        room_id = await self._room_of(message.chat_id)
        await self._refuse_encrypted(room_id)
        transaction = _transaction(
            message.delivery, room_id, message.thread_id, message.reply_to, message.text,
            message.media.name if message.media else None,
        )  # fmt: skip
        if message.media is not None:
            content = await self._upload(message.media, message.content, message.text)
        else:
            content = _text_to_send(message)
        content |= relation(message.thread_id, message.reply_to)
        if message.replaces is not None:
            try:
                edit = edit_content(content, message.replaces)
                await self._put_event(room_id, edit, transaction)
            except Refused:
                log.info("matrix: a draft is gone, the answer is sent as a new message")
            else:
                return message.replaces
        return await self._send_content(room_id, content, transaction)

    async def _send_content(self, room_id: str, content: Json, transaction: str) -> str:
        try:
            return await self._put_event(room_id, content, transaction)
        except (Refused, TooLarge):
            if "formatted_body" not in content:
                raise
        # It was clearly refused, so it may go once more, without the formatting.
        plain = {
            key: value for key, value in content.items() if key not in ("format", "formatted_body")
        }
        return await self._put_event(room_id, plain, transaction)

    async def _put_event(self, room_id: str, content: Json, transaction: str) -> str:
        path = f"/_matrix/client/v3/rooms/{_q(room_id)}/send/m.room.message/{transaction}"
        answer = await self._put(path, content)
        event_id = _as_text(answer.get("event_id"))
        if event_id is None:
            raise OutcomeUnknown(
                "The homeserver gave the message no id.", hint="Check whether it arrived."
            )
        self._remember_event(event_id, is_own=True)
        return event_id

    async def _room_of(self, chat_id: str | None) -> str:
        """Return the id of a room: given itself, by its alias, or as the chat with a person."""
        chat_id = chat_id or ""
        if chat_id.startswith("#"):
            answer = await self._get(f"/_matrix/client/v3/directory/room/{_q(chat_id)}")
            return _as_text(answer.get("room_id")) or ""
        if chat_id.startswith("@"):
            for room_id in _as_list((await self._direct_rooms()).get(chat_id)):
                if isinstance(room_id, str):
                    return room_id
            raise Refused(
                "There is no direct chat with that person yet.",
                hint="Let the person write first, or use the id of a room.",
            )
        if not chat_id.startswith("!"):
            raise Refused("This is no room of Matrix.", hint="The id of a room begins with '!'.")
        return chat_id

    async def _upload(self, media: Media, content: bytes, caption: str) -> Json:
        kind = (media.type or "").partition("/")[0]
        name = (media.name or "file").translate(_CONTROL)
        answer = await self._call(
            "POST", "/_matrix/media/v3/upload", params={"filename": name}, content=content,
            content_type=media.type or "application/octet-stream", seconds=_FIRST_SYNC_SECONDS,
            is_read=True,
        )  # fmt: skip
        uri = _as_text(answer.get("content_uri"))
        if uri is None:
            raise PlatformUnavailable("The homeserver did not store the file.", hint="Try again.")
        info: Json = {"size": len(content)}
        if media.type:
            info["mimetype"] = media.type
        return {
            "msgtype": f"m.{kind}" if kind in ("image", "audio", "video") else "m.file",
            "body": caption or name,
            "filename": name,
            "url": uri,
            "info": info,
            "m.mentions": {},
            _AGENT_MARK: {},
        }

    # -- files of people

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file by its mxc:// address."""
        match = _MXC.fullmatch(media.source or "")
        if match is None or match[1].strip(".") == "" or match[2].strip(".") == "":
            raise Refused("The file has no valid address.", hint="Ask for it to be sent again.")
        httpx2 = _library()
        prefixes = ("/_matrix/client/v1/media", "/_matrix/media/v3")
        try:
            for prefix in prefixes:
                path = f"{prefix}/download/{_q(match[1])}/{_q(match[2])}"
                async with self._open_client().stream(
                    "GET", self._base_url + path, headers=self._headers(), follow_redirects=True,
                    timeout=_SILENCE_SECONDS,
                ) as response:  # fmt: skip
                    if response.is_success:
                        async for chunk in response.aiter_bytes():
                            yield chunk
                        return
                    answer = _decode(await response.aread()) or {}
                    # Homeservers before 1.11 of the specification know only the older path.
                    is_old = answer.get("errcode") == "M_UNRECOGNIZED" and prefix is prefixes[0]
                    if not is_old:
                        raise _error_of(response, answer, is_read=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            raise _unreachable(problem) from None

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show that the agent is typing, or the answer so far; return the id of its message."""
        transaction = _transaction("draft", source.chat_id, update.turn, update.message_id)
        if time.monotonic() >= self._quiet_until:
            try:
                async with asyncio.timeout(_SHOW_SECONDS):
                    await self._show(source, update, transaction)
            except RateLimited as problem:
                # The next drafts wait: the complete answer needs what is left of the rate.
                self._quiet_until = time.monotonic() + problem.retry_after
            except (PlatformError, TimeoutError) as problem:
                log.debug("matrix: progress could not be shown: %s", type(problem).__name__)
        draft = self._drafts.get(transaction)
        if update.kind == "ended":
            self._drafts.pop(transaction, None)
        return draft.event_id if draft is not None else None

    async def _show(self, source: Source, update: StreamUpdate, transaction: str) -> None:
        room_id = source.chat_id
        match update.kind:
            case "began":
                if update.is_retry:
                    await self._find_draft(room_id, transaction)
                await self._mark_read(source, update.message_id)
                await self._show_typing(room_id, is_typing=True)
            case "typing" | "tool":
                await self._show_typing(room_id, is_typing=True)
            case "draft" if update.message_id is not None and update.text.strip():
                await self._show_draft(source, update.text, transaction)
            case "ended":
                await self._show_typing(room_id, is_typing=False)
                await self._remove_uncertain(room_id, transaction)

    async def _show_typing(self, room_id: str, *, is_typing: bool) -> None:
        user_id = await self._own_id()
        path = f"/_matrix/client/v3/rooms/{_q(room_id)}/typing/{_q(user_id)}"
        timeout = {"timeout": int(_TYPING_SECONDS * 1500)} if is_typing else {}
        await self._put(path, {"typing": is_typing, **timeout}, is_read=True)

    async def _mark_read(self, source: Source, message_id: str | None) -> None:
        if message_id is not None:
            path = f"/_matrix/client/v3/rooms/{_q(source.chat_id)}/receipt/m.read/{_q(message_id)}"
            await self._post(path, {"thread_id": source.thread_id or "main"})

    async def _show_draft(self, source: Source, text: str, transaction: str) -> None:
        await self._refuse_encrypted(source.chat_id)
        content = text_content(format_text(text)[0]) | relation(source.thread_id, None)
        content[_AGENT_MARK] = {"draft": transaction}
        draft = self._drafts.setdefault(transaction, _Draft())
        while len(self._drafts) > _MAX_REMEMBERED:
            self._drafts.popitem(last=False)
        if draft.is_refused or draft.content == content:
            return
        try:
            if draft.event_id is None:
                draft.is_uncertain = True
                draft.event_id = await self._put_event(source.chat_id, content, transaction)
                draft.is_uncertain = False
            else:
                edit = edit_content(content, draft.event_id)
                await self._put_event(source.chat_id, edit, _transaction(transaction, content))
            draft.content = content
        except (Refused, TooLarge):
            draft.is_refused, draft.is_uncertain = True, False

    async def _find_draft(self, room_id: str, transaction: str) -> None:
        """Find the draft that a process has left which died in this turn."""
        own_events = {"types": ["m.room.message"], "senders": [await self._own_id()]}
        path = f"/_matrix/client/v3/rooms/{_q(room_id)}/messages"
        params = {"dir": "b", "limit": str(_PAGE_EVENTS), "filter": json.dumps(own_events)}
        for event in _as_list((await self._get(path, params)).get("chunk")):
            content = _as_dict(_as_dict(event).get("content"))
            is_draft = _as_dict(content.get(_AGENT_MARK)).get("draft") == transaction
            if is_draft and "m.new_content" not in content:
                draft = self._drafts.setdefault(transaction, _Draft())
                draft.event_id = _as_text(event.get("event_id"))

    async def _remove_uncertain(self, room_id: str, transaction: str) -> None:
        """Remove a draft whose id we did not get: the answer cannot replace it."""
        draft = self._drafts.get(transaction)
        if draft is not None and draft.is_uncertain:
            content = text_content(FormattedText("…"))
            event_id = await self._put_event(room_id, content, transaction)
            path = f"/_matrix/client/v3/rooms/{_q(room_id)}/redact/{_q(event_id)}"
            await self._put(f"{path}/{_transaction('redact', event_id)}", {})

    # -- requests

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        seconds: float = _REQUEST_SECONDS,
    ) -> Json:
        return await self._call("GET", path, params=params, seconds=seconds, is_read=True)

    async def _put(self, path: str, body: Json, *, is_read: bool = False) -> Json:
        return await self._call("PUT", path, content=_encode(body), is_read=is_read)

    async def _post(self, path: str, body: Json) -> Json:
        return await self._call("POST", path, content=_encode(body), is_read=True)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        seconds: float = _REQUEST_SECONDS,
        is_read: bool = False,
    ) -> Json:
        """Send a request and return its answer; raise a `PlatformError` otherwise.

        `is_read`: it may be repeated without harm, so no outcome of it is unknown. No URL and no
        header stands in an error.
        """
        httpx2 = _library()
        try:
            response = await self._open_client().request(
                method, self._base_url + path, params=params, content=content, timeout=seconds,
                headers={**self._headers(), "Content-Type": content_type},
            )  # fmt: skip
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as problem:
            raise _unreachable(problem) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            if is_read:
                raise _unreachable(problem) from None
            raise _unknown(f"The homeserver did not answer ({type(problem).__name__}).") from None
        answer = _decode(response.content)
        if response.is_success and answer is not None:
            return answer
        if response.is_success and not is_read:
            raise _unknown("The homeserver sent an answer that is not JSON.")
        raise _error_of(response, answer, is_read=is_read)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            httpx2 = _library()
            limits = httpx2.Limits(max_connections=200, max_keepalive_connections=20)
            self._client = httpx2.AsyncClient(
                limits=limits, follow_redirects=False, verify=self._base_url.startswith("https:")
            )
        assert self._client is not None
        return self._client


class _Draft:
    """The message of an answer that is being written."""

    def __init__(self) -> None:
        self.event_id: str | None = None
        self.content: Json | None = None
        self.is_uncertain = False  # it may have been sent, but we do not know its id
        self.is_refused = False


def _text_to_send(message: Outgoing) -> Json:
    text = FormattedText(message.text, message.spans)
    content = text_content(text)
    content["body"] = content["body"].translate(_CONTROL)
    return content


def _transaction(*parts: object) -> str:
    """Return the id of a transaction: the same for the same parts, in every process."""
    data = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:40]


def _q(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _rooms(answer: Json, kind: str) -> Iterable[tuple[str, Json]]:
    rooms = _as_dict(_as_dict(answer.get("rooms")).get(kind))
    return [(room_id, _as_dict(part)) for room_id, part in rooms.items()]


def _events(part: Json, kind: str) -> list[Json]:
    events = _as_list(_as_dict(part.get(kind)).get("events"))
    return [event for event in events if isinstance(event, dict)]


def _membership(event: Json, user_id: str) -> str | None:
    """Return our membership after an event, or None if the event is not about it."""
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id:
        return None
    return _as_text(_as_dict(event.get("content")).get("membership"))


def _is_join(event: Json, user_id: str) -> bool:
    """Return whether an event is our joining, and not a change of our name."""
    if _membership(event, user_id) != "join":
        return False
    unsigned = _as_dict(event.get("unsigned"))
    if "prev_content" in unsigned:
        return _as_dict(unsigned["prev_content"]).get("membership") != "join"
    return "replaces_state" not in unsigned


def _is_invited_join(event: Json) -> bool:
    previous = _as_dict(_as_dict(event.get("unsigned")).get("prev_content"))
    return previous.get("membership") == "invite"


def _starts(events: list[Json], user_id: str) -> list[int]:
    """Return the positions from which a room concerns us: an invitation, or a join without one."""
    return [
        position
        for position, event in enumerate(events)
        if _membership(event, user_id) == "invite"
        or (_is_join(event, user_id) and not _is_invited_join(event))
    ]


def _after_start(events: list[Json], user_id: str) -> list[Json]:
    """Return the events since we were invited; what was written before was not for us."""
    starts = _starts(events, user_id)
    if not starts:
        starts = [at for at, event in enumerate(events) if _is_join(event, user_id)]
    return events[starts[-1] + 1 :] if starts else events


def _decode(body: bytes) -> Json | None:
    """Return a JSON object, or None if it is something else. Lone surrogates are let through."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _unreachable(problem: Exception) -> PlatformUnavailable:
    return PlatformUnavailable(
        f"The homeserver cannot be reached ({type(problem).__name__}).",
        hint="Check base_url, and that the homeserver is running.",
    )


def _unknown(message: str) -> OutcomeUnknown:
    return OutcomeUnknown(message, hint="Check in the room whether it arrived.")


def _error_of(response: httpx2.Response, answer: Json | None, *, is_read: bool) -> PlatformError:
    """Return the error of a response: by its status, and by the code in its JSON."""
    status = response.status_code
    code = str((answer or {}).get("errcode", ""))
    code = code if re.fullmatch(r"[A-Z_]{1,60}", code) else ""
    message = f"The homeserver answered {status}{' ' if code else ''}{code}."
    if status == 429:
        seconds = _retry_after(response, answer or {})
        return RateLimited(message, hint="It is sent later.", retry_after=seconds)
    if code in _ACCOUNT_ERRORS or (status == 401 and code):
        return AccountProblem(
            f"{message} The account or its token is not accepted.",
            hint="Log in again and set the new token; see docs/matrix.md.",
        )
    if status == 413:
        return TooLarge(message, hint="Send less at a time.")
    if status >= 500 and not is_read:
        return _unknown(message)
    if not code or status >= 500 or code in _LATER_ERRORS:
        # Without a code it is the page of a proxy, or base_url is not that of a homeserver.
        return PlatformUnavailable(
            message, hint="Check base_url and the homeserver. It is tried again."
        )
    return Refused(message, hint="Check that the agent may write in this room.", status=status)


def _retry_after(response: httpx2.Response, answer: Json) -> float:
    """Return the pause that the homeserver asks for, in seconds."""
    milliseconds = answer.get("retry_after_ms")
    header = response.headers.get("retry-after", "")
    if isinstance(milliseconds, int | float) and milliseconds > 0:
        return min(milliseconds / 1000, _LONGEST_PAUSE)
    return min(float(header), _LONGEST_PAUSE) if header.isdigit() and int(header) else 1.0


def _library() -> Any:
    try:
        import httpx2
    except ImportError as problem:
        raise ConfigError(
            "Matrix needs httpx2, which is not installed.",
            hint=f"Install it: {install_command('http')}",
            extra="http",
        ) from problem
    return httpx2


def build(context: BuildContext) -> Adapter:
    """Return the adapter of the account."""
    token = context.require_secret("token")
    return MatrixAdapter(context.settings, token, account=context.account)


PLATFORM = PlatformDefinition(
    "matrix",
    "Matrix",
    # Twice as much as JSON at worst, which still fits; formatted texts are measured as they are.
    length_limit=MAX_CONTENT_BYTES // 3,
    length_unit="bytes",
    markdown="html",
    threads=True,
    edits=True,
    typing=True,
    media=True,
    settings=MatrixSettings,
    build=build,
    format=format_text,
    setup=(
        SetupQuestion(
            key="base_url", question="Address of the homeserver", default="https://matrix.org"
        ),
        SetupQuestion(key="token", question="Access token", is_secret=True),
    ),
    guide=(
        "Matrix needs an account of its own for the agent, and the access token of that account."
        " Create the account in any Matrix client. Its access token is shown in Element under"
        " Settings, Help & About, Advanced; docs/matrix.md shows how to get one with a command."
    ),
    pairing=(
        "Start the gateway with: tertulia run. Then invite the agent to a room without encryption,"
        " or send it a direct message, and write. It answers with a pairing code; approve it with:"
        " tertulia pair approve CODE"
    ),
)
