"""Links: chats of one person that share the conversation of one of them.

A link leads from the key of a chat to the key of the conversation it has joined, its root. A root
is never linked itself. All messages of a shared conversation belong to the chat with the root key,
no matter who wrote them; the other chats see them only while they are linked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from tertulia.core import keys
from tertulia.core.message import from_json, to_json
from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import IllegalMove
from tertulia.records import session_rows
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import to_micros

# Why a session ended that two chats shared.
UNLINKED: Final = "unlinked"


class LinkedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat that shares a conversation, or asks to.

    `source` is None for a link from an import or from a store of an older version.
    """

    key: str
    source: Source | None = None

    @property
    def description(self) -> str:
        """The platform and the ids of the chat, without names, which anybody can choose."""
        source = self.source
        if source is None:
            return f"the conversation {clean_for_prompt(self.key, 120)}"
        ids = [source.participant or source.chat_id]
        if source.chat_id not in (*ids, ""):
            ids.append(f"chat {source.chat_id}")
        if source.account:
            ids.append(f"account {source.account}")
        if source.thread_id:
            ids.append(f"thread {source.thread_id}")
        cleaned = ", ".join(clean_for_prompt(text, 80) for text in ids)
        return f"{clean_for_prompt(source.platform, 40)}, id {cleaned}"


class PendingLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that one side has not confirmed yet. `can_confirm`: it is this side."""

    chat: LinkedChat
    can_confirm: bool


class Link(NamedTuple):
    """The conversation that a chat has joined; source and person are None if they are unknown."""

    shared_key: str
    shared_source: Source | None
    shared_person: str | None

    @property
    def is_alias(self) -> bool:
        """True if an import made it: the conversation is the chat's own, under another key."""
        return self.shared_source is None and self.shared_person is not None


def get_link(tx: Transaction, source: Source, key: str) -> Link | None:
    """Return the link of a source's chat, or None; only direct messages are linked."""
    return _get(tx, key) if source.chat_type == "dm" else None


def shared_key(tx: Transaction, key: str) -> str:
    """Return the key of the conversation that a key is linked to, else the key itself."""
    row = tx.one("link_of", {"key": key})
    return key if row is None else str(row[0])


def linked_key(tx: Transaction, source: Source, key: str) -> str:
    """Return the key of the conversation a source writes to; only direct messages are linked."""
    return shared_key(tx, key) if source.chat_type == "dm" else key


def linked_chats(rows: Sequence[Row], key: str) -> list[LinkedChat]:
    """Return the other chats that share the conversation of a key, its root first.

    `rows` are those of the statement `links_with`.
    """
    own = key
    chats: dict[str, LinkedChat] = {}
    for linked, root, source, shared_source, person in rows:
        is_alias = Link(root, shared_source, person).is_alias
        if is_alias and linked == key:
            own = root
        if not is_alias:
            chats.setdefault(root, to_chat(root, shared_source))
            chats[linked] = to_chat(linked, source)
    chats.pop(own, None)
    return list(chats.values())


def to_chat(key: str, source: str | None) -> LinkedChat:
    """Return a chat from its stored columns."""
    return LinkedChat(key=key, source=_to_source(source))


def add_link(tx: Transaction, joining: LinkedChat, offering: LinkedChat, now: datetime) -> str:
    """Link a chat with the conversation of the chat that offered it; return the shared key.

    A chat that leaves another conversation for it ends the session it had shared there. Raise
    `IllegalMove` if the two are linked already, or if others are linked to the chat that joins.
    """
    key = joining.key
    link = _get(tx, offering.key) or Link(offering.key, offering.source, _person(offering.source))
    if link.shared_source is None:
        link = link._replace(shared_source=offering.source)
    before = _get(tx, key)
    if link.shared_key in (key, before.shared_key if before else None):
        raise IllegalMove("These two chats are linked already.", hint="/link shows it.")
    if tx.all("links_of", {"shared_key": key}):
        raise IllegalMove(
            "Another chat is linked to this one.",
            hint="Send /link off here first, or make the code here and type it in the other chat.",
        )
    if _agent(joining.source) != _agent(link.shared_source):
        raise IllegalMove(
            "Another agent answers in the other chat.",
            hint="Choose the same agent in both with /agent, then link them.",
        )
    # The chat before its roots: the order in which a message of a linked chat locks them.
    _lock(tx, [key])
    _lock(tx, [link.shared_key, *([before.shared_key] if before else [])])
    for source in filter(None, (joining.source, offering.source)):
        # Either may never have begun a session of their own.
        person = keys.person_of(source)
        if person is not None:
            session_rows.remember_person(tx, source, person, now)
    if before is not None:
        _leave_conversation(tx, key, before.shared_key, joining.source, now)
    tx.run(
        "link_insert",
        {
            "key": key,
            "shared_key": link.shared_key,
            "now": to_micros(now),
            "source": _to_column(joining.source),
            "shared_source": _to_column(link.shared_source),
            "shared_person": link.shared_person,
        },
    )
    return link.shared_key


def add_import_link(tx: Transaction, key: str, shared: str, person: str | None, now: int) -> None:
    """Let a chat continue an imported conversation, which belongs to the same person."""
    tx.run(
        "link_insert",
        {
            "key": key,
            "shared_key": shared,
            "now": now,
            "source": None,
            "shared_source": None,
            "shared_person": person,
        },
    )


def _removable_links(tx: Transaction, key: str) -> list[str]:
    """Return the keys whose links end when a chat unlinks: its own, or all that lead to it."""
    own = _get(tx, key)
    if own is not None and not own.is_alias:
        return [key]
    root = key if own is None else own.shared_key
    others = [row[0] for row in tx.all("links_of", {"shared_key": root}) if row[0] != key]
    return others or ([] if own is None else [key])


def remove_links(tx: Transaction, key: str, now: datetime) -> bool:
    """Remove the links of a chat, from whichever side; return whether there were any.

    The session that was shared ends, so that each side begins its own.
    """
    # The chats before their root, as in `add_link`.
    linked = _removable_links(tx, key)
    _lock(tx, linked)
    root = shared_key(tx, key)
    _lock(tx, [root])
    removed = [row for row in tx.all("links_of", {"shared_key": root}) if row[0] in linked]
    for row in removed:
        chat = to_chat(row[0], row[1])
        _leave_conversation(tx, chat.key, root, chat.source, now)
        tx.run("link_delete", {"key": chat.key})
    return bool(removed)


def _leave_conversation(
    tx: Transaction, key: str, root: str, source: Source | None, now: datetime
) -> None:
    """End the session that a chat shares, and give its schedules back to the chat."""
    current = session_rows.get_current(tx, root)
    if current is not None:
        session_rows.mark_ended(tx, current, UNLINKED, now)
    if source is not None:
        tx.run("schedules_set_key", {"owner": _person(source), "shared": root, "key": key})


def _get(tx: Transaction, key: str) -> Link | None:
    row = tx.one("link_of", {"key": key})
    if row is None:
        return None
    shared, source, person = row
    return Link(shared, _to_source(source), person)


def _lock(tx: Transaction, locked: Iterable[str]) -> None:
    """Lock the conversations of keys, in an order that is the same for everybody."""
    for key in sorted(set(locked)):
        tx.lock(session_rows.lane_of(key))


def _person(source: Source | None) -> str | None:
    return None if source is None else keys.person_of(source)


def _agent(source: Source | None) -> str | None:
    return None if source is None else source.agent


def _to_column(source: Source | None) -> str | None:
    return None if source is None else to_json(source.to_dict())


def _to_source(column: str | None) -> Source | None:
    return None if column is None else Source.from_dict(from_json(column))
