"""Full text over messages. The index follows behind the turns and can be rebuilt at any time."""

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
from tertulia.records.people import resolve
from tertulia.storage import rows
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.rows import view_from, whole_body

log = logging.getLogger("tertulia.search")

# One step of the indexer holds the write lock, so it is kept to a few milliseconds.
STEP_MESSAGES = 100
STEP_SESSIONS = 50
# So many steps a search does itself, so that it finds what was said a moment ago.
CATCH_UP_STEPS = 5
_ROUND = 50


class Hit(msgspec.Struct, frozen=True):
    """A message that matches, with the lines around the match; a higher score is better."""

    session_id: str
    seq: int
    role: str
    snippet: str
    at: datetime
    score: float


class Search:
    """The index of a store."""

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
        shared: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Messages that hold all words of the query, best first.

        Words are found in any case and without their accents. `"a phrase"` stands together,
        `begin*` stands for every word that begins so. A person's search sees that person's
        sessions, those of the conversation they share by a link, and nothing else.
        """
        validate.whole("limit", limit, 1, 200)
        validate.text("query", query)
        for name, value in (("person", person), ("platform", platform), ("key", key)):
            validate.text(name, value, optional=True)
        # A query ends for FTS5 at a zero character; in the index it stands between words.
        phrases = search_terms.terms(query.replace("\0", " "))
        if not phrases:
            return Page(())
        try:
            self.catch_up(steps=CATCH_UP_STEPS)
        except StoreError:
            # What is indexed is found; why the rest is not is for whoever looks after the store.
            log.exception("the search index could not be brought up to date")
        offset = cursors.read(cursor, 1)[0] if cursor else 0
        asked = _Question(phrases, person, platform, key, shared)
        return self._db.read(lambda tx: _answer(tx, asked, limit, offset))

    def catch_up(self, *, steps: int | None = None) -> bool:
        """Index what is not indexed yet; whether nothing is left."""
        self._follow_rule()
        while steps is None or steps > 0:
            if self._db.write(_step) == 0:
                return True
            steps = None if steps is None else steps - 1
        return False

    def rebuild(self) -> None:
        """Forget the index and make it anew from the messages."""
        self._db.write(_clear)
        self.catch_up()

    def _follow_rule(self) -> None:
        """An index that was made by another rule finds nothing by this one: it is made anew."""
        if self._is_checked:
            return

        def work(tx: Transaction) -> None:
            made_by = tx.one("installation_get", {"name": "search_rule"})
            if made_by is None or made_by[0] != str(search_terms.RULE):
                _clear(tx)

        self._db.write(work)
        self._is_checked = True


def _clear(tx: Transaction) -> None:
    for statement in ("search_clear", "cards_clear", "search_unmark", "unindexed_fill"):
        tx.run(statement)
    tx.run("installation_set", {"name": "search_rule", "value": str(search_terms.RULE)})


class _Question(NamedTuple):
    phrases: list[search_terms.Phrase]
    person: str | None
    platform: str | None
    key: str | None
    shared: str | None


def add(tx: Transaction, ref: int, first: int, last: int, limit: int = 2**31) -> int:
    """Index messages of a log; the last one that was there, or `last` if none was."""
    found = tx.all(
        "search_messages", {"session": ref, "first": first, "last": last, "limit": limit}
    )
    tx.many("search_add", _entries(tx, ref, found))
    return found[-1][0] if found else last


def forget(tx: Transaction, ref: int) -> None:
    """Take a session out of the index; that needs the very words that went in."""
    span = {"session": ref, "first": 1, "last": marked(tx, ref), "limit": 500}
    while found := tx.all("search_messages", span):
        tx.many("search_forget", _entries(tx, ref, found))
        span["first"] = found[-1][0] + 1
    tx.run("card_forget", {"session": ref})


def marked(tx: Transaction, ref: int) -> int:
    """Up to which message a log has been indexed."""
    row = tx.one("search_marked", {"session": ref})
    assert row is not None
    return int(row[0])


def _step(tx: Transaction) -> int:
    """Index a bounded number of messages; how much was done."""
    left = STEP_MESSAGES
    done = 0
    backlog = tx.all("search_backlog", {"limit": STEP_SESSIONS})
    for ref, indexed, last, is_card_indexed, title, name in backlog:
        if not is_card_indexed:
            tx.run("card_forget", {"session": ref})
            card = search_terms.folded(f"{title or ''} {name or ''}")
            tx.run("card_add", {"session": ref, "text": tx.search_entry(card)})
            tx.run("card_mark", {"session": ref})
        seen = indexed
        if indexed < last and left > 0:
            seen = add(tx, ref, indexed + 1, last, left)
            tx.run("search_mark", {"session": ref, "seq": seen})
            left -= seen - indexed
        if seen >= last:
            tx.run("unindexed_drop", {"session": ref})
        done += 1
    return done


def _entries(tx: Transaction, ref: int, found: list[Row]) -> Iterator[dict[str, Any]]:
    for seq, text in _texts(tx, found):
        yield {"place": (ref << 32) + seq, "text": tx.search_entry(text)}


def _texts(tx: Transaction, found: list[Row]) -> Iterator[tuple[int, str]]:
    for seq, body, away in found:
        text = search_terms.folded(text_of(whole_body(body, away, tx)))
        if text and not text.isspace():
            yield seq, text


def _answer(tx: Transaction, asked: _Question, limit: int, offset: int) -> Page[Hit]:
    person = None if asked.person is None else resolve(tx, asked.person, asked.platform)
    params: dict[str, Any] = {
        "words": tx.search_question(asked.phrases),
        "person": person,
        "platform": asked.platform,
        "key": asked.key,
        "shared": asked.shared,
        "limit": _ROUND,
        "offset": offset,
    }
    hits: list[Hit] = []
    while True:
        found = tx.all("search_hits", params)
        for rank, session_id, last_seq, ranges, *row in found:
            place = params["offset"]
            params["offset"] += 1
            message = rows.message(tuple(row), tx)
            shown_in = _shown_in(tx, message, session_id, view_from(ranges), last_seq)
            if shown_in is None:
                continue
            if len(hits) == limit:
                return Page(tuple(hits), cursors.write(place))
            text = search_terms.snippet(text_of(message.body), asked.phrases)
            hits.append(Hit(shown_in, message.seq, message.role, text, message.at, -rank))
        if len(found) < _ROUND:
            return Page(tuple(hits))


def _shown_in(
    tx: Transaction, message: Message, session_id: str, view: View, last_seq: int
) -> str | None:
    """The session that shows a message: its own, else a fork of it; None where none does.

    What was undone or cleared away is not shown, though the log still has it.
    """
    if view.holds(message.session, message.seq, last_seq):
        return session_id
    for (fork,) in tx.all("borrower_ids", {"log": message.session}):
        seen = session_rows.current_view(tx, fork)
        if seen.view.holds(message.session, message.seq, seen.last_seq):
            return str(fork)
    return None
