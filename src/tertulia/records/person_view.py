"""What the person who writes from a source may see, and nothing else.

In a direct message that is everything of this person: the sessions of their identity, and those of
the conversation their chat is linked to. In a group it is the conversation they are in, since
everyone there reads along. A session that may not be seen is not found: whether it exists is not
told either.
"""

from __future__ import annotations

from typing import Any

from tertulia.core import keys
from tertulia.core.session import Page, Session
from tertulia.core.source import Source
from tertulia.records import session_rows
from tertulia.records.people import is_linked, linked_key
from tertulia.records.search import Hit, Search
from tertulia.records.sessions.find import find_within
from tertulia.records.sessions.sessions import Sessions
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.transcript import Transcript
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow


class PersonView:
    """A store through the eyes of one person."""

    def __init__(
        self, context: StoreContext, sessions: Sessions, search: Search, source: Source
    ) -> None:
        self._context = context
        self._db = context.db
        self._search = search
        self._key = sessions.key(source)
        self._source = source
        self._person = keys.person_of(source) if source.chat_type == "dm" else None

    def find(self, **filters: Any) -> Page[Session]:
        """This person's sessions, newest activity first; filters as in `Sessions.find`."""
        platform, key = filters.pop("platform", None), filters.pop("key", None)
        filters.pop("person", None)  # whose they are is settled
        scopes = [
            {"platform": platform, "key": key, "person": None, **scope}
            for scope in self._db.read(self._scopes)
            if key is None or scope.get("key", key) == key
        ]
        return find_within(self._context, scopes, **filters)

    def search(self, query: str, *, limit: int = 20, cursor: str | None = None) -> Page[Hit]:
        """Messages this person may see."""
        scope, *also = self._db.read(self._scopes)
        shared = also[0]["key"] if also else None
        return self._search.find(query, limit=limit, cursor=cursor, shared=shared, **scope)

    def get(self, session_id: str) -> Session | None:
        """That session, or None if there is none that this person may see."""
        row = self._db.read(lambda tx: self._seen(tx, session_id))
        return None if row is None else row.session()

    def require(self, session_id: str) -> Session:
        """That session; `NotFound` if there is none that this person may see."""
        found = self.get(session_id)
        if found is None:
            raise session_rows.missing(session_id)
        return found

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session this person may see."""
        return Transcript(self._context, self.require(session_id).id)

    def _scopes(self, tx: Transaction) -> list[dict[str, str]]:
        """The filters that together hold everything this person may see."""
        shared = linked_key(tx, self._source, self._key)
        here = {"key": shared}
        if self._person is None:
            return [here]
        own = {"person": self._person}
        # What they wrote from another chat stands under the identity they have there.
        return [own, here] if shared != self._key or is_linked(tx, shared) else [own]

    def _seen(self, tx: Transaction, session_id: str) -> SessionRow | None:
        row = tx.one("session_by_id", {"id": session_id})
        if row is None:
            return None
        found = session_rows.require(tx, session_id)
        is_own = self._person is not None and found.person == self._person
        is_here = found.key in (self._key, linked_key(tx, self._source, self._key))
        return found if is_own or is_here else None
