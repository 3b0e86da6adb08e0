"""Conversations of API clients that send no conversation id, found by a hash of their messages.

Such a client sends the whole conversation with each request. After each answer, a keyed hash of all
messages so far is stored with the session and number of the answer. The next request is looked up
by the hash of the messages before its newest one. The hash includes the person, so nobody finds the
conversation of another person.
"""

from __future__ import annotations

import msgspec

from tertulia.core.arguments import checks_arguments
from tertulia.core.source import Source
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import parse_body, to_micros


class ChainMatch(msgspec.Struct, frozen=True):
    """The stored answer that a request continues; `is_end` if it is the last message."""

    session_id: str
    key: str
    origin: Source
    seq: int
    is_end: bool


@checks_arguments
class ChatChains:
    """The answers of a store, found by a hash of all messages up to them."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def put(self, digest: str, session_id: str, seq: int) -> None:
        """Store the hash of a conversation after an answer; do nothing if the session is gone."""
        now = to_micros(self._context.clock.now())
        params = {"digest": digest, "id": session_id, "seq": seq, "at": now}
        self._db.write(lambda tx: tx.run("chat_chain_put", params))

    def find(self, digest: str, *, key: str | None = None) -> ChainMatch | None:
        """Return the answer to continue, or None; with `key` only in that conversation.

        An answer that is the last message of its session comes first, then the newest answer.
        """

        def work(tx: Transaction) -> list[ChainMatch]:
            return [
                ChainMatch(
                    session_id, row_key, Source.from_dict(parse_body(origin)), seq, bool(is_end)
                )
                for session_id, row_key, origin, seq, is_end in tx.all(
                    "chat_chain_find", {"digest": digest}
                )
            ]

        matches = self._db.read(work)
        return next((match for match in matches if key in (None, match.key)), None)
