"""Finding sessions: pages by newest activity, and pages of those that their policy would end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.session import STATES, Page, Session, State
from tertulia.core.text import search_terms
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError
from tertulia.records import session_rows
from tertulia.records.people import resolve_person
from tertulia.records.sessions.open import can_be_protected, expiry_reason
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import SessionRow, session_row, to_micros

PAGE_LIMIT: Final = 1000

_activity_order: Callable[[SessionRow], tuple[int, int]] = attrgetter("updated_at", "ref")

_FAR: Final = 2**63 - 1  # beyond every time and every row number
# Current and ended sessions have an index each.
_HALVES: Final = {"all": ("current", "ended"), "current": ("current",), "ended": ("ended",)}


def find_within(
    context: StoreContext,
    scopes: Sequence[Mapping[str, str | None]],
    *,
    active_minutes: float | None = None,
    state: State = "all",
    text: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[Session]:
    """Return a page of the sessions that lie in any of the scopes, each once, newest first.

    A scope is a platform, a key and a person, or None for any.
    """
    _check_page(state, limit)
    validate.text("text", text, optional=True)
    for name, value in (pair for scope in scopes for pair in scope.items()):
        validate.text(name, value, optional=True)
    before = _read_cursor(cursor) if cursor else (_FAR, _FAR)
    since = None
    if active_minutes is not None:
        since = _minutes_before(context.clock.now(), active_minutes)
    phrases = None if text is None else search_terms.parse_query(text.replace("\0", " "))
    if phrases == []:
        return Page(())
    if phrases is not None:
        context.index_new_messages()

    bounds = {
        "active_since": since,
        "before_at": before[0],
        "before_ref": before[1],
        "limit": limit + 1,
    }

    def work(tx: Transaction) -> list[SessionRow]:
        if len(scopes) == 1:
            return find_rows(tx, {**bounds, **scopes[0]}, state, phrases)
        matches = (
            row for scope in scopes for row in find_rows(tx, {**bounds, **scope}, state, phrases)
        )
        by_ref = {row.ref: row for row in matches}
        return sorted(by_ref.values(), key=_activity_order, reverse=True)[: limit + 1]

    return _to_page(context.db.read(work), limit)


def find_rows(
    tx: Transaction,
    filters: Mapping[str, Any],
    state: State,
    phrases: list[search_terms.Phrase] | None,
) -> list[SessionRow]:
    """Return the rows of a page of sessions, newest activity first.

    Raise `ConfigError` if the person is a user id that several people have.
    """
    person = filters["person"]
    resolved = None if person is None else resolve_person(tx, person, filters["platform"])
    params = {**filters, "person": resolved}
    if phrases is not None:
        params["words"] = tx.search_query(phrases)
    matches = [session_row(row) for half in _HALVES[state] for row in _read_half(tx, half, params)]
    return sorted(matches, key=_activity_order, reverse=True)[: params["limit"]]


def iterate_rows(
    tx: Transaction,
    *,
    person: str | None = None,
    key: str | None = None,
    platform: str | None = None,
    state: State = "all",
) -> Iterator[SessionRow]:
    """Yield every session of a person, a key or a platform, newest activity first."""
    filters = {"platform": platform, "key": key, "person": person, "active_since": None}
    before = _FAR, _FAR
    while True:
        bounds = {"before_at": before[0], "before_ref": before[1], "limit": PAGE_LIMIT}
        rows = find_rows(tx, {**filters, **bounds}, state, None)
        yield from rows
        if len(rows) < PAGE_LIMIT:
            return
        before = _activity_order(rows[-1])


class FindExpired(NamedTuple):
    """A search for sessions that their policy would end now."""

    context: StoreContext
    now: datetime

    def find(self, limit: int, cursor: str | None) -> Page[Session]:
        """Return a page of the expired sessions, the longest inactive first."""
        _check_page("all", limit)
        quiet_since = self._quiet_since()
        if quiet_since is None:
            return Page(())
        after = _read_cursor(cursor) if cursor else (-_FAR, -_FAR)
        expired: list[SessionRow] = []
        while len(expired) <= limit:
            params = {
                "quiet_since": quiet_since,
                "after_at": after[0],
                "after_ref": after[1],
                "limit": limit + 1,
            }
            page = self.context.db.read(partial(_read_quiet, params=params))
            for columns in page.rows:
                row = session_row(columns)
                after = _activity_order(row)
                if not row.is_leased_at(page.database_time) and self._is_expired(
                    row, columns[-1], page.busy_keys
                ):
                    expired.append(row)
            if len(page.rows) <= limit:
                break
        return _to_page(expired, limit)

    def _quiet_since(self) -> int | None:
        """Return the newest activity that any policy could end; None if none ends anything."""
        cutoffs = [
            cutoff
            for policy in self.context.settings.policies.all()
            for cutoff in policy.cutoffs(self.now, zone=self.context.zone).values()
        ]
        # The zone of a person can move a daily cutoff by up to a day.
        return to_micros(max(cutoffs) + timedelta(days=1)) if cutoffs else None

    def _is_expired(
        self, row: SessionRow, person_zone: str | None, busy_keys: Collection[str]
    ) -> bool:
        if not expiry_reason(self.context, row, self.now, person_zone):
            return False
        if not can_be_protected(self.context, row, self.now, person_zone):
            return True
        return row.key not in busy_keys and not self.context.has_processes(row.key)


class _QuietPage(NamedTuple):
    """Current sessions by oldest activity, with the state of the database at that time."""

    rows: list[Row]
    database_time: int
    busy_keys: set[str]


def _read_quiet(tx: Transaction, params: Mapping[str, Any]) -> _QuietPage:
    """Read a page, merged from the pages of each platform, and the keys that processes run for."""
    candidates = [
        row
        for (platform,) in tx.all("platforms_current")
        for row in tx.all("sessions_inactive", {**params, "platform": platform})
    ]
    oldest = sorted(candidates, key=lambda row: _activity_order(session_row(row)))
    busy_keys = {key for (key,) in tx.all("processes_running_keys")}
    return _QuietPage(oldest[: params["limit"]], session_rows.database_time(tx), busy_keys)


def _read_half(tx: Transaction, half: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a page of the current or of the ended sessions, by the narrowest filter given."""
    for name in ("words", "key", "person", "platform"):
        if params.get(name) is not None:
            yield from tx.all(f"sessions_{half}_page_by_{name}", params)
            return
    yield from tx.all(f"sessions_{half}_page", params)


def _minutes_before(now: datetime, minutes: float) -> int:
    try:
        return to_micros(now - timedelta(minutes=minutes))
    except (OverflowError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"active_minutes is {short_repr(minutes)}.",
            hint="Give a number of minutes, such as 60.",
            field="active_minutes",
        ) from problem


def _to_page(rows: list[SessionRow], limit: int) -> Page[Session]:
    """Return the first `limit` rows as a page; one more row means that another page follows."""
    sessions = tuple(row.session() for row in rows[:limit])
    has_more = len(rows) > limit
    return Page(sessions, cursors.encode(*_activity_order(rows[limit - 1])) if has_more else None)


def _read_cursor(text: str) -> tuple[int, int]:
    at, ref = cursors.decode(text, 2)
    return at, ref


def _check_page(state: str, limit: int) -> None:
    validate.choice("state", state, STATES)
    validate.integer("limit", limit, 1, PAGE_LIMIT)
