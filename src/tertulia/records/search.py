"""Full-text search over messages.

The index is updated after the turns, not within them (decision 0004), and can be rebuilt at any
time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.history.view import View
from tertulia.core.message import Message, text_of
from tertulia.core.session import Page
from tertulia.core.text import search_terms
from tertulia.errors import StoreError
from tertulia.records import session_rows
from tertulia.records.people import resolve_person
from tertulia.storage import installation, rows
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.rows import load_body, parse_view

log = logging.getLogger("tertulia.search")

# One step of the indexer has the write lock; these limits keep it to a few milliseconds.
STEP_MESSAGES = 100
STEP_SESSIONS = 50
# A search does up to this many steps itself first, to find messages stored a moment ago.
CATCH_UP_STEPS = 5
_HITS_PER_QUERY = 50

# The most sessions that `count_unindexed` adds up.
_BACKLOG = 100


class Hit(msgspec.Struct, frozen=True):
    """A matching message, with the text around the match; a higher score is a better match."""

    session_id: str
    seq: int
    role: str
    snippet: str
    at: datetime
    score: float


class SearchScope(NamedTuple):
    """The sessions that one person may see: by person, by the chat's key, and by its link."""

    viewer: str | None
    own_key: str
    shared_key: str


class Search:
    """The search index of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._is_checked = False

    def find(
        self,
        query: str,
        *,
        person: str | None = None,
        platform: str | None = None,
        key: str | None = None,
        within: SearchScope | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Return a page of messages that contain all words of the query, best match first.

        Case and accents are ignored. `"a phrase"` matches these words next to each other, `begin*`
        matches every word that begins so. With `person`, only the sessions of that person are
        searched; with `within`, only what one person may see.
        """
        validate.integer("limit", limit, 1, 200)
        validate.text("query", query)
        for name, value in (("person", person), ("platform", platform), ("key", key)):
            validate.text(name, value, optional=True)
        # FTS5 ends a query at a zero character, but its index treats one as a word separator.
        phrases = search_terms.parse_query(query.replace("\0", " "))
        if not phrases:
            return Page(())
        try:
            self.catch_up(steps=CATCH_UP_STEPS)
        except StoreError:
            if self._db.is_closed:
                raise
            # Search the messages that are indexed; the operator sees in the log why others are not.
            log.exception("search index update failed, searching the messages indexed so far")
        offset = cursors.decode(cursor, 1)[0] if cursor else 0
        search = _Query(phrases, person, platform, key, within)
        return self._db.read(lambda tx: _find_hits(tx, search, limit, offset))

    def count_unindexed(self) -> int:
        """Return how many messages of the oldest waiting sessions are not indexed yet."""
        rows = self._db.read(lambda tx: tx.all("search_backlog", {"limit": _BACKLOG}))
        return sum(last_seq - indexed_seq for _, indexed_seq, last_seq, *_ in rows)

    def catch_up(self, *, steps: int | None = None) -> bool:
        """Index messages that are not indexed yet, in at most `steps` steps.

        Return whether the index is up to date.
        """
        self._clear_if_outdated()
        while steps is None or steps > 0:
            if self._db.write(_index_step) == 0:
                return True
            steps = None if steps is None else steps - 1
        return False

    def rebuild(self) -> None:
        """Clear the index and build it again from the messages."""
        self._db.write(_clear)
        self.catch_up()

    def _clear_if_outdated(self) -> None:
        """Clear an index that was built with other rules for words, which would not match ours."""
        if self._is_checked:
            return

        def work(tx: Transaction) -> None:
            if installation.get(tx, "search_rule") != str(search_terms.RULE_VERSION):
                _clear(tx)

        self._db.write(work)
        self._is_checked = True


def _clear(tx: Transaction) -> None:
    for statement in ("search_clear", "cards_clear", "sessions_clear_indexed", "unindexed_put_all"):
        tx.run(statement)
    installation.put(tx, "search_rule", str(search_terms.RULE_VERSION))


class _Query(NamedTuple):
    phrases: list[search_terms.Phrase]
    person: str | None
    platform: str | None
    key: str | None
    within: SearchScope | None


