"""Sessions: open, reset, switch, fork, end, rename, delete, find and explain them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from tertulia.core import title as titles
from tertulia.core import validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.history.view import Span, oldest_spans, view_of_spans
from tertulia.core.message import text_of, to_json
from tertulia.core.policy import PolicyForecast
from tertulia.core.session import Page, Session, State
from tertulia.core.source import Source
from tertulia.core.text.display_safe import display_line
from tertulia.core.text.excerpt import short_repr
from tertulia.core.text.storable import storable
from tertulia.errors import AccessDenied, ConfigError, Duplicate
from tertulia.records import session_rows
from tertulia.records.agent_choices import copy_to_fork
from tertulia.records.links import linked_key
from tertulia.records.process_check import ProcessAnswers, is_protected, write_with_process_check
from tertulia.records.sessions import delete
from tertulia.records.sessions.find import FindExpired, find_within
from tertulia.records.sessions.last_words import LastWords, read_last_words
from tertulia.records.sessions.open import (
    OpenSession,
    activity_of,
    begin_session,
    can_be_protected,
    end_session,
    expiry_reason,
)
from tertulia.records.sessions.session_events import SessionEvent, read_events
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.read import read_messages, read_turn_number
from tertulia.records.transcript.revisions import copy_summary, locate, past_view
from tertulia.records.turns.by_message import MessageTurn, read_turn_of_message
from tertulia.records.turns.newest import NewestTurn, read_newest_turn
from tertulia.records.turns.user_message import UserMessage
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import SessionRow, from_micros, parse_body, session_row, to_micros

log = logging.getLogger("tertulia.sessions")

TurnRequest = Literal["stop", "retry"]
_LARGEST: Final = 2**63 - 1
_FIRST_READ: Final = 8  # messages, to find the first text of a user
_MAX_EVENT_LINE: Final = 500


@checks_arguments
class Sessions:
    """The sessions of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    # -- opening

    def open(self, source: Source, *, force_new: bool = False) -> Session:
        """Return the current session of a source, or a new one.

        A new one begins if there is none, if the policy ends the current one, or if it is forced.
        Activity is touched in the same transaction. Two callers at once get the same session.
        """
        key, now = session_rows.key_of(self._context, source), self._context.clock.now()

        def work(tx: Transaction, answers: ProcessAnswers) -> Session:
            return OpenSession(self._context, source, key, now, force_new, answers).open(tx)

        session = write_with_process_check(self._context, work, lane=session_rows.lane_of(key))
        if session.created_at == session.updated_at:
            self._log("began", session)
        return session

    def key(self, source: Source) -> str:
        """Return the key of a source under this store's settings."""
        return session_rows.key_of(self._context, source)

    def conversation(self, source: Source) -> str:
        """Return the key of a source, or the shared one if its chat is linked."""
        return self._db.read(lambda tx: linked_key(tx, source, self.key(source)))

    def is_shared(self, source: Source) -> bool:
        """Return whether several people write in the session of a source."""
        return source.chat_type != "dm" and session_rows.owner_person(source, self._context) is None

    # -- one session

    def get(self, session_id: str) -> Session | None:
        """Return the session with this id, or None."""
        row = self._db.read(lambda tx: session_rows.get(tx, session_id))
        return None if row is None else row.session()

    def require(self, session_id: str) -> Session:
        """Return the session with this id; raise `NotFound` if there is none."""
        return self._db.read(lambda tx: session_rows.require(tx, session_id)).session()

    def get_many(self, session_ids: Sequence[str]) -> list[Session]:
        """Return the sessions of these ids, in the order of ids; unknown ones are left out."""
        params = {"ids": to_json(list(session_ids))}
        rows = self._db.read(lambda tx: tx.all("sessions_of_ids", params))
        return [session_row(row).session() for row in rows]

    def last_words(self, session_ids: Sequence[str]) -> dict[str, LastWords]:
        """Return the beginning of the newest text of each session by id, if it has one."""
        return self._db.read(lambda tx: read_last_words(tx, session_ids))

    def current(self, key: str) -> Session | None:
        """Return the current session of a key as stored, or None; no policy is applied."""
        row = self._db.read(lambda tx: session_rows.get_current(tx, key))
        return None if row is None else row.session()

    def reset(self, key: str, *, by: str | None = None) -> Session | None:
        """End the current session of a key and begin a new one; None for an unknown key.

        `by` is who asked for it, for the events of the session.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> Session | None:
            row = tx.one("session_current", {"key": key}) or tx.one(
                "session_latest_ended", {"key": key}
            )
            if row is None:
                return None
            before = session_row(row)
            if before.ended_at is None:
                session_rows.mark_ended(tx, before, "new", now, by=by)
            return begin_session(
                tx, self._context, session_rows.origin_of(before), key, now, before, reason="new",
                person=before.person, by=by,
            ).session()  # fmt: skip

        session = self._db.write(work)
        if session is not None:
            self._log("began after a reset", session)
        return session

    def switch(self, key: str, session_id: str, *, by: str | None = None) -> Session:
        """Make an earlier session of the same key current again, and return it.

        `by` is who asked for it. Raise `NotFound`, and `AccessDenied` if it belongs to another key.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            if row.key != key:
                raise AccessDenied(
                    "That session belongs to another conversation.",
                    hint="List this one's with: tertulia sessions list --key KEY",
                )
            if row.ended_at is None:
                return row.session()
            self._end_current(tx, key, "switch", now, by)
            tx.run("session_resume", {"ref": row.ref, "now": to_micros(now)})
            session_rows.record_event(tx, row.ref, now, "resumed", {"was": row.end_reason}, by=by)
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def fork(
        self,
        session_id: str,
        at: int | None = None,
        *,
        revision: int | None = None,
        by: str | None = None,
    ) -> Session:
        """Begin a new current session with the same messages, up to and including number `at`.

        No message is copied: the fork shows the messages of the session it came from, as they are
        now or as revision `revision` showed them. `by` is who asked for it. Raise `NotFound` if
        there is no such session or revision, or `at` is not visible in it.
        """
        if at is not None:
            validate.integer("at", at, -_LARGEST)
        if revision is not None:
            validate.integer("revision", revision, 1)
        now = self._context.clock.now()

        def work(tx: Transaction) -> Session:
            parent = session_rows.require(tx, session_id)
            current = session_rows.current_view(tx, session_id)
            if revision is not None:
                current = past_view(tx, current, revision)
            spans = current.view.spans(current.last_seq)
            if at is not None:
                log = locate(current, at)
                spans = [*current.view.before(log, at, current.last_seq), Span(log, at, at)]
            last_seq = max((span.last for span in spans), default=0)
            turns = read_turn_number(tx, spans[-1].log, spans[-1].last) if spans else 0
            self._end_current(tx, parent.key, "fork", now, by)
            fork = session_rows.insert_session(
                tx,
                self._context,
                session_rows.origin_of(parent),
                parent.key,
                now,
                person=parent.person,
                parent=parent,
                kind="fork",
                last_seq=last_seq,
                turns=turns,
            )
            view = view_of_spans(spans, fork.ref, last_seq)
            session_rows.insert_first_revision(tx, fork.ref, view, "fork", now, last_seq)
            copy_summary(tx, current, fork.ref, view, to_micros(now))
            copy_to_fork(tx, parent.ref, fork.ref)
            for log in view.logs() - {fork.ref}:
                tx.run("borrowing_insert", {"log": log, "session": fork.ref})
            session_rows.record_event(
                tx, fork.ref, now, "began", {"forked_from": parent.id, "at": at}, by=by
            )
            return fork.session()

        return self._db.write(work)

    def end(self, session_id: str, reason: str, *, by: str | None = None) -> Session:
        """End a session and return it; a session that has ended is not changed. Raise `NotFound`.

        `by` is who ends it, for the events of the session.
        """
        if not reason:
            raise ConfigError(
                f"The reason to end a session is {short_repr(reason)}.",
                hint="Give a word, such as 'done'.",
            )
        now = self._context.clock.now()

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            if row.ended_at is None:
                end_session(tx, self._context, row, storable(reason), now, by=by)
            return session_rows.require(tx, session_id).session()

        session = self._db.write(work)
        self._log(f"ended ({session.end_reason})", session)
        return session

    def expire(self, session_id: str) -> Session | None:
        """End a session and return it, if its policy ends it now.

        Return None if not: a user wrote, a turn or a process runs in it, or it has ended.
        """
        now = self._context.clock.now()

        def work(tx: Transaction, answers: ProcessAnswers) -> Session | None:
            row = session_rows.require(tx, session_id)
            current = tx.one("session_current", {"key": row.key})
            if current is None or current[0] != row.ref or session_rows.is_in_use(tx, row):
                return None
            reason = expiry_reason(self._context, row, now, current[-1])
            if reason is None:
                return None
            if can_be_protected(self._context, row, now, current[-1]) and is_protected(
                tx, self._context, row.key, answers
            ):
                return None
            end_session(tx, self._context, row, reason, now)
            return session_rows.require(tx, session_id).session()

        session = write_with_process_check(self._context, work)
        if session is not None:
            self._log(f"ended ({session.end_reason})", session)
        return session

    def rename(self, session_id: str, title: str | None, *, by: str | None = None) -> Session:
        """Set the title of a session, and return the session; None removes the title.

        Raise `Duplicate` if another session of its owner has the title, `ConfigError` if it is too
        long, `NotFound` if there is no such session.
        """
        chosen = None if title is None else titles.title_line(title) or None
        if chosen is not None and len(chosen) > titles.MAX_LENGTH:
            raise ConfigError(
                f"The title has {len(chosen)} characters.",
                hint=f"Allowed: up to {titles.MAX_LENGTH}.",
                field="title",
            )
        now = self._context.clock.now()

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            if chosen is not None and not session_rows.is_title_free(
                tx, row.owner, chosen, ref=row.ref
            ):
                raise Duplicate(
                    f"You have another session with the title {short_repr(chosen)}.",
                    hint="Choose another title, or rename that one first.",
                )
            tx.run("session_rename", {"ref": row.ref, "title": chosen})
            tx.run("unindexed_put", {"session": row.ref})
            session_rows.record_event(tx, row.ref, now, "renamed", {"title": chosen}, by=by)
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def suggest_title(self, session_id: str) -> str | None:
        """Return a free title made of the user's first words; None if there are no words.

        Raise `NotFound` if there is no such session.
        """

        def work(tx: Transaction) -> str | None:
            row = session_rows.require(tx, session_id)
            for title in titles.suggest_titles(_first_text(tx, session_id)):
                if session_rows.is_title_free(tx, row.owner, title, ref=row.ref):
                    return title
            return None

        return self._db.read(work)

    def set_metadata(
        self, session_id: str, metadata: Mapping[str, Any], *, version: int | None = None
    ) -> Session:
        """Replace the metadata and return the session.

        With a version, raise `StaleWrite` unless the session is still at it.
        """

        def work(tx: Transaction) -> Session:
            row = session_rows.require(tx, session_id)
            session_rows.set_metadata(tx, row, metadata, version=version)
            return session_rows.require(tx, session_id).session()

        return self._db.write(work)

    def delete(self, session_id: str) -> None:
        """Delete a session with all its content; only its usage stays in the ledger.

        Raise `NotFound` if there is no such session.
        """
        lane = session_rows.lane_of(self.require(session_id).key)
        now = self._context.clock.now()
        self._db.write(
            lambda tx: delete.delete_session(tx, session_rows.require(tx, session_id), now),
            lane=lane,
        )

    # -- many sessions

    def count(self) -> int:
        """Return the number of sessions, ended ones included."""
        row = self._db.read(lambda tx: tx.one("sessions_count"))
        assert row is not None
        return int(row[0])

    def has_any(self) -> bool:
        """Return whether there is any session, ended ones included."""
        return self._db.read(lambda tx: tx.one("sessions_exist")) is not None

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
        """Return a page by newest activity. `text` is searched in titles, names and messages."""
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
        """Return the ids of sessions that ended before a time, the oldest first."""
        validate.integer("limit", limit, 1)
        params = {"before": to_micros(before), "limit": limit}
        return [row[0] for row in self._db.read(lambda tx: tx.all("sessions_ended_before", params))]

    def expired(self, limit: int = 100, cursor: str | None = None) -> Page[Session]:
        """Return a page of the sessions that their policy would end now, longest inactive first."""
        return FindExpired(self._context, self._context.clock.now()).find(limit, cursor)

    def explain(self, session_id: str) -> str:
        """Return lines for people that say why the session began, continued and ended.

        Raise `NotFound` if there is no such session.
        """

        def work(tx: Transaction) -> tuple[SessionRow, list[Row], str | None]:
            row = session_rows.require(tx, session_id)
            (zone,) = tx.one("person_zone", {"person": row.person}) or (None,)
            return row, tx.all("events_of", {"session": row.ref}), zone

        row, events, person_zone = self._db.read(work)
        lines = [f"Session {row.id} of {row.key}"]
        for at, kind, detail in events:
            moment = from_micros(at).astimezone(self._context.zone)
            lines.append(f"{moment:%Y-%m-%d %H:%M:%S %Z}  {_describe(kind, parse_body(detail))}")
        policy = self._context.settings.policies.for_chat(row.platform, row.chat_type)
        zone = self._context.zone_of(person_zone)
        lines.append(
            "Policy: " + policy.explain(activity_of(row), self._context.clock.now(), zone=zone)
        )
        return "\n".join(lines)

    def events(
        self, session_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[SessionEvent]:
        """Return a page of what happened to a session, newest first.

        Raise `NotFound` if there is no such session.
        """
        return self._db.read(lambda tx: read_events(tx, session_id, limit, cursor))

    def newest_turn(self, session_id: str) -> NewestTurn | None:
        """Return the newest turn of a session, None if it had none.

        Raise `NotFound` if there is no such session.
        """
        return self._db.read(lambda tx: read_newest_turn(tx, session_id))

    def turn_of_message(self, source: Source, message_id: str) -> MessageTurn | None:
        """Return the turn that a message of a chat had, None if it had none."""
        dedupe_key = UserMessage(source, None, message_id, ()).dedupe_key
        if dedupe_key is None:
            return None
        return self._db.read(lambda tx: read_turn_of_message(tx, dedupe_key))

    def record_request(self, session_id: str, kind: TurnRequest, *, by: str | None = None) -> None:
        """Record that somebody asked to stop the newest turn, or to answer it again.

        Raise `NotFound` if there is no such session.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> None:
            row = session_rows.require(tx, session_id)
            session_rows.record_event(tx, row.ref, now, kind, {}, by=by)

        self._db.write(work)

    def after(self, session_id: str, *, limit: int = 10) -> list[Session]:
        """Return the sessions that began after this one or were forked from it, newest first."""
        validate.integer("limit", limit, 1, 1000)
        params = {"id": session_id, "limit": limit}
        rows = self._db.read(lambda tx: tx.all("sessions_after", params))
        return [session_row(row).session() for row in rows]

    def forecast(self, session_id: str) -> PolicyForecast:
        """Return when its policy will end a session if nobody writes; raise `NotFound`.

        A turn that runs in it then keeps it open until it is over, a process for at most
        `Settings.protection_hours`.
        """

        def work(tx: Transaction) -> tuple[SessionRow, str | None]:
            row = session_rows.require(tx, session_id)
            (zone,) = tx.one("person_zone", {"person": row.person}) or (None,)
            return row, zone

        row, person_zone = self._db.read(work)
        return self._context.settings.policies.forecast(
            row.platform, row.chat_type, activity_of(row), zone=self._context.zone_of(person_zone)
        )

    # -- private

    def _log(self, change: str, session: Session) -> None:
        if log.isEnabledFor(logging.INFO):
            log.info(
                "session %s of %s %s", session.id, self._context.redacted_key(session.key), change
            )

    def _end_current(
        self, tx: Transaction, key: str, reason: str, now: datetime, by: str | None
    ) -> None:
        row = session_rows.get_current(tx, key)
        if row is not None:
            session_rows.mark_ended(tx, row, reason, now, by=by)


def _first_text(tx: Transaction, session_id: str) -> str:
    """Return the first text of a user in a session, as long as a title needs it; else ""."""
    current = session_rows.current_view(tx, session_id)
    oldest = oldest_spans(current.view.spans(current.last_seq), _FIRST_READ)
    texts = (
        text_of(message.body)
        for message in read_messages(tx, oldest)
        if message.role == "user" and message.kind is None
    )
    return next((text[: 10 * titles.MAX_LENGTH] for text in texts if text), "")


def _describe(kind: str, detail: Mapping[str, Any]) -> str:
    """Return an event as one line."""
    fields = [f"{name} {value}" for name, value in detail.items() if value is not None]
    # Others chose some values, such as a reason, and must not write a line that seems to be ours.
    return display_line(f"{kind}: {', '.join(fields)}", _MAX_EVENT_LINE) if fields else kind
