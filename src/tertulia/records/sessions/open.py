"""Opening the session of a source under its policy, within one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from tertulia.core.history.view import View
from tertulia.core.session import Notice, Session
from tertulia.core.source import Source
from tertulia.platforms import registry
from tertulia.records import session_rows
from tertulia.records.links import Link, get_link
from tertulia.records.process_check import NO_ANSWERS, ProcessAnswers, is_protected
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros, session_row, to_micros

# The reasons for which a policy ends a session.
AUTOMATIC: Final = ("idle", "daily")


class Activity(NamedTuple):
    """The part of a session that a policy decides by."""

    updated_at: datetime
    ended_at: datetime | None


class OpenSession(NamedTuple):
    """One try to open a session, with the facts that were known before its transaction."""

    context: StoreContext
    source: Source
    key: str
    now: datetime
    force_new: bool = False
    answers: ProcessAnswers = NO_ANSWERS
    # A user is there to whom the notice can be shown that a policy ended the session before.
    hands_out_notice: bool = True
    link: Link | None = None  # of the source's chat, once it was read

    def open(self, tx: Transaction) -> Session:
        """Return the current session or a new one, and touch its activity."""
        row, notice = self.find(tx)
        now = to_micros(self.now)
        if row.updated_at != now:
            tx.run("session_touch", {"ref": row.ref, "now": now})
            row = row._replace(updated_at=now, version=row.version + 1)
        return row.session(notice)

    def find(self, tx: Transaction) -> tuple[SessionRow, Notice | None]:
        """Return the current session under its policy, or a new one; activity is not touched.

        Raise `NeedsProcessCheck` if the policy would end a session that a process may protect.
        """
        link = get_link(tx, self.source, self.key)
        if link is None:
            return self.find_in_key(tx)
        return self._replace(key=link.shared_key, link=link).find_in_key(tx)

    def find_in_key(self, tx: Transaction) -> tuple[SessionRow, Notice | None]:
        """Do the same as `find` for the key as it is, without looking for a link."""
        columns = tx.one("session_current", {"key": self.key})
        if columns is None:
            return self._begin_after_end(tx)
        current = session_row(columns)
        zone = columns[-1]
        reason = "new" if self.force_new else expiry_reason(self.context, current, self.now, zone)
        if reason in AUTOMATIC and session_rows.is_in_use(tx, current):
            reason = None
        if (
            reason in AUTOMATIC
            and can_be_protected(self.context, current, self.now, zone)
            and is_protected(tx, self.context, self.key, self.answers)
        ):
            reason = None
        if reason is None:
            return current, self._pending_notice(tx, current)
        end_session(tx, self.context, current, reason, self.now)
        return self._begin(tx, current, reason)

    def _begin_after_end(self, tx: Transaction) -> tuple[SessionRow, Notice | None]:
        """Begin a session when none is current: at first contact, or after one was ended."""
        columns = tx.one("session_latest_ended", {"key": self.key})
        if columns is None:
            return self._insert(tx), None
        last = session_row(columns)
        return self._begin(tx, last, last.end_reason or "")

    def _begin(
        self, tx: Transaction, ended: SessionRow, reason: str
    ) -> tuple[SessionRow, Notice | None]:
        """Begin a session after one that has ended for a reason."""
        row = self._insert(tx, ended, reason)
        return row, self._notice(tx, ended, reason, row) if self.hands_out_notice else None

    def _insert(
        self, tx: Transaction, ended: SessionRow | None = None, reason: str | None = None
    ) -> SessionRow:
        """Insert the session and return its row.

        In a shared conversation it belongs to the chat that has its key, whoever writes first, so
        that it stays with that chat when the link ends.
        """
        link = self.link
        source = self.source if link is None else link.shared_source or self.source
        person = session_rows.owner_person(source, self.context)
        if link is not None:
            person = link.shared_person
        return begin_session(
            tx, self.context, source, self.key, self.now, ended, reason=reason, person=person
        )

    def _pending_notice(self, tx: Transaction, current: SessionRow) -> Notice | None:
        """Return the notice of a session that a delivery began and in which nobody wrote yet."""
        has_only_deliveries = current.last_seq > 0 and current.turns == 0
        if not self.hands_out_notice or not has_only_deliveries or current.parent_kind != "reset":
            return None
        ended = session_rows.get(tx, current.parent_id or "")
        return None if ended is None else self._notice(tx, ended, ended.end_reason or "", current)

    def _notice(
        self, tx: Transaction, ended: SessionRow, reason: str, current: SessionRow
    ) -> Notice | None:
        """Return the notice for a user that a policy ended the session before, if it is due."""
        if reason not in AUTOMATIC or tx.one("notice_due", {"session": ended.ref}) is None:
            return None
        policy = self.context.settings.policies.for_chat(ended.platform, ended.chat_type)
        # The notice is handed out by the transaction that finds or makes the new session, and an
        # event of the old one records that. So it is handed out exactly once, even if the new
        # session is deleted or the clock steps back.
        session_rows.record_event(tx, ended.ref, self.now, "noticed", {"session": current.id})
        can_notify = policy.notify and registry.platform(self.source.platform).notify
        return Notice(reason, ended.turns > 0, ended.id, notify=can_notify)


def begin_session(
    tx: Transaction,
    context: StoreContext,
    source: Source,
    key: str,
    now: datetime,
    after: SessionRow | None = None,
    *,
    reason: str | None = None,
    person: str | None,
    by: str | None = None,
) -> SessionRow:
    """Insert a session of a person with its first revision and event; return its row."""
    kind = None if after is None else "reset"
    row = session_rows.insert_session(
        tx, context, source, key, now, person=person, parent=after, kind=kind
    )
    session_rows.insert_first_revision(tx, row.ref, View.whole(row.ref), "start", now, 0)
    detail = {} if after is None else {"after": after.id, "reason": reason}
    session_rows.record_event(tx, row.ref, now, "began", detail, by=by)
    return row


def end_session(
    tx: Transaction,
    context: StoreContext,
    row: SessionRow,
    reason: str,
    now: datetime,
    *,
    by: str | None = None,
) -> None:
    """End a session; one with messages that a policy ends is queued for a memory flush."""
    session_rows.mark_ended(tx, row, reason, now, by=by)
    if context.settings.remember and reason in AUTOMATIC and row.turns:
        tx.run("memory_flush_put", {"session": row.ref})


def expiry_reason(
    context: StoreContext, row: SessionRow, now: datetime, person_zone: str | None
) -> str | None:
    """Return the reason for which its policy would end a session now, or None."""
    policy = context.settings.policies.for_chat(row.platform, row.chat_type)
    return policy.decide(activity_of(row), now, zone=context.zone_of(person_zone))


def can_be_protected(
    context: StoreContext, row: SessionRow, now: datetime, person_zone: str | None
) -> bool:
    """Return whether a running process can still protect a session.

    It does for at most `Settings.protection_hours` after the session should have ended.
    """
    return expiry_reason(context, row, now - context.settings.protection, person_zone) is None


def activity_of(row: SessionRow) -> Activity:
    """Return the part of a session that a policy decides by."""
    ended_at = None if row.ended_at is None else from_micros(row.ended_at)
    return Activity(from_micros(row.updated_at), ended_at)
