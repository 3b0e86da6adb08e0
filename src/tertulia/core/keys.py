"""The session key: the conversation a source belongs to, as text.

    agent:<agent>:<platform>[:<account>]:<chat type>[:<chat>[:<thread>][:<participant>]]

Two different conversations never share a key (law 8). The proof, part by part:

- No part contains ":" or "~": both are escaped, so a key splits into its parts in one way only,
  and a part that begins with "~" was marked here and nowhere else.
- The account comes where the chat type would be without one. An account that is spelled like a
  chat type has its first letter escaped, and a chat type outside the four known ones is marked.
- After the chat of a group, one part alone is the participant; a thread alone is marked.
  After the type of a DM, one part alone is the chat; a thread alone is marked.
- An absent part adds nothing; the empty chat of a group adds an empty part.

`unescape` of each part returns the original text, so the parts themselves are injective. A part
that would be too long for the index of a database (no platform has such ids, but a sender can use
one) is replaced by its SHA-256 after two marks: two such parts differ unless that hash collides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tertulia.core import validate
from tertulia.core.source import CHAT_TYPES, Source

MARK = "~"

# How many keys are cached: each message needs that of its source several times.
_CACHED_SOURCES: Final = 1024

# In bytes. An entry of an index in PostgreSQL has at most 2,704, and a key has seven parts.
MAX_PART_BYTES = 350

# Ordinary ids stay readable. Characters that would make a key ambiguous are escaped: the separator,
# the mark, the escape sign itself, white space, control and invisible characters, and unpaired
# surrogates.
_UNSAFE = re.compile(
    r"[%:~\s\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff]"
)


def escape(part: str) -> str:
    """Percent-escape the characters that a part of a key must not contain."""
    return _UNSAFE.sub(_percent_encode, part)


def unescape(part: str) -> str:
    """Reverse `escape`."""
    raw = part.encode("utf-8", "surrogatepass")
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), raw).decode(
        "utf-8", "surrogatepass"
    )


def key_part(text: str) -> str:
    """Return an id as a part of a key: escaped, or hashed if that would be too long."""
    if text.isalnum() and text.isascii() and len(text) <= MAX_PART_BYTES:
        return text  # the common case; each message has about a dozen parts
    escaped = escape(text)
    if len(escaped) * 4 <= MAX_PART_BYTES or len(escaped.encode()) <= MAX_PART_BYTES:
        return escaped
    return MARK + MARK + hashlib.sha256(escaped.encode()).hexdigest()


def session_key(
    source: Source, *, agent: str = "main", per_user: bool = True, threads_shared: bool = False
) -> str:
    """Return the key of the conversation that a source belongs to.

    `agent` is the second part, unless the source names its own. Raise `ConfigError` unless it is a
    `Source` and the agent is text.
    """
    validate.source(source)
    validate.text("agent", agent)
    return _session_key(source, agent, per_user, threads_shared)


@lru_cache(maxsize=_CACHED_SOURCES)
def _session_key(source: Source, agent: str, per_user: bool, threads_shared: bool) -> str:
    parts = ["agent", key_part(source.agent or agent), key_part(source.platform)]
    if source.account:
        parts.append(_account_part(source.account))
    is_standard = source.chat_type in CHAT_TYPES
    parts.append(source.chat_type if is_standard else MARK + key_part(source.chat_type))
    if source.chat_type == "dm":
        parts += _dm_parts(source)
    else:
        parts += _group_parts(source, per_user, threads_shared)
    return ":".join(parts)


@lru_cache(maxsize=_CACHED_SOURCES)
def person_of(source: Source) -> str | None:
    """Return the id of the author: platform, account and user id; None if there is no user id.

    In a DM without a user id the chat is the person.
    """
    user_id = source.participant or (source.chat_id if source.chat_type == "dm" else None)
    return person_id(source.platform, user_id, account=source.account) if user_id else None


def person_id(platform: str, user_id: str, *, account: str = "") -> str:
    """Return `telegram:42`, or `slack:~T1:U42` if the account is not the default one."""
    return _join_id(platform, account, user_id)


def chat_key(source: Source) -> str:
    """Return the id of a chat, for all agents, threads and people in it."""
    return _join_id(source.platform, source.account, source.chat_id or source.participant or "")


def chat_type_index(parts: Sequence[str]) -> int | None:
    """Return the index of the chat type in the parts of a session key; None if it is not a key."""
    if parts[0] == "agent":
        # Before it there may be an account: never spelled like a chat type, and with two marks if
        # it is hashed. An unknown chat type has one mark, or three if it is hashed.
        for index, part in enumerate(parts[3:5], 3):
            marks = len(part) - len(part.lstrip(MARK))
            if part in CHAT_TYPES or marks in (1, 3):
                return index
    return None


def is_direct_message(key: str) -> bool:
    """Return whether a session key is that of a direct message."""
    parts = key.split(":")
    index = chat_type_index(parts)
    return index is not None and parts[index] == "dm"


def _join_id(platform: str, account: str, chat_or_user_id: str) -> str:
    parts = [key_part(platform), key_part(chat_or_user_id)]
    if account:
        parts.insert(1, MARK + key_part(account))
    return ":".join(parts)


def _dm_parts(source: Source) -> list[str]:
    if source.chat_id:
        chat = [key_part(source.chat_id)]
        return [*chat, key_part(source.thread_id)] if source.thread_id else chat
    return [MARK + key_part(source.thread_id)] if source.thread_id else []


def _group_parts(source: Source, per_user: bool, threads_shared: bool) -> list[str]:
    parts = [key_part(source.chat_id)]
    is_shared = not per_user or (threads_shared and source.thread_id)
    participant = None if is_shared else source.participant
    if source.thread_id:
        thread = key_part(source.thread_id)
        parts.append(thread if participant else MARK + thread)
    if participant:
        parts.append(key_part(participant))
    return parts


def _account_part(account: str) -> str:
    escaped = key_part(account)
    return f"%{ord(escaped[0]):02X}{escaped[1:]}" if escaped in CHAT_TYPES else escaped


def _percent_encode(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
