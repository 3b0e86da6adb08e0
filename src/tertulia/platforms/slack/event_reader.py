"""Events of Slack, as what the gateway understands. Pure: nothing is asked or sent here.

A message is identified by its chat and its `ts`, never by the id of the event: a mention comes as
two events, and a repeated event may be the only one that arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming
from tertulia.platforms.slack.mrkdwn import read_text

Json = Mapping[str, Any]

# Messages that people or programs wrote; any other subtype is news about the channel.
_WRITTEN: Final = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
# Events after which the token has to be checked.
REVOKED: Final = ("tokens_revoked", "app_uninstalled")
_GONE: Final = ("tombstone", "hidden_by_limit")
_SLACKBOT: Final = "USLACKBOT"


class BotIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The bot in its workspace, as `auth.test` describes it."""

    user_id: str
    team_id: str
    name: str = ""
    team: str = ""
    url: str = ""
    bot_id: str | None = None
    enterprise_id: str | None = None  # of an app that is installed in a whole organisation


def read_identity(answer: Json) -> BotIdentity:
    """Return the identity in the answer of `auth.test`; raise `KeyError` if there is none."""
    is_organisation = answer.get("is_enterprise_install") is True
    return BotIdentity(
        user_id=str(answer["user_id"]),
        team_id=str(answer["team_id"]),
        name=_text(answer.get("user")) or "",
        team=_text(answer.get("team")) or "",
        url=_text(answer.get("url")) or "",
        bot_id=_text(answer.get("bot_id")),
        enterprise_id=_text(answer.get("enterprise_id")) if is_organisation else None,
    )


def chat_of(payload: Json) -> object:
    """Return the chat of an event, whose events are handed over one after the other."""
    event = payload.get("event")
    if not isinstance(event, Mapping):
        return None
    item = event.get("item")
    channel = item.get("channel") if isinstance(item, Mapping) else event.get("channel")
    return channel if isinstance(channel, str) else None


def kind_of(payload: Json) -> str:
    """Return the type of an event, safe for a log line."""
    event = payload.get("event")
    kind = event.get("type") if isinstance(event, Mapping) else payload.get("type")
    return kind if isinstance(kind, str) and re.fullmatch(r"[a-z_.]{1,40}", kind) else "unknown"


def is_for(payload: Json, identity: BotIdentity) -> bool:
    """Return whether an event is for this installation of the app: an app may have several."""
    installations: list[object] = [payload]
    authorizations = payload.get("authorizations")
    if isinstance(authorizations, list):
        installations += authorizations
    ids = {
        value
        for installation in installations
        if isinstance(installation, Mapping)
        for value in (installation.get("team_id"), installation.get("enterprise_id"))
        if isinstance(value, str)
    }
    return not ids or identity.team_id in ids or identity.enterprise_id in ids


