"""A session as a nanobot file, in the format that nanobot itself writes today.

The first line describes the session, each further line is a message. Times are local, without a
time zone. nanobot finds a conversation by its file name, which is the key in base64.

nanobot has one conversation for each chat. So the current session of a chat gets the chat's key and
continues there; an ended session gets the key followed by its id.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from tertulia.core.history.content import make_json_safe
from tertulia.core.keys import session_key
from tertulia.core.message import COMMAND, DELIVERY, INTERNAL, SUMMARY, Message
from tertulia.core.session import Session
from tertulia.core.source import LOCAL
from tertulia.core.text.display_safe import display_json
from tertulia.records.imports import IMPORTED
from tertulia.records.iterate import SessionSummary

# nanobot's prefix for a topic or thread id in a key; other platforms have none.
_THREADS = {"telegram": "topic:", "discord": "thread:"}
# nanobot's mark in messages that are not part of the conversation itself.
_MARKS = {COMMAND: "_command", DELIVERY: "_channel_delivery", INTERNAL: "_hidden_history"}
# Common file systems allow file names of at most 255 bytes.
_LONGEST_NAME = 240


def key_of(session: Session) -> str:
    """Return nanobot's key of a conversation."""
    key = _imported_key(session) or _chat_key(session)
    return key if session.ended_at is None else f"{key}#{session.id}"


def file_name(key: str) -> str:
    """Return the file name under which nanobot looks for a key."""
    name = base64.urlsafe_b64encode(key.encode("utf-8", "replace")).decode().rstrip("=")
    return f"{name}.jsonl"


def is_too_long(key: str) -> bool:
    """Return whether the file name of a key is too long for file systems."""
    return len(file_name(key)) > _LONGEST_NAME


def nanobot_lines(
    session: Session,
    messages: Iterator[Message],
    summary: SessionSummary | None,
    *,
    zone: tzinfo,
    key: str | None = None,
) -> Iterator[str]:
    """Yield the lines of the file."""
    count = 0 if summary is None else summary.messages
    yield display_json(
        {
            "_type": "metadata",
            "key": key or key_of(session),
            "created_at": _local(session.created_at, zone),
            "updated_at": _local(session.updated_at, zone),
            "metadata": _metadata(session, summary, zone),
            "last_archived": count,
            "last_consolidated": count,  # the older name of the same field
        },
        indent=None,
    )
    for message in messages:
        yield display_json(_message(message, zone), indent=None)


def _imported_key(session: Session) -> str | None:
    """Return the key that nanobot gave the session, if it was imported from there."""
    imported = session.metadata.get(IMPORTED)
    if not isinstance(imported, Mapping) or imported.get("from") != "nanobot":
        return None
    key = imported.get("key")
    return key if isinstance(key, str) and key else None


def _chat_key(session: Session) -> str:
    source = session.origin
    is_terminal = source.platform == LOCAL
    key = "cli:direct" if is_terminal else f"{source.platform}:{source.chat_id}"
    if source.thread_id:
        key += f":{_THREADS.get(source.platform, '')}{source.thread_id}"
    # nanobot has one conversation per chat; ours may be per person, account or agent, so add these.
    if source.chat_type != "dm" and source.participant and _is_per_person(session):
        key += f":user:{source.participant}"
    key += f":account:{source.account}" if source.account else ""
    return key + (f":agent:{session.agent}" if session.agent != "main" else "")


def _is_per_person(session: Session) -> bool:
    """Return whether the key names one person: others in the chat have their own session."""
    return session.key == session_key(session.origin, agent=session.agent, per_user=True)


def _metadata(session: Session, summary: SessionSummary | None, zone: tzinfo) -> dict[str, Any]:
    metadata = {name: value for name, value in session.metadata.items() if name != IMPORTED}
    if session.title:
        metadata["title"] = session.title
    if summary is not None:
        metadata["_last_summary"] = {
            "text": summary.text,
            "last_active": _local(session.updated_at, zone),
        }
    return make_json_safe(metadata)  # type: ignore[no-any-return]


def _message(message: Message, zone: tzinfo) -> Mapping[str, Any]:
    """Return a message with the fields nanobot needs, without lone surrogates it cannot write."""
    body: dict[str, Any] = make_json_safe(dict(message.body))
    body.pop("_type", None)  # nanobot would read the line as a metadata record
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
