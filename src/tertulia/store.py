"""A store: one database with its records. This is what a library user holds."""

from __future__ import annotations

import os
from datetime import datetime, tzinfo
from types import TracebackType
from typing import Any, Self

from tertulia.core.context import Context, Previous, context_prompt
from tertulia.core.redact import Redactor
from tertulia.core.session import Page, Session
from tertulia.core.settings import Settings, zone
from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.platforms import registry
from tertulia.records.house import Clock, House, SystemClock
from tertulia.records.people import People
from tertulia.records.search import Hit, Search
from tertulia.records.sessions import Sessions
from tertulia.records.transcript import Transcript
from tertulia.records.usage import Ledger
from tertulia.storage.base import Transaction
from tertulia.storage.sqlite import SqliteDatabase


def open(  # noqa: A001 — `tertulia.open` is the promised name
    where: str | os.PathLike[str], *, settings: Settings | None = None, clock: Clock | None = None
) -> Store:
    """Open the store at `where`, a path or `sqlite:///path`; a new one is made."""
    return Store(where, settings=settings, clock=clock)


class Store:
    """Conversations in one database."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.path = _path(where)
        self._db = SqliteDatabase(
            self.path,
            safe=self.settings.durability == "safe",
            busy_seconds=self.settings.busy_seconds,
        )
        self._house = House(self._db, self.settings, clock or SystemClock(), self._zone())
        self.sessions = Sessions(self._house)
        self.usage = Ledger(self._house)
        self.people = People(self._house)
        self._search = Search(self._house)

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session."""
        return Transcript(self._house, session_id)

    def search(
        self,
        query: str,
        *,
        person: str | None = None,
        platform: str | None = None,
        key: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Messages that hold all words of the query, best first; see `Search.find`."""
        return self._search.find(
            query, person=person, platform=platform, key=key, limit=limit, cursor=cursor
        )

    def settle(self) -> None:
        """Wait until the search index has caught up."""
        self._search.catch_up()

    def close(self) -> None:
        """Close the store; what was acknowledged is stored already."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _zone(self) -> tzinfo:
        if self.settings.zone is not None:
            return zone(self.settings.zone)
        import tzlocal

        return tzlocal.get_localzone()


def _path(where: str | os.PathLike[str]) -> str:
    text = os.fspath(where)
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{where!r} is no place for a store.", hint="Give a path, as talk.db.")
    if text.startswith("sqlite:///"):
        return text.removeprefix("sqlite:///")
    if "://" in text:
        raise ConfigError(
            f"This version keeps stores in SQLite files, not at {text.split('://')[0]}://.",
            hint="Give a path, or sqlite:///talk.db.",
        )
    return text
