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
from tertulia.records import acts
from tertulia.records.house import House
from tertulia.records.people import linked_key
from tertulia.records.search import Hit, Search
from tertulia.records.sessions import Sessions
from tertulia.records.transcript import Transcript
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow


class Visible:
    """A store through the eyes of one person."""

    def __init__(self, house: House, sessions: Sessions, search: Search, source: Source) -> None:
        self._house = house
        self._db = house.db
        self._sessions = sessions
        self._search = search
        self._key = sessions.key(source)
        self._source = source
        self._person = keys.person_of(source) if source.chat_type == "dm" else None

    def find(self, **filters: Any) -> Page[Session]:
        """This person's sessions, newest activity first; filters as in `Sessions.find`."""
        return self._sessions.find(**{**filters, **self._scope()})

    def search(self, query: str, *, limit: int = 20, cursor: str | None = None) -> Page[Hit]:
        """Messages this person may see."""
        return self._search.find(query, limit=limit, cursor=cursor, **self._scope())

    def get(self, session_id: str) -> Session | None:
        """That session, or None if there is none that this person may see."""
        row = self._db.read(lambda tx: self._seen(tx, session_id))
        return None if row is None else row.session()

    def require(self, session_id: str) -> Session:
        """That session; `NotFound` if there is none that this person may see."""
        found = self.get(session_id)
        if found is None:
            raise acts.missing(session_id)
        return found

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session this person may see."""
        return Transcript(self._house, self.require(session_id).id)

    def _scope(self) -> dict[str, str]:
        """The filter that holds everything this person may see."""
        shared = self._db.read(lambda tx: linked_key(tx, self._source, self._key))
        if self._person is None or shared != self._key:
            return {"key": shared}
        return {"person": self._person}

    def _seen(self, tx: Transaction, session_id: str) -> SessionRow | None:
        row = tx.one("session_by_id", {"id": session_id})
        if row is None:
            return None
        found = acts.require(tx, session_id)
        is_own = self._person is not None and found.person == self._person
        is_here = found.key in (self._key, linked_key(tx, self._source, self._key))
        return found if is_own or is_here else None
