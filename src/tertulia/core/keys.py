"""Which conversation a source belongs to.

    agent:<agent>:<platform>[:<account>]:<chat type>[:<chat>[:<thread>][:<participant>]]

Two different conversations never share a key (law 8). The proof, part by part:

- No part contains ":" or "~": both are escaped, so a key splits into its parts in one way only,
  and a part that begins with "~" was marked here and nowhere else.
- The account stands where the chat type would. An account that is spelled like a chat type is
  escaped in its first letter, and a chat type outside the four known ones is marked.
- After the chat of a group, one part alone is the participant; a thread alone is marked.
  After the chat of a DM, one part alone is the chat; a thread alone is marked.
- An absent part writes nothing, an empty chat of a group writes an empty part.

`unescape` of each part gives back what went in, so the parts themselves are injective. A part that
would be too long for the index of a database (no platform has such ids, but nothing stops anybody
from sending one) is its SHA-256 behind two marks: different as far as that hash is.
"""

from __future__ import annotations

import hashlib
import re

from tertulia.core.source import CHAT_TYPES, Source

MARK = "~"

# In bytes. An entry of an index in PostgreSQL has at most 2,704, and a key has seven parts.
LONGEST_PART = 350

# Everyday ids stay readable. What would blur a key is escaped: the separator, the mark, the escape
# sign itself, white space, control and invisible characters, and halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[%:~\s\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff]"
)


def escape(part: str) -> str:
    """Percent-escape what cannot stand in a part of a key."""
    return _UNSAFE.sub(_percent, part)


def unescape(part: str) -> str:
    """The inverse of `escape`."""
    raw = part.encode("utf-8", "surrogatepass")
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), raw).decode(
        "utf-8", "surrogatepass"
    )


def part_of(text: str) -> str:
    """An id as a part of a key: escaped, or a hash of it where that would be too long."""
    if len(text) <= LONGEST_PART and text.isascii() and text.isalnum():
        return text  # nearly every id
    escaped = escape(text)
    if len(escaped) * 4 <= LONGEST_PART or len(escaped.encode()) <= LONGEST_PART:
        return escaped
    return MARK + MARK + hashlib.sha256(escaped.encode()).hexdigest()


def session_key(
    source: Source, *, agent: str = "main", per_user: bool = True, threads_shared: bool = False
) -> str:
    """The conversation a source belongs to."""
    parts = ["agent", part_of(agent), part_of(source.platform)]
    if source.account:
        parts.append(_account(source.account))
    known = source.chat_type in CHAT_TYPES
    parts.append(source.chat_type if known else MARK + part_of(source.chat_type))
    if source.chat_type == "dm":
        parts += _dm_parts(source)
    else:
        parts += _group_parts(source, per_user, threads_shared)
    return ":".join(parts)


def person_of(source: Source) -> str | None:
    """The identity of who wrote: platform, account and id; None where nobody can be told apart.

    In a DM without a user id the chat is the person.
    """
    who = source.participant or (source.chat_id if source.chat_type == "dm" else None)
    return person_id(source.platform, who, account=source.account) if who else None


def person_id(platform: str, user_id: str, *, account: str = "") -> str:
    """`telegram:42`, or `slack:~T1:U42` where the account is not the default one."""
    parts = [part_of(platform), part_of(user_id)]
    if account:
        parts.insert(1, MARK + part_of(account))
    return ":".join(parts)


def _dm_parts(source: Source) -> list[str]:
    if source.chat_id:
        chat = [part_of(source.chat_id)]
        return [*chat, part_of(source.thread_id)] if source.thread_id else chat
    return [MARK + part_of(source.thread_id)] if source.thread_id else []


def _group_parts(source: Source, per_user: bool, threads_shared: bool) -> list[str]:
    parts = [part_of(source.chat_id)]
    apart = per_user and not (threads_shared and source.thread_id)
    who = source.participant if apart else None
    if source.thread_id:
        parts.append(part_of(source.thread_id) if who else MARK + part_of(source.thread_id))
    if who:
        parts.append(part_of(who))
    return parts


def _account(account: str) -> str:
    escaped = part_of(account)
    return f"%{ord(escaped[0]):02X}{escaped[1:]}" if escaped in CHAT_TYPES else escaped


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