def index_messages(tx: Transaction, ref: int, first: int, last: int, limit: int = 2**31) -> int:
    """Index at most `limit` messages of a log, from `first` to `last`.

    Return the number of the last indexed message, or `last` if there is none in that range.
    """
    messages = tx.all(
        "search_messages", {"session": ref, "first": first, "last": last, "limit": limit}
    )
    tx.many("search_add", _entries(tx, ref, messages))
    return messages[-1][0] if messages else last


def remove_session(tx: Transaction, ref: int) -> None:
    """Remove a session from the index. To remove a text, FTS5 needs exactly the text added."""
    span = {"session": ref, "first": 1, "last": last_indexed(tx, ref), "limit": 500}
    while messages := tx.all("search_messages", span):
        tx.many("search_delete", _entries(tx, ref, messages))
        span["first"] = messages[-1][0] + 1
    tx.run("card_delete", {"session": ref})


def last_indexed(tx: Transaction, ref: int) -> int:
    """Return the number of the last indexed message of a log."""
    row = tx.one("session_indexed_seq", {"session": ref})
    assert row is not None
    return int(row[0])


def _index_step(tx: Transaction) -> int:
    """Index a bounded number of messages; return in how many sessions, 0 if none was left."""
    left = STEP_MESSAGES
    backlog = tx.all("search_backlog", {"limit": STEP_SESSIONS})
    for ref, indexed, last, is_card_indexed, title, name in backlog:
        if not is_card_indexed:
            tx.run("card_delete", {"session": ref})
            card = search_terms.fold_text(f"{title or ''} {name or ''}")
            tx.run("card_add", {"session": ref, "text": tx.search_entry(card)})
            tx.run("session_set_card_indexed", {"session": ref})
        indexed_now = indexed
        if indexed < last and left > 0:
            indexed_now = index_messages(tx, ref, indexed + 1, last, left)
            tx.run("session_set_indexed", {"session": ref, "seq": indexed_now})
            left -= indexed_now - indexed
        if indexed_now >= last:
            tx.run("unindexed_delete", {"session": ref})
    return len(backlog)


def _entries(tx: Transaction, ref: int, messages: list[Row]) -> Iterator[dict[str, Any]]:
    for seq, text in _texts(tx, messages):
        yield {"place": (ref << 32) + seq, "text": tx.search_entry(text)}


def _texts(tx: Transaction, messages: list[Row]) -> Iterator[tuple[int, str]]:
    for seq, body, away in messages:
        text = search_terms.fold_text(text_of(load_body(body, away, tx)))
        if text and not text.isspace():
            yield seq, text


def _find_hits(tx: Transaction, query: _Query, limit: int, offset: int) -> Page[Hit]:
    person = None if query.person is None else resolve_person(tx, query.person, query.platform)
    params: dict[str, Any] = {
        "words": tx.search_query(query.phrases),
        "person": person,
        "platform": query.platform,
        "key": query.key,
        "is_limited": int(query.within is not None),
        **(query.within or SearchScope(None, "", ""))._asdict(),
        "limit": _HITS_PER_QUERY,
        "offset": offset,
    }
    hits: list[Hit] = []
    while True:
        hit_rows = tx.all("search_hits", params)
        for rank, session_id, last_seq, ranges, *row in hit_rows:
            position = params["offset"]
            params["offset"] += 1
            message = rows.message_from_row(tuple(row), tx)
            shown_in = _session_showing(tx, message, session_id, parse_view(ranges), last_seq)
            if shown_in is None:
                continue
            if len(hits) == limit:
                return Page(tuple(hits), cursors.encode(position))
            text = search_terms.snippet(text_of(message.body), query.phrases)
            hits.append(Hit(shown_in, message.seq, message.role, text, message.at, -rank))
        if len(hit_rows) < _HITS_PER_QUERY:
            return Page(tuple(hits))


def _session_showing(
    tx: Transaction, message: Message, session_id: str, view: View, last_seq: int
) -> str | None:
    """Return the id of a session that shows a message: its own, else a fork; None if none does.

    A message that was undone or cleared is not shown, although the log still has it.
    """
    if view.contains(message.session, message.seq, last_seq):
        return session_id
    for (fork,) in tx.all("borrower_ids", {"log": message.session}):
        current = session_rows.current_view(tx, fork)
        if current.view.contains(message.session, message.seq, current.last_seq):
            return str(fork)
    return None
