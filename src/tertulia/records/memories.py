"""Memories of people: rows that a conversation leaves behind, and who sees them.

A memory belongs to the owner of the session it comes from, the person who has the session's key,
and to one agent. So the chats of a person that are linked share them for as long as they are, and
nobody else sees them. In a group there are none: every member reads along.

A session shows the memories that were there when it began, so that the beginning of its prompt
stays the same; only what the person changes with `/memory` counts at once.
"""

from __future__ import annotations

from typing import Final

from tertulia.core import validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.memory import (
    MAX_SHOWN,
    Memory,
    MemoryAuthor,
    MemoryState,
    clean_text,
)
from tertulia.core.source import Source
from tertulia.errors import IllegalMove, NotFound
from tertulia.records import session_rows
from tertulia.records.links import get_link
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

MAX_MEMORIES: Final = 500
_ALWAYS: Final = 0  # as `shown_from`: also in sessions that began before


@checks_arguments
class Memories:
    """The memories of the people of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def add(self, source: Source, text: str) -> Memory:
        """Store what a source's person wants remembered, and return it.

        A text that is there already is not stored twice. Raise `IllegalMove` for a text that is
        empty or too long, in a group, if the memory is off, or if there are 500 already.
        """
        line = clean_text(text)
        return self._db.write(lambda tx: self._put(tx, self._owner_params(tx, source), line))

    def record(
        self,
        session_id: str,
        text: str,
        *,
        author: MemoryAuthor = "agent",
        is_proposed: bool = False,
    ) -> Memory:
        """Store a memory about the person of a session that somebody else wrote, and return it.

        Raise `IllegalMove` as `add` does, and `NotFound` if there is no such session.
        """
        line = clean_text(text)
        state: MemoryState = "proposed" if is_proposed else "kept"

        def work(tx: Transaction) -> Memory:
            row = session_rows.require(tx, session_id)
            if row.chat_type != "dm":
                raise _in_a_group()
            shown_from = to_micros(self._context.clock.now())
            owner = {"owner": row.owner, "agent": row.agent}
            return self._put(
                tx, owner, line,
                author=author, state=state, session_id=session_id, shown_from=shown_from,
            )  # fmt: skip

        return self._db.write(work)

    def shown(self, session_id: str) -> list[Memory]:
        """Return the memories that the agent is shown in a session, newest first.

        An unknown session has none.
        """
        params = {"session_id": session_id, "limit": MAX_SHOWN}
        return [_to_memory(row) for row in self._db.query("memories_shown", params)]

    def find(self, source: Source, *, limit: int = 100) -> list[Memory]:
        """Return the memories about a source's person, proposed ones too, newest first."""
        validate.integer("limit", limit, 1)

        def work(tx: Transaction) -> list[Row]:
            return tx.all("memories_of_owner", {**self._owner_params(tx, source), "limit": limit})

        return [_to_memory(row) for row in self._db.read(work)]

    def of_person(self, person: str, *, limit: int = 500) -> list[Memory]:
        """Return what all agents remember of a person, for the owner of the store, newest first."""
        validate.integer("limit", limit, 1)
        params = {"owner": person, "limit": limit}
        rows = self._db.read(lambda tx: tx.all("memories_of_person", params))
        return [_to_memory(row) for row in rows]

    def edit(self, source: Source, memory_id: int, text: str) -> Memory:
        """Change the text of a memory, and return it; raise `NotFound` if it is not theirs."""
        return self._change("memory_set_text", source, memory_id, {"text": clean_text(text)})

    def accept(self, source: Source, memory_id: int) -> Memory:
        """Accept a proposed memory, and return it; raise `NotFound` if it is not theirs."""
        return self._change("memory_accept", source, memory_id, {})

    def forget(self, source: Source, memory_id: int) -> None:
        """Delete a memory; raise `NotFound` if it is not theirs."""

        def work(tx: Transaction) -> int:
            return tx.changed("memory_delete", {**self._owner_params(tx, source), "id": memory_id})

        if self._db.write(work) == 0:
            raise _unknown(memory_id)

    def is_on(self, source: Source) -> bool:
        """Return whether memories about a source's person are stored and shown."""
        return self._db.read(
            lambda tx: tx.one("memories_off_get", self._owner_params(tx, source)) is None
        )

    def switch(self, source: Source, *, on: bool) -> None:
        """Switch the memory of a source's person on or off; what is stored stays."""
        statement = "memories_off_delete" if on else "memories_off_put"
        self._db.write(lambda tx: tx.run(statement, self._owner_params(tx, source)))

    def _change(self, statement: str, source: Source, memory_id: int, fields: Params) -> Memory:
        def work(tx: Transaction) -> Row | None:
            return tx.one(statement, {**self._owner_params(tx, source), "id": memory_id, **fields})

        row = self._db.write(work)
        if row is None:
            raise _unknown(memory_id)
        return _to_memory(row)

    def _put(
        self,
        tx: Transaction,
        owner: Params,
        line: str,
        *,
        author: MemoryAuthor = "person",
        state: MemoryState = "kept",
        session_id: str | None = None,
        shown_from: int = _ALWAYS,
    ) -> Memory:
        """Store a memory unless the owner has the same text already; return it."""
        if tx.one("memories_off_get", owner) is not None:
            raise IllegalMove("The memory is off.", hint="To switch it on, send /memory on.")
        row = tx.one("memory_same", {**owner, "text": line})
        if row is not None:
            return _to_memory(row)
        (count,) = tx.one("memory_count", {**owner, "limit": MAX_MEMORIES}) or (0,)
        if count >= MAX_MEMORIES:
            raise IllegalMove(f"There are {MAX_MEMORIES} memories.", hint="Forget some first.")
        row = tx.one(
            "memory_insert",
            {
                **owner,
                "text": line,
                "author": author,
                "state": state,
                "session_id": session_id,
                "created_at": to_micros(self._context.clock.now()),
                "shown_from": shown_from,
            },
        )
        assert row is not None
        return _to_memory(row)

    def _owner_params(self, tx: Transaction, source: Source) -> dict[str, str]:
        """Return the owner and the agent of the memories about a source's user.

        They are those of the sessions that a message from the source would open. Raise
        `IllegalMove` in a group.
        """
        if source.chat_type != "dm":
            raise _in_a_group()
        key = session_rows.key_of(self._context, source)
        link = get_link(tx, source, key)
        person = session_rows.owner_person(source, self._context)
        if link is not None:
            key, person = link.shared_key, link.shared_person
        agent = source.agent or self._context.settings.agent
        return {"owner": person or key, "agent": agent}


def delete_of_session(tx: Transaction, session_id: str) -> None:
    """Delete the memories that come from a session."""
    tx.run("memories_delete_of_session", {"session_id": session_id})


def _to_memory(row: Row) -> Memory:
    memory_id, text, author, state, session_id, created_at = row
    return Memory(
        id=memory_id,
        text=text,
        author=author,
        state=state,
        session_id=session_id,
        created_at=from_micros(created_at),
    )


def _unknown(memory_id: int) -> NotFound:
    return NotFound(f"There is no memory {memory_id}.", hint="/memory lists them.")


def _in_a_group() -> IllegalMove:
    return IllegalMove("There is no memory in a group.", hint="Write to me in a private chat.")
