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
import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.spans import FormattedText
from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreError,
    TooLarge,
)
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    Incoming,
    MenuEntry,
    Outgoing,
    Passed,
    Receive,
    StreamUpdate,
)
from tertulia.platforms.http_library import PathMissing
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.client_api import (
    HomeserverApi,
    Json,
    as_dict,
    as_list,
    as_text,
    decode,
    error_of,
    http_library,
    quote_part,
    unreachable,
)
from tertulia.platforms.matrix.event_content import (
    AGENT_MARK,
    edit_content,
    file_name,
    format_text,
    message_content,
    relation,
    text_content,
    transaction_id,
)
from tertulia.platforms.matrix.room_events import EventReader, Room
from tertulia.platforms.matrix.sync_answer import (
    after_start,
    events_of,
    is_join,
    rooms_of,
    start_positions,
)

log = logging.getLogger("tertulia.platforms.matrix")

ENCRYPTED: Final = (
    "I cannot read this room, because it is end-to-end encrypted. Please write to me in a room"
    " without encryption."
)
_POLL_SECONDS: Final = 30.0
# A poll that takes so long has lost its connection.
_SILENCE_SECONDS: Final = 60.0
_FIRST_SYNC_SECONDS: Final = 180.0
_SHOW_SECONDS: Final = 5.0
_TYPING_SECONDS: Final = 20.0
_TIMELINE_EVENTS: Final = 50
_PAGE_EVENTS: Final = 100
# The messages between an invitation and our joining that are read; more are left unanswered.
_MAX_BEFORE_JOIN: Final = 500
_MAX_JOIN_TRIES: Final = 8
_MAX_REMEMBERED: Final = 10_000
_PLAIN_SECONDS: Final = 60.0
_RECONNECT: Final = Backoff(first=1, longest=30)
_NOTICES: Final = "tertulia.notices"

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
        self.account = account
        self.draft_seconds = None if settings.stream == "off" else draft_seconds
        self.draft_delay_seconds = draft_seconds
        self._settings = settings
        self._api = HomeserverApi(settings.base_url, token)
        self._reader: EventReader | None = None
        self._is_token_checked = False
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
        if not self._is_token_checked:
            await self._sync(None)
        name = f" ({reader.display_name})" if reader.display_name else ""
        return f"{reader.user_id}{name}"

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Remember the commands, which people may also write with "!": Matrix has no menu."""
        self._menu = entries

    async def _identify(self) -> EventReader:
        """Ask the homeserver whose token this is; raise `AccountProblem` if it is another's."""
        user_id = await self._ask_user_id()
        self._is_token_checked = user_id is not None
        # If the server has no such path, the first sync says whether the token is right.
        user_id = user_id or self._settings.user_id
        if user_id is None:
            raise PlatformUnavailable(
                "The homeserver does not say whose token this is.",
                hint="Check base_url, or set user_id.",
            )
        if self._settings.user_id not in (None, user_id):
            raise AccountProblem(
                f"The token belongs to {user_id}, not to {self._settings.user_id}.",
                hint="Correct user_id or the token.",
            )
        reader = EventReader(self.account or "", user_id)
        try:
            profile = await self._api.get(f"/_matrix/client/v3/profile/{quote(user_id, safe='')}")
            reader.display_name = as_text(profile.get("displayname"))
        except (Refused, PathMissing):
            log.debug("matrix: the account has no profile")
        reader.commands = frozenset(entry.name for entry in self._menu)
        self._reader = reader
        return reader

    async def _ask_user_id(self) -> str | None:
        """Return whose token this is, or None if the homeserver cannot tell."""
        try:
            answer = await self._api.get("/_matrix/client/v3/account/whoami")
        except PathMissing:
            if self._settings.user_id is None:
                raise
            return None
        except Refused as problem:
            if problem.status not in (404, 405):
                raise
            return None
        return as_text(answer.get("user_id"))

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
        for room_id, part in rooms_of(answer, "join"):
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
        for room_id, _ in rooms_of(answer, "leave"):
            self._rooms.pop(room_id, None)
        for room_id, part in rooms_of(answer, "join"):
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
            # The first poll of a connection is answered at once: then it is known to work.
            seconds = _POLL_SECONDS if self.state.listening else 0
            params |= {"since": since, "timeout": str(int(seconds * 1000))}
        timeout = _SILENCE_SECONDS if since else _FIRST_SYNC_SECONDS
        answer = await self._api.get("/_matrix/client/v3/sync", params, seconds=timeout)
        if as_text(answer.get("next_batch")) is None:
            raise PlatformUnavailable("The homeserver sent no sync.", hint="Check base_url.")
        return answer

    def _apply_state(self, room_id: str, part: Json) -> Room:
        room = self._rooms.setdefault(room_id, Room())
        for event in events_of(part, "state"):
            room.apply(event)
        room.count(as_dict(part.get("summary")))
        return room

    async def _receive_room(
        self, receive: Receive, reader: EventReader, room_id: str, part: Json, since: str
    ) -> None:
        """Hand over the events of one room, with those that the homeserver left out."""
        is_new = room_id not in self._rooms
        room = self._apply_state(room_id, part)
        timeline = as_dict(part.get("timeline"))
        events = events_of(part, "timeline")
        before = as_text(timeline.get("prev_batch"))
        is_limited = timeline.get("limited") is True and before is not None
        is_new = is_new or any(is_join(event, reader.user_id) for event in events)
        if is_new:
            if is_limited and not start_positions(events, reader.user_id):
                earlier = await self._read_back(room_id, before or "", reader)
                events = earlier + events
            for event in events:
                if "state_key" in event:
                    room.apply(event)
            events = after_start(events, reader.user_id)
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
        except MALFORMED as problem:
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
            path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/event/{quote_part(event_id)}"
            try:
                event = await self._api.get(path)
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
            for event in as_list(page.get("state")):
                room.apply(as_dict(event))
            chunk = [event for event in as_list(page.get("chunk")) if isinstance(event, dict)]
            yield chunk
            end = as_text(page.get("end"))
            position = end if chunk and end not in (position, until) else None

    async def _read_back(self, room_id: str, before: str, reader: EventReader) -> list[Json]:
        """Return the events before a token, oldest first, back to our invitation."""
        events: list[Json] = []
        position: str | None = before
        while position is not None and len(events) < _MAX_BEFORE_JOIN:
            page = await self._messages(room_id, "b", position, None)
            chunk = [event for event in as_list(page.get("chunk")) if isinstance(event, dict)]
            events = [*reversed(chunk), *events]
            end = as_text(page.get("end"))
            is_over = not chunk or end == position or bool(start_positions(events, reader.user_id))
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
            return await self._api.get(
                f"/_matrix/client/v3/rooms/{quote_part(room_id)}/messages", params
            )
        except Refused as problem:
            # We are not in the room any more: nothing in it can be answered.
            log.info("matrix: older messages of a room cannot be read: %s", problem.message)
            return {}

    # -- invitations

    def _accept_invitations(self, answer: Json, reader: EventReader) -> None:
        for room_id, part in rooms_of(answer, "invite"):
            inviter, is_direct = None, False
            for event in as_list(as_dict(part.get("invite_state")).get("events")):
                if as_dict(event).get("state_key") == reader.user_id:
                    inviter = as_text(event.get("sender"))
                    is_direct = as_dict(event.get("content")).get("is_direct") is True
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
                await self._api.post(f"/_matrix/client/v3/join/{quote_part(room_id)}", {})
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
        direct = await self._direct_rooms()
        rooms = [*as_list(direct.get(user_id)), room_id]
        await self._api.put(await self._direct_path(), {**direct, user_id: rooms})

    async def _direct_rooms(self) -> Json:
        try:
            return await self._api.get(await self._direct_path())
        except Refused:
            return {}  # there is none yet

    async def _direct_path(self) -> str:
        user = quote_part(await self._own_id())
        return f"/_matrix/client/v3/user/{user}/account_data/m.direct"

    # -- encrypted rooms

    async def _explain_encryption(
        self, room_id: str, room: Room, event: Json, reader: EventReader
    ) -> None:
        """Say once in a room that it cannot be read; the homeserver remembers that it was said."""
        # Anybody can send such an event into a room without encryption, which stays readable.
        if not room.is_encrypted or room_id in self._explained:
            return
        if event.get("sender") == reader.user_id:
            return
        if not room.is_private and self._settings.groups == "never":
            return
        user, room_part = quote_part(reader.user_id), quote_part(room_id)
        path = f"/_matrix/client/v3/user/{user}/rooms/{room_part}/account_data"
        try:
            try:
                notices = await self._api.get(f"{path}/{_NOTICES}")
            except Refused:
                notices = {}
            if not notices.get("encryption"):
                content = {**text_content(FormattedText(ENCRYPTED)), "msgtype": "m.notice"}
                await self._put_event(room_id, content, transaction_id("encryption", room_id))
                await self._api.put(f"{path}/{_NOTICES}", {**notices, "encryption": True})
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
            path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/state/m.room.encryption/"
            await self._api.get(path)
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
        transaction = transaction_id(
            message.delivery, room_id, message.thread_id, message.reply_to, message.text,
            message.media.name if message.media else None,
        )  # fmt: skip
        if message.media is not None:
            content = await self._upload(message.media, message.content, message.text)
        else:
            content = message_content(message)
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
        path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/send/m.room.message/{transaction}"
        answer = await self._api.put(path, content)
        event_id = as_text(answer.get("event_id"))
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
            answer = await self._api.get(f"/_matrix/client/v3/directory/room/{quote_part(chat_id)}")
            return as_text(answer.get("room_id")) or ""
        if chat_id.startswith("@"):
            for room_id in as_list((await self._direct_rooms()).get(chat_id)):
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
        name = file_name(media.name)
        answer = await self._api.call(
            "POST", "/_matrix/media/v3/upload", params={"filename": name}, content=content,
            content_type=media.type or "application/octet-stream", seconds=_FIRST_SYNC_SECONDS,
            is_read=True,
        )  # fmt: skip
        uri = as_text(answer.get("content_uri"))
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
            AGENT_MARK: {},
        }

    # -- files of people

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file by its mxc:// address."""
        match = _MXC.fullmatch(media.source or "")
        if match is None or match[1].strip(".") == "" or match[2].strip(".") == "":
            raise Refused("The file has no valid address.", hint="Ask for it to be sent again.")
        httpx2 = http_library()
        prefixes = ("/_matrix/client/v1/media", "/_matrix/media/v3")
        try:
            for prefix in prefixes:
                path = f"{prefix}/download/{quote_part(match[1])}/{quote_part(match[2])}"
                async with self._api.open_client().stream(
                    "GET", self._api.url(path), headers=self._api.headers(),
                    follow_redirects=True, timeout=_SILENCE_SECONDS,
                ) as response:  # fmt: skip
                    if response.is_success:
                        async for chunk in response.aiter_bytes():
                            yield chunk
                        return
                    answer = decode(await response.aread()) or {}
                    # Homeservers before 1.11 of the specification know only the older path.
                    is_old = answer.get("errcode") == "M_UNRECOGNIZED" and prefix is prefixes[0]
                    if not is_old:
                        raise error_of(response, answer, is_read=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as problem:
            raise unreachable(problem) from None

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show that the agent is typing, or the answer so far; return the id of its message."""
        transaction = transaction_id("draft", source.chat_id, update.turn, update.message_id)
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
        path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/typing/{quote_part(user_id)}"
        timeout = {"timeout": int(_TYPING_SECONDS * 1500)} if is_typing else {}
        await self._api.put(path, {"typing": is_typing, **timeout}, is_read=True)

    async def _mark_read(self, source: Source, message_id: str | None) -> None:
        if message_id is not None:
            room_part, event = quote_part(source.chat_id), quote_part(message_id)
            path = f"/_matrix/client/v3/rooms/{room_part}/receipt/m.read/{event}"
            await self._api.post(path, {"thread_id": source.thread_id or "main"})

    async def _show_draft(self, source: Source, text: str, transaction: str) -> None:
        await self._refuse_encrypted(source.chat_id)
        content = text_content(format_text(text)[0]) | relation(source.thread_id, None)
        content[AGENT_MARK] = {"draft": transaction}
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
                await self._put_event(source.chat_id, edit, transaction_id(transaction, content))
            draft.content = content
        except (Refused, TooLarge):
            draft.is_refused, draft.is_uncertain = True, False

    async def _find_draft(self, room_id: str, transaction: str) -> None:
        """Find the draft that a process has left which died in this turn."""
        own_events = {"types": ["m.room.message"], "senders": [await self._own_id()]}
        path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/messages"
        params = {"dir": "b", "limit": str(_PAGE_EVENTS), "filter": json.dumps(own_events)}
        for event in as_list((await self._api.get(path, params)).get("chunk")):
            content = as_dict(as_dict(event).get("content"))
            is_draft = as_dict(content.get(AGENT_MARK)).get("draft") == transaction
            if is_draft and "m.new_content" not in content:
                draft = self._drafts.setdefault(transaction, _Draft())
                draft.event_id = as_text(event.get("event_id"))

    async def _remove_uncertain(self, room_id: str, transaction: str) -> None:
        """Remove a draft whose id we did not get: the answer cannot replace it."""
        draft = self._drafts.get(transaction)
        if draft is not None and draft.is_uncertain:
            content = text_content(FormattedText("…"))
            event_id = await self._put_event(room_id, content, transaction)
            path = f"/_matrix/client/v3/rooms/{quote_part(room_id)}/redact/{quote_part(event_id)}"
            await self._api.put(f"{path}/{transaction_id('redact', event_id)}", {})

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()


class _Draft:
    """The message of an answer that is being written."""

    def __init__(self) -> None:
        self.event_id: str | None = None
        self.content: Json | None = None
        self.is_uncertain = False  # it may have been sent, but we do not know its id
        self.is_refused = False
