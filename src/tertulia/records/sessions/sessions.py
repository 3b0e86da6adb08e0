"""Which session a source is in: open, reset, switch, fork, end, rename, delete, find, explain."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from tertulia.core import (
    cursor,
    validate,
)
from tertulia.core import title as titles
from tertulia.core.history.view import (
    Span,
    View,
    oldest_of,
    opened,
)
from tertulia.core.message import text_of, to_json
from tertulia.core.policy import ResetPolicy
from tertulia.core.session import STATES, Notice, Page, Session, State
from tertulia.core.source import Source
from tertulia.core.text import search_terms
from tertulia.core.text.storable import storable
from tertulia.errors import AccessDenied, ConfigError, Duplicate, NotFound, StaleWrite
from tertulia.platforms import registry
from tertulia.records import session_rows
from tertulia.records.people import linked_key, resolve
from tertulia.records.sessions import delete
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import transcript
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import SessionRow, body, from_micros, session_row, to_micros

log = logging.getLogger("tertulia.sessions")

AUTOMATIC: Final = ("idle", "daily")
PAGE_LIMIT: Final = 1000

_FAR: Final = 2**63 - 1
_FIRST_LOOK: Final = 8  # messages, for the first thing that a person said
_HALVES: Final = {"all": ("current", "ended"), "current": ("current",), "ended": ("ended",)}


class NeedsGuard(NamedTuple):
    """The answer of a transaction that needs to know first whether processes run for a key."""

    key: str


class _Quiet(NamedTuple):
    """As much of a session as a policy looks at."""

    updated_at: datetime
    ended_at: datetime | None


class Sessions:
    """The sessions of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    # -- the way in

    def open(self, source: Source, *, force_new: bool = False) -> Session:
        """The current session of a source, or a new one.

        A new one begins if there is none, if the policy ends the current one, or if it is forced.
        Activity is touched in the same transaction. Two callers at once get the same session.
        """
        key = self.key(source)
        has_processes: bool | None = None
        while True:
            attempt = OpenSession(self._context, source, key, self._now(), force_new, has_processes)
            found = self._db.write(attempt.open, lane=session_rows.lane_of(attempt.key))
            if isinstance(found, Session):
                if found.created_at == found.updated_at:
                    self._log("began", found)
                return found
            # The guard is foreign code: it is asked outside the transaction, which then runs anew.
            has_processes = self._context.has_processes(found.key)

    def key(self, source: Source) -> str:
        """The key of a source under this store's settings."""
        validate.source(source)
        return session_rows.key_of(self._context, source)

    def conversation(self, source: Source) -> str:
        """The key of a source, or the one it shares where chats are linked."""
        return self._db.read(lambda tx: linked_key(tx, source, self.key(source)))

    def is_shared(self, source: Source) -> bool:
        """Whether several people write in the session of a source."""
        return source.chat_type != "dm" and session_rows.owner_person(source, self._context) is None

    # -- one session

    def get(self, session_id: str) -> Session | None:
        """That session, or None."""
        row = self._db.read(lambda tx: tx.one("session_by_id", {"id": session_id}))
        return None if row is None else session_row(row).session()

    def require(self, session_id: str) -> Session:
        """That session; `NotFound` if there is none."""
        return self._db.read(lambda tx: session_rows.require(tx, session_id)).session()

    def current(self, key: str) -> Session | None:
        """The session a key is in now, as stored: no policy is asked and nothing is touched."""
        row = self._db.read(lambda tx: tx.one("session_current", {"key": key}))
        return None if row is None else session_row(row).session()

    def reset(self, key: str) -> Session | None:
        """End the current session of a key by hand and begin a new one; None for an unknown key."""
        now = self._now()

        def work(tx: Transaction) -> Session | None:
            found = tx.one("session_current", {"key": key}) or tx.one(
                "session_latest_ended", {"key": key}
            )
            if found is None:
                return None
            before = session_row(found)
            if before.ended_at is None:
                session_rows.end(tx, before, "new", now)
            return _begin(
                tx, self._context, session_rows.origin_of(before), key, now, before, reason="new"
            ).session()

        found = self._db.write(work)
        if found is not None:
            self._log("began after a reset", found)
        return found

    def switch(self, key: str, session_id: str) -> Session:
        """Make an earlier session of the same key current again; its transcript continues."""
        now = self._now()

        def work(tx: Transaction) -> Session:
            wanted = session_rows.require(tx, session_id)
            if wanted.key != key:
                raise AccessDenied(
                    "That session belongs to another conversation.",
                    hint="List this one's with: tertulia sessions list --key KEY",
                )
            if wanted.ended_at is None:
                return wanted.session()
            self._end_current(tx, key, "switch", now)
            tx.run("session_resume", {"ref": wanted.ref, "now": to_micros(now)})
            session_rows.event(tx, wanted.ref, now, "resumed", {"was": wanted.end_reason})
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def fork(self, session_id: str, at: int | None = None) -> Session:
        """A new current session with the same past, up to and including message `at`.

        Nothing is copied: the fork sees the messages of the session it came from.
        """
        if at is not None:
            validate.whole("at", at, -_FAR)
        now = self._now()

        def work(tx: Transaction) -> Session:
            parent = session_rows.require(tx, session_id)
            seen = session_rows.current_view(tx, session_id)
            spans = seen.view.spans(seen.last_seq)
            if at is not None:
                log = _locate(seen.view, at, seen.last_seq)
                spans = [*seen.view.before(log, at, seen.last_seq), Span(log, at, at)]
            last_seq = max((span.last for span in spans), default=0)
            turns = _turns_until(tx, spans[-1]) if spans else 0
            self._end_current(tx, parent.key, "fork", now)
            fork = session_rows.begin(
                tx,
                self._context,
                session_rows.origin_of(parent),
                parent.key,
                now,
                parent=parent,
                kind="fork",
                last_seq=last_seq,
                turns=turns,
            )
            view = opened(spans, fork.ref, last_seq)
            session_rows.first_view(tx, fork.ref, view, "fork", now, last_seq)
            transcript.inherit_summary(tx, seen, fork.ref, view, to_micros(now))
            for log in view.logs() - {fork.ref}:
                tx.run("borrowing_insert", {"log": log, "session": fork.ref})
            session_rows.event(tx, fork.ref, now, "began", {"forked_from": parent.id, "at": at})
            return fork.session()

        return self._db.write(work)

    def end(self, session_id: str, reason: str) -> Session:
        """End a session; one that has ended stays as it is."""
        if not reason or not isinstance(reason, str):
            raise ConfigError("A session ends for a reason.", hint="Give one word, such as 'done'.")
        now = self._now()

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            if row.ended_at is None:
                _end(tx, self._context, row, storable(reason) or reason, now)
            return session_rows.require(tx, session_id).session()

        found = self._db.write(work)
        self._log(f"ended ({found.end_reason})", found)
        return found

    def expire(self, session_id: str) -> Session | None:
        """End a session if its policy would now. None if not: somebody wrote, or it has ended."""
        guard = self._context.settings.has_active_processes
        is_guarded = guard is not None and guard(self.require(session_id).key)
        now = self._now()

        def work(tx: Transaction) -> Session | None:
            row = session_rows.require(tx, session_id)
            current = tx.one("session_current", {"key": row.key})
            if current is None or current[0] != row.ref or session_rows.is_under_way(tx, row):
                return None
            reason = _over(self._context, row, now, current[-1])
            if reason is None:
                return None
            if _may_be_kept(self._context, row, now, current[-1]) and (
                is_guarded or _has_program(tx, row.key)
            ):
                return None
            _end(tx, self._context, row, reason, now)
            return session_rows.require(tx, session_id).session()

        found = self._db.write(work)
        if found is not None:
            self._log(f"ended ({found.end_reason})", found)
        return found

    def rename(self, session_id: str, title: str | None) -> Session:
        """Give a session a title, unique among its owner's; None takes it away."""
        validate.text("title", title, optional=True)
        chosen = None if title is None else titles.one_line(title) or None
        if chosen is not None and len(chosen) > titles.LENGTH:
            raise ConfigError(
                f"The title has {len(chosen)} characters.",
                hint=f"Allowed: up to {titles.LENGTH}.",
                field="title",
            )
        now = self._now()

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            taken = {"owner": row.owner, "title": chosen, "ref": row.ref}
            if chosen is not None and tx.one("session_title_taken", taken) is not None:
                raise Duplicate(
                    f"You have another session called {chosen!r}.",
                    hint="Choose another title, or rename that one first.",
                )
            tx.run("session_rename", {"ref": row.ref, "title": chosen})
            tx.run("unindexed_put", {"session": row.ref})
            session_rows.event(tx, row.ref, now, "renamed", {"title": chosen})
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def suggest_title(self, session_id: str) -> str | None:
        """A title made of the person's first words, free among its owner's; None without words."""

        def work(tx: Transaction) -> str | None:
            row = session_rows.require(tx, session_id)
            for title in titles.titles_from(_first_words(tx, session_id)):
                taken = {"owner": row.owner, "title": title, "ref": row.ref}
                if tx.one("session_title_taken", taken) is None:
                    return title
            return None

        return self._db.read(work)

    def set_metadata(
        self, session_id: str, metadata: Mapping[str, Any], *, version: int | None = None
    ) -> Session:
        """Replace the metadata; with a version, only if the session is still at it."""
        written = to_json(metadata)

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            params = {"ref": row.ref, "metadata": written, "version": version}
            if tx.changed("session_set_metadata", params) == 0:
                raise StaleWrite(
                    f"The session is at version {row.version}, not {version}.",
                    hint="Read it again, then write.",
                    version=row.version,
                )
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def delete(self, session_id: str) -> None:
        """Remove a session with everything it holds; only what it cost stays in the ledger."""
        lane = session_rows.lane_of(self.require(session_id).key)
        self._db.write(
            lambda tx: delete.remove(tx, session_rows.require(tx, session_id)), lane=lane
        )

    # -- many sessions

    def count(self) -> int:
        """How many sessions there are, ended ones included."""
        row = self._db.read(lambda tx: tx.one("sessions_count"))
        assert row is not None
        return int(row[0])

    def has_any(self) -> bool:
        """Whether there has been any session, ended ones included."""
        return self._db.read(lambda tx: tx.one("sessions_any")) is not None

    def find(
        self,
        *,
        active_minutes: float | None = None,
        platform: str | None = None,
        key: str | None = None,
        person: str | None = None,
        state: State = "all",
        text: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Sessions by newest activity. `text` looks in titles, names and messages."""
        return find_within(
            self._context,
            [{"platform": platform, "key": key, "person": person}],
            active_minutes=active_minutes,
            state=state,
            text=text,
            limit=limit,
            cursor=cursor,
        )

    def ended(self, *, before: datetime, limit: int = 100) -> list[str]:
        """Ids of sessions that ended before a moment, the oldest first."""
        params = {"before": to_micros(before), "limit": limit}
        return [row[0] for row in self._db.read(lambda tx: tx.all("sessions_ended_before", params))]

    def expired(self, limit: int = 100, cursor: str | None = None) -> Page[Session]:
        """Sessions that their policy would end now, the longest silent first."""
        _check_page("all", limit)
        now = self._now()
        policies = self._context.settings.policies
        cutoffs = [c for policy in policies.all() for c in self._cutoffs(policy, now)]
        if not cutoffs:
            return Page(())
        # A person's zone can move a daily cutoff by up to a day.
        quiet_since = to_micros(max(cutoffs) + timedelta(days=1))
        place = _after(cursor) if cursor else (-_FAR, -_FAR)
        found: list[SessionRow] = []
        while len(found) <= limit:
            params = {
                "quiet_since": quiet_since,
                "after_at": place[0],
                "after_ref": place[1],
                "limit": limit + 1,
            }
            rows, leases_end, busy = self._db.read(partial(_quiet_rows, params=params))
            for row in rows:
                seen = session_row(row)
                place = _activity(seen)
                if (
                    seen.lease_until < leases_end
                    and _over(self._context, seen, now, row[-1])
                    and not self._is_kept(seen, now, row[-1], busy)
                ):
                    found.append(seen)
            if len(rows) <= limit:
                break
        return _page(found, limit, [row.session() for row in found[:limit]])

    def explain(self, session_id: str) -> str:
        """Why the session began, went on and ended, in lines for people."""

        def work(tx: Transaction) -> tuple[SessionRow, list[Row], str | None]:
            row = session_rows.require(tx, session_id)
            (zone,) = tx.one("person_zone", {"person": row.person}) or (None,)
            return row, tx.all("events_of", {"session": row.ref}), zone

        row, events, person_zone = self._db.read(work)
        lines = [f"Session {row.id} of {row.key}"]
        for at, kind, detail in events:
            moment = from_micros(at).astimezone(self._context.zone)
            lines.append(f"{moment:%Y-%m-%d %H:%M:%S %Z}  {_told(kind, body(detail))}")
        policy = self._context.settings.policies.for_chat(row.platform, row.chat_type)
        zone = self._context.zone_of(person_zone)
        lines.append("Policy: " + policy.explain(_quiet(row), self._now(), zone=zone))
        return "\n".join(lines)

    # -- within

    def _now(self) -> datetime:
        return self._context.clock.now().astimezone(UTC)

    def _log(self, what: str, session: Session) -> None:
        if log.isEnabledFor(logging.INFO):
            log.info("session %s of %s %s", session.id, self._context.shown(session.key), what)

    def _end_current(self, tx: Transaction, key: str, reason: str, now: datetime) -> None:
        row = tx.one("session_current", {"key": key})
        if row is not None:
            session_rows.end(tx, session_row(row), reason, now)

    def _cutoffs(self, policy: ResetPolicy, now: datetime) -> list[datetime]:
        return list(policy.cutoffs(now, zone=self._context.zone).values())

    def _is_kept(
        self, row: SessionRow, now: datetime, person_zone: str | None, busy: Collection[str]
    ) -> bool:
        """Whether a running program keeps the session from its policy."""
        if not _may_be_kept(self._context, row, now, person_zone):
            return False
        return row.key in busy or self._context.has_processes(row.key)


class OpenSession(NamedTuple):
    """One try to open a session, with what was known before its transaction."""

    context: StoreContext
    source: Source
    key: str
    now: datetime
    force_new: bool = False
    has_processes: bool | None = None
    # Somebody is there who can be told that a policy ended the session before.
    is_told: bool = True

    def open(self, tx: Transaction) -> Session | NeedsGuard:
        found = self.find(tx)
        if isinstance(found, NeedsGuard):
            return found
        row, notice = found
        now = to_micros(self.now)
        if row.updated_at != now:
            tx.run("session_touch", {"ref": row.ref, "now": now})
            row = row._replace(updated_at=now, version=row.version + 1)
        return row.session(notice)

    def find(self, tx: Transaction) -> tuple[SessionRow, Notice | None] | NeedsGuard:
        """The current session under its policy, not touched yet, or a new one with its notice."""
        key = linked_key(tx, self.source, self.key)
        return (self if key == self.key else self._replace(key=key))._find(tx)

    def _find(self, tx: Transaction) -> tuple[SessionRow, Notice | None] | NeedsGuard:
        row = tx.one("session_current", {"key": self.key})
        if row is None:
            return self._begin_after_end(tx)
        current = session_row(row)
        reason = "new" if self.force_new else _over(self.context, current, self.now, row[-1])
        if reason in AUTOMATIC and session_rows.is_under_way(tx, current):
            reason = None
        if reason in AUTOMATIC and _may_be_kept(self.context, current, self.now, row[-1]):
            is_kept = self._is_kept(tx)
            if is_kept is None:
                return NeedsGuard(self.key)
            reason = None if is_kept else reason
        if reason is None:
            return current, self._notice_left(tx, current)
        _end(tx, self.context, current, reason, self.now)
        return self._begin(tx, current, reason)

    def _is_kept(self, tx: Transaction) -> bool | None:
        """Whether a program runs for it; None if only the guard of whoever opened this can say."""
        if _has_program(tx, self.key):
            return True
        return False if self.context.settings.has_active_processes is None else self.has_processes

    def _begin_after_end(self, tx: Transaction) -> tuple[SessionRow, Notice | None]:
        """No session is current: this is the first contact, or the last one was ended apart."""
        row = tx.one("session_latest_ended", {"key": self.key})
        if row is None:
            return _begin(tx, self.context, self.source, self.key, self.now), None
        last = session_row(row)
        return self._begin(tx, last, last.end_reason or "")

    def _begin(
        self, tx: Transaction, after: SessionRow, reason: str
    ) -> tuple[SessionRow, Notice | None]:
        row = _begin(tx, self.context, self.source, self.key, self.now, after, reason=reason)
        return row, self._notice(tx, after, reason, row.id) if self.is_told else None

    def _notice_left(self, tx: Transaction, current: SessionRow) -> Notice | None:
        """The notice that is still due, where a delivery began the session and nobody spoke yet."""
        has_only_deliveries = current.last_seq > 0 and current.turns == 0
        if not self.is_told or not has_only_deliveries or current.parent_kind != "reset":
            return None
        row = tx.one("session_by_id", {"id": current.parent_id})
        if row is None:
            return None
        before = session_row(row)
        return self._notice(tx, before, before.end_reason or "", current.id)

    def _notice(self, tx: Transaction, after: SessionRow, reason: str, begun: str) -> Notice | None:
        if reason not in AUTOMATIC or tx.one("notice_due", {"session": after.ref}) is None:
            return None
        policy = self.context.settings.policies.for_chat(after.platform, after.chat_type)
        # Handed out with the transaction that finds or makes the new session, and written down with
        # the old one, hence exactly once: also where the new one is deleted, or the clock steps
        # back.
        session_rows.event(tx, after.ref, self.now, "noticed", {"session": begun})
        is_told = policy.notify and registry.platform(self.source.platform).notify
        return Notice(reason, after.turns > 0, after.id, notify=is_told)


def _end(
    tx: Transaction, context: StoreContext, row: SessionRow, reason: str, now: datetime
) -> None:
    """End a session; what was said in one that a policy ends may be worth remembering."""
    session_rows.end(tx, row, reason, now)
    if context.settings.remember and reason in AUTOMATIC and row.turns:
        tx.run("flush_put", {"session": row.ref})


def _begin(
    tx: Transaction,
    context: StoreContext,
    source: Source,
    key: str,
    now: datetime,
    after: SessionRow | None = None,
    *,
    reason: str | None = None,
) -> SessionRow:
    kind = None if after is None else "reset"
    row = session_rows.begin(tx, context, source, key, now, parent=after, kind=kind)
    session_rows.first_view(tx, row.ref, View.whole(row.ref), "start", now, 0)
    detail = {} if after is None else {"after": after.id, "reason": reason}
    session_rows.event(tx, row.ref, now, "began", detail)
    return row


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
    """Sessions that lie in any of the scopes, by newest activity; each once.

    A scope is a platform, a key and a person, or None for any.
    """
    _check_page(state, limit)
    validate.text("text", text, optional=True)
    for name, value in (pair for scope in scopes for pair in scope.items()):
        validate.text(name, value, optional=True)
    before = _after(cursor) if cursor else (_FAR, _FAR)
    since = None
    if active_minutes is not None:
        since = _minutes_before(context.clock.now(), active_minutes)
    asked = None if text is None else search_terms.terms(text.replace("\0", " "))
    if asked == []:
        return Page(())
    if asked is not None:
        context.catch_up()

    bounds = {
        "active_since": since,
        "before_at": before[0],
        "before_ref": before[1],
        "limit": limit + 1,
    }

    def work(tx: Transaction) -> list[SessionRow]:
        rows = (row for scope in scopes for row in matching(tx, {**bounds, **scope}, state, asked))
        found = {row.ref: row for row in rows}
        return sorted(found.values(), key=_activity, reverse=True)[: limit + 1]

    found = context.db.read(work)
    return _page(found, limit, [row.session() for row in found[:limit]])


def matching(
    tx: Transaction,
    filters: Mapping[str, Any],
    state: State,
    asked: list[search_terms.Phrase] | None,
) -> list[SessionRow]:
    """A page of sessions, newest activity first."""
    person = filters["person"]
    whose = None if person is None else resolve(tx, person, filters["platform"])
    params = {**filters, "person": whose}
    if asked is not None:
        params["words"] = tx.search_question(asked)
    found = [session_row(row) for half in _HALVES[state] for row in _half(tx, half, params)]
    return sorted(found, key=_activity, reverse=True)[: params["limit"]]


def _half(tx: Transaction, half: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """A page of the current or of the ended sessions, by the narrowest filter there is."""
    for name in ("words", "key", "person", "platform"):
        if params.get(name) is not None:
            yield from tx.all(f"sessions_{half}_page_by_{name}", params)
            return
    for (platform,) in tx.all(f"platforms_{half}"):
        found = {**params, "platform": platform}
        yield from tx.all(f"sessions_{half}_page_by_platform", found)


def _quiet_rows(tx: Transaction, params: Mapping[str, Any]) -> tuple[list[Row], int, set[str]]:
    """Current sessions by oldest activity, merged from each platform's; the database's time; and
    the keys that programs run for."""
    found = [
        row
        for (platform,) in tx.all("platforms_current")
        for row in tx.all("sessions_quiet", {**params, "platform": platform})
    ]
    oldest = sorted(found, key=lambda row: _activity(session_row(row)))[: params["limit"]]
    busy = {key for (key,) in tx.all("processes_running_keys")}
    return oldest, session_rows.database_time(tx), busy


def _has_program(tx: Transaction, key: str) -> bool:
    return tx.one("process_is_running_for", {"key": key}) is not None


def _may_be_kept(
    context: StoreContext, row: SessionRow, now: datetime, person_zone: str | None
) -> bool:
    """Whether a running program could keep a session still: it does so for a day at most."""
    return _over(context, row, now - context.settings.protection, person_zone) is None


def _over(
    context: StoreContext, row: SessionRow, now: datetime, person_zone: str | None
) -> str | None:
    policy = context.settings.policies.for_chat(row.platform, row.chat_type)
    return policy.decide(_quiet(row), now, zone=context.zone_of(person_zone))


def _quiet(row: SessionRow) -> _Quiet:
    ended = None if row.ended_at is None else from_micros(row.ended_at)
    return _Quiet(from_micros(row.updated_at), ended)


def _minutes_before(now: datetime, minutes: float) -> int:
    try:
        return to_micros(now - timedelta(minutes=minutes))
    except (OverflowError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"active_minutes is {minutes!r}.",
            hint="Give a number of minutes, such as 60.",
            field="active_minutes",
        ) from problem


def _activity(row: SessionRow) -> tuple[int, int]:
    return row.updated_at, row.ref


def _page(rows: list[SessionRow], limit: int, sessions: list[Session]) -> Page[Session]:
    more = len(rows) > limit
    return Page(tuple(sessions), cursor.write(*_activity(rows[limit - 1])) if more else None)


def _after(text: str) -> tuple[int, int]:
    at, ref = cursor.read(text, 2)
    return at, ref


def _check_page(state: str, limit: int) -> None:
    if state not in STATES:
        raise ConfigError(
            f"state is {state!r}.", hint=f"Allowed: {', '.join(STATES)}.", field="state"
        )
    validate.whole("limit", limit, 1, PAGE_LIMIT)


def _first_words(tx: Transaction, session_id: str) -> str:
    """What a person said first in a session, as far as a title needs it; "" if nobody did."""
    seen = session_rows.current_view(tx, session_id)
    first = oldest_of(seen.view.spans(seen.last_seq), _FIRST_LOOK)
    said = (
        text_of(message.body)
        for message in transcript.read(tx, first)
        if message.role == "user" and message.kind is None
    )
    return next((words[: 10 * titles.LENGTH] for words in said if words), "")


def _locate(view: View, seq: int, last_seq: int) -> int:
    try:
        return view.locate(seq, last_seq)
    except LookupError:
        raise NotFound(
            f"No message {seq} is seen in that session.",
            hint="`transcript(…).entries()` tells the sequence numbers.",
        ) from None


def _turns_until(tx: Transaction, span: Span) -> int:
    row = tx.one("message_turn", {"session": span.log, "seq": span.last})
    return 0 if row is None else int(row[0])


def _told(kind: str, detail: Mapping[str, Any]) -> str:
    told = [f"{name} {value}" for name, value in detail.items() if value is not None]
    return f"{kind}: {', '.join(told)}" if told else kind
