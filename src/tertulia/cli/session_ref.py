"""The session that a person means on the command line: by id, part of it, title, or `last`."""

from __future__ import annotations

from collections.abc import Iterator

from tertulia.core.session import Session
from tertulia.core.text.format import session_name
from tertulia.errors import NotFound
from tertulia.records.sessions.find import PAGE_LIMIT
from tertulia.store import Store

LAST = "last"
_MIN_LENGTH = 4  # of a part of an id
_MAX_SESSIONS = 2_000  # newest ones that are searched for a part of an id or a title
_MAX_CANDIDATES = 8


def resolve(store: Store, ref: str) -> Session:
    """Return the session that `ref` means; raise `NotFound` for none or for several.

    `ref` is an id, `last` for the one with the newest activity, the beginning of an id or of its
    last 8 digits (from 4 characters on), a title, or a part of a title that only one session has.
    """
    session = store.sessions.get(ref)
    if session is not None:
        return session
    if ref == LAST:
        newest = store.sessions.find(limit=1).items
        if newest:
            return newest[0]
    candidates = _candidates(store, ref)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NotFound(
            f"There is no session {ref!r}.", hint="List them with: tertulia sessions list"
        )
    names = "; ".join(
        f"{session.id} ({session_name(session)})" for session in candidates[:_MAX_CANDIDATES]
    )
    raise NotFound(f"{ref!r} fits several sessions: {names}.", hint="Give more of the id or title.")


def _candidates(store: Store, ref: str) -> list[Session]:
    """Return the sessions that fit, by the first rule that fits any."""
    wanted_title = ref.strip().casefold()
    if not wanted_title:  # a variable that expanded to nothing must not mean the only session
        return []
    sessions = list(_newest(store))
    by_id = [session for session in sessions if _is_part_of_id(ref, session.id)]
    by_title = [session for session in sessions if (session.title or "").casefold() == wanted_title]
    by_part = [session for session in sessions if wanted_title in (session.title or "").casefold()]
    return by_id or by_title or by_part


def _is_part_of_id(ref: str, session_id: str) -> bool:
    if len(ref) < _MIN_LENGTH:
        return False
    return session_id.startswith(ref) or session_id.rpartition("_")[2].startswith(ref)


def _newest(store: Store) -> Iterator[Session]:
    cursor = None
    count = 0
    while count < _MAX_SESSIONS:
        page = store.sessions.find(limit=PAGE_LIMIT, cursor=cursor)
        yield from page.items
        count += len(page.items)
        cursor = page.next
        if cursor is None:
            return
