"""A session as a file of nanobot's, as nanobot itself writes them today.

The first line tells of the session, each further line is a message. Times are local ones without
a zone. nanobot finds a conversation by the name of its file, which is the key in base64.

nanobot has one conversation for each chat. So the current session of a chat has the chat's key, and
goes on there; an ended one, of which nanobot may hold any number, has its id behind that.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from tertulia.core.history.content import sound_value
from tertulia.core.keys import session_key
from tertulia.core.message import COMMAND, DELIVERY, INTERNAL, SUMMARY, Message
from tertulia.core.session import Session
from tertulia.core.source import LOCAL
from tertulia.core.text.display_safe import to_json
from tertulia.records.iterate import SessionSummary

# nanobot's own words for a topic or a thread in a chat; elsewhere the id stands alone.
_THREADS = {"telegram": "topic:", "discord": "thread:"}
_MARKS = {COMMAND: "_command", DELIVERY: "_channel_delivery", INTERNAL: "_hidden_history"}
# The longest name that common file systems take is 255 bytes.
_LONGEST_NAME = 240
# Under this name the metadata of an imported session say where it came from.
_IMPORTED = "imported"


def key_of(session: Session) -> str:
    """The conversation as nanobot calls it."""
    key = _known_key(session) or _chat_key(session)
    return key if session.ended_at is None else f"{key}#{session.id}"


def file_name(key: str) -> str:
    """Under which name nanobot looks for a key."""
    name = base64.urlsafe_b64encode(key.encode("utf-8", "replace")).decode().rstrip("=")
    return f"{name}.jsonl"


def is_too_long(key: str) -> bool:
    """Whether no file can have the name of that key."""
    return len(file_name(key)) > _LONGEST_NAME


def nanobot(
    session: Session,
    messages: Iterator[Message],
    told: SessionSummary | None,
    *,
    zone: tzinfo,
    key: str | None = None,
) -> Iterator[str]:
    """The lines of the file."""
    count = 0 if told is None else told.messages
    yield to_json(
        {
            "_type": "metadata",
            "key": key or key_of(session),
            "created_at": _local(session.created_at, zone),
            "updated_at": _local(session.updated_at, zone),
            "metadata": _metadata(session, told, zone),
            "last_archived": count,
            "last_consolidated": count,  # the same, for nanobot before it was called so
        },
        indent=None,
    )
    for message in messages:
        yield to_json(_message(message, zone), indent=None)


def _known_key(session: Session) -> str | None:
    """The key that nanobot gave it, where the session came from there."""
    came = session.metadata.get(_IMPORTED)
    if not isinstance(came, Mapping) or came.get("from") != "nanobot":
        return None
    key = came.get("key")
    return key if isinstance(key, str) and key else None


def _chat_key(session: Session) -> str:
    source = session.origin
    is_terminal = source.platform == LOCAL
    key = "cli:direct" if is_terminal else f"{source.platform}:{source.chat_id}"
    if source.thread_id:
        key += f":{_THREADS.get(source.platform, '')}{source.thread_id}"
    # What nanobot does not tell apart, but we do, is told apart by more than the chat.
    if source.chat_type != "dm" and source.participant and _is_one_persons(session):
        key += f":user:{source.participant}"
    key += f":account:{source.account}" if source.account else ""
    return key + (f":agent:{session.agent}" if session.agent != "main" else "")


def _is_one_persons(session: Session) -> bool:
    """Whether the session's key names its person: other people of the chat have their own."""
    return session.key == session_key(session.origin, agent=session.agent, per_user=True)


def _metadata(session: Session, told: SessionSummary | None, zone: tzinfo) -> dict[str, Any]:
    known = {name: value for name, value in session.metadata.items() if name != _IMPORTED}
    if session.title:
        known["title"] = session.title
    if told is not None:
        known["_last_summary"] = {
            "text": told.text,
            "last_active": _local(session.updated_at, zone),
        }
    return sound_value(known)  # type: ignore[no-any-return]


def _message(message: Message, zone: tzinfo) -> Mapping[str, Any]:
    """As it was given, with what nanobot wants besides. It cannot write half a character back."""
    body: dict[str, Any] = sound_value(dict(message.body))
    body.pop("_type", None)  # nanobot would take the line for a record of its own
    if message.kind in _MARKS:
        body.setdefault(_MARKS[message.kind], True)
    if body.get("role") == SUMMARY:
        body = {**body, "role": "system", _MARKS[INTERNAL]: True}
    if not isinstance(body.get("timestamp"), str) or not _is_time(body["timestamp"]):
        body["timestamp"] = _local(message.at, zone)
    return body


def _local(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).replace(tzinfo=None).isoformat()


def _is_time(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", text) is not None