class SlackEventReader:
    """Turns the events of one workspace into updates."""

    def __init__(self, identity: BotIdentity, account: str, commands: Iterable[str] = ()) -> None:
        self._identity = identity
        self._account = account
        self._commands = frozenset(commands)
        own = re.escape(identity.user_id)
        self._mention = re.compile(rf"<@{own}(?:\|[^<>]*)?>")
        self._command = re.compile(
            rf"\s*(?:<@{own}(?:\|[^<>]*)?>[:,]?\s*)?([/!])([A-Za-z][\w-]*)(.*)", re.DOTALL
        )

    def read(self, payload: Json) -> Incoming | Changed | None:
        """Return the message or the change in an event, or None if there is nothing to do.

        Raises one of `MALFORMED` if it is malformed.
        """
        event = payload["event"]
        match event["type"]:
            case "message" if event.get("subtype") == "message_changed":
                return self._edited(event)
            case "message" if event.get("subtype") == "message_deleted":
                return self._deleted(event)
            case "message" | "app_mention" if event.get("subtype") in _WRITTEN:
                return self._incoming(event)
            case "reaction_added":
                return self._reacted(event)
        return None

    def _incoming(self, event: Json) -> Incoming | None:
        if self._is_own(event):
            return None
        text, media = self._read_text(event), _media(event)
        if text is None and not media:
            return None
        source = self._source(event, event["channel"])
        is_addressed = (
            source.chat_type == "dm"
            or event["type"] == "app_mention"
            or event.get("parent_user_id") == self._identity.user_id
            or self._mention.search(_text(event.get("text")) or "") is not None
        )
        return Incoming(
            source=source,
            text=text,
            message_id=_required(event["ts"]),
            media=media,
            is_addressed=is_addressed,
            is_bot=_is_program(event),
        )

    def _edited(self, event: Json) -> Changed | None:
        message, before = event["message"], event.get("previous_message")
        if self._is_own(message):
            return None
        if message.get("subtype") == "tombstone":
            return self._deleted({**event, "deleted_ts": message["ts"]})
        text, media = self._read_text(message), _media(message)
        if isinstance(before, Mapping) and (self._read_text(before), _media(before)) == (
            text,
            media,
        ):
            return None  # a preview of a link was added
        return Changed(
            kind="edited",
            source=self._source(message, event["channel"]),
            message_id=_required(message["ts"]),
            text=text,
            media=media,
        )

    def _deleted(self, event: Json) -> Changed | None:
        before = event.get("previous_message")
        before = before if isinstance(before, Mapping) else {}
        if self._is_own(before):
            return None
        return Changed(
            kind="deleted",
            source=self._source(before, event["channel"]),
            message_id=_required(event["deleted_ts"]),
        )

    def _reacted(self, event: Json) -> Changed | None:
        item = event["item"]
        if self._is_own(event) or item.get("type") != "message":
            return None
        return Changed(
            kind="reacted",
            source=self._source(event, item["channel"]),
            message_id=_required(item["ts"]),
            text=_text(event.get("reaction")),
        )

    def _is_own(self, message: Json) -> bool:
        user_id, bot_id = message.get("user"), message.get("bot_id")
        own = self._identity
        return user_id == own.user_id or (own.bot_id is not None and bot_id == own.bot_id)

    def _source(self, message: Json, channel: Any) -> Source:
        profile = message.get("user_profile") or message.get("bot_profile") or {}
        name = profile.get("display_name") or profile.get("real_name") or profile.get("name")
        return Source(
            "slack",
            _required(channel),
            account=self._account,
            chat_type=chat_type_of(_required(channel)),
            user_id=_text(message.get("user")) or _text(message.get("bot_id")),
            user_name=_text(name) or _text(message.get("username")),
            thread_id=_text(message.get("thread_ts")),
        )

    def _read_text(self, message: Json) -> str | None:
        text = _text(message.get("text")) or _attached_text(message)
        if text is None:
            return None
        own = self._identity
        match = self._command.fullmatch(text)
        # Slack keeps a text that begins with "/" to itself, so "!new" is a command as well.
        if match is not None and (match[1] == "/" or match[2].lower() in self._commands):
            text = f"/{match[2]}{match[3]}"
        return read_text(text, own_id=own.user_id, own_name=own.name or own.user_id)


def chat_type_of(channel: str) -> str:
    """Return the type of a chat by its id alone: a mention comes without any other hint."""
    return {"D": "dm", "G": "group"}.get(channel[:1], "channel")


def _is_program(event: Json) -> bool:
    is_bot = event.get("subtype") == "bot_message" or _text(event.get("bot_id")) is not None
    return is_bot or event.get("user") == _SLACKBOT


def _attached_text(message: Json) -> str | None:
    """Return the text of shared messages and of what programs attach, if there is no other."""
    attachments = message.get("attachments")
    if not isinstance(attachments, list):
        return None
    lines = [_text(part.get("text")) or _text(part.get("fallback")) for part in attachments]
    return "\n".join(line for line in lines if line) or None


def _media(message: Json) -> tuple[Media, ...]:
    files = message.get("files")
    return tuple(_file(file) for file in files) if isinstance(files, list) else ()


def _file(file: Json) -> Media:
    size, mode = file.get("size"), file.get("mode")
    url = _text(file.get("url_private_download")) or _text(file.get("url_private"))
    problem = None
    if mode in _GONE:
        problem = "it is no longer there"
    elif file.get("is_external") is True or mode == "external":
        problem = "it is a link to another service"
    return Media(
        type=_text(file.get("mimetype")),
        name=_text(file.get("name")) or _text(file.get("title")),
        size=size if isinstance(size, int) and not isinstance(size, bool) else None,
        # A file of another workspace has only an id at first.
        source=None if problem else url or _required(file["id"]),
        problem=problem,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _required(value: object) -> str:
    """Return a text that must be there; raise `ValueError` otherwise."""
    if not isinstance(value, str) or not value:
        raise ValueError("a field is missing")
    return value
