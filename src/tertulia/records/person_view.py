"""The sessions and messages that one person may see.

The key decides. In a direct message the person sees the sessions of the chat's own key, those of
the conversation that the chat is linked to now, and those of the person's other chats: a session
belongs to the person who has its key, so that person and key always agree. In a group it is only
the conversation of that group, because every member reads along. Any other session is reported as
not found, so its existence is not revealed.
"""

from __future__ import annotations

from typing import Any

from tertulia.core import keys
from tertulia.core.arguments import checks_arguments
from tertulia.core.session import Page, Session
from tertulia.core.source import Source
from tertulia.records import session_rows
from tertulia.records.links import linked_key
from tertulia.records.search import Hit, Search, SearchScope
from tertulia.records.sessions.find import find_within
from tertulia.records.sessions.sessions import Sessions
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.transcript import Transcript
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow


@checks_arguments
class PersonView:
    """A store limited to the sessions that one person may see."""

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
        """Return a page of this person's sessions, newest activity first.

        The filters are those of `Sessions.find`; `person` is ignored.
        """
        platform, key = filters.pop("platform", None), filters.pop("key", None)
        filters.pop("person", None)  # always this person
        scopes = [
            {"platform": platform, "key": key, "person": None, **scope}
            for scope in self._db.read(self._scopes)
            if key is None or scope.get("key", key) == key
        ]
        return find_within(self._context, scopes, **filters)

    def search(self, query: str, *, limit: int = 20, cursor: str | None = None) -> Page[Hit]:
        """Return a page of matching messages that this person may see; see `Store.search`."""
        own_key, shared_key = self._db.read(self._keys)
        scope = SearchScope(self._person, own_key, shared_key)
        return self._search.find(query, limit=limit, cursor=cursor, within=scope)

    def get(self, session_id: str) -> Session | None:
        """Return a session, or None if it does not exist or this person may not see it."""
        row = self._db.read(lambda tx: self._get_visible(tx, session_id))
        return None if row is None else row.session()

    def require(self, session_id: str) -> Session:
        """Return a session; raise `NotFound` if there is none that this person may see."""
        session = self.get(session_id)
        if session is None:
            raise session_rows.session_not_found(session_id)
        return session

    def transcript(self, session_id: str) -> Transcript:
        """Return the transcript of a session; raise `NotFound` if this person may not see it."""
        return Transcript(self._context, self.require(session_id).id)

    def _keys(self, tx: Transaction) -> tuple[str, str]:
        """Return the key of the chat, and that of the conversation it is linked to, or the same."""
        return self._key, linked_key(tx, self._source, self._key)

    def _scopes(self, tx: Transaction) -> list[dict[str, str]]:
        """Return filters that together select every session this person may see."""
        scopes = [{"key": key} for key in sorted(set(self._keys(tx)))]
        return scopes if self._person is None else [{"person": self._person}, *scopes]

    def _get_visible(self, tx: Transaction, session_id: str) -> SessionRow | None:
        """Return the row of a session that this person may see, or None."""
        row = session_rows.get(tx, session_id)
        if row is None:
            return None
        is_own = self._person is not None and row.person == self._person
        return row if is_own or row.key in self._keys(tx) else None
