"""Entering a session: the one transaction that begins a turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.grammar import INTERRUPTED_RESULT, blocks
from tertulia.core.message import INTERRUPTED, TOOL, USER, Draft, draft, text_of, to_json
from tertulia.core.session import Notice
from tertulia.core.source import Source
from tertulia.records import acts, budgets, transcript
from tertulia.records.desk import Desk
from tertulia.records.house import House
from tertulia.records.sessions import Ask, Attempt
from tertulia.storage import rows
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import SessionRow, to_micros


class Said(NamedTuple):
    """What a person said, and where."""

    source: Source
    text: str | None
    message_id: str | None
    media: Sequence[Any]

    @property
    def arrival(self) -> str | None:
        """The message's name for ever: platform, account, chat and id, injective like a key."""
        if self.message_id is None:
            return None
        source = self.source
        parts = (source.platform, source.account, source.chat_id, self.message_id)
        return ":".join(map(keys.escape, parts))

    def drafts(self) -> list[Draft]:
        if self.text is None and not self.media:
            return []
        message: dict[str, Any] = {"role": USER, "content": self.text or ""}
        if self.media:
            message["media"] = list(self.media)
        if self.message_id is not None:
            message["message_id"] = self.message_id
        return [draft(message)]


class Place(NamedTuple):
    """Where a turn stands: its session, its number, and the epoch it writes under."""

    ref: int
    number: int
    epoch: int


class Entered(NamedTuple):
    """A turn that has begun, or that goes on where it was interrupted."""

    row: SessionRow
    notice: Notice | None
    place: Place


class Answered(NamedTuple):
    """The message had its turn before: this is what was answered."""

    session_id: str
    answer: str | None


class Busy(Exception):
    """Somebody else is inside, or came before."""


class Entry(NamedTuple):
    """One try to enter."""

    house: House
    desk: Desk
    said: Said
    key: str
    now: datetime
    ticket: int | None
    has_processes: bool | None

    def enter(self, tx: Transaction) -> Entered | Answered | Ask:
        """Begin the turn; raises `Busy`, and then nothing is stored."""
        arrival = self.said.arrival
        known = tx.one("turn_by_arrival", {"arrival": arrival}) if arrival else None
        if known is not None:
            return self._again(tx, known)
        attempt = Attempt(
            self.house, self.said.source, self.key, self.now, False, self.has_processes
        )
        found = attempt.find(tx)
        if isinstance(found, Ask):
            return found
        row, notice = found
        self._wait_for_turn(tx, row.ref, row.lease_until)
        budgets.check(tx, self.house, row, keys.person_of(self.said.source), self.now)
        if row.open_turn is not None:
            row = row._replace(last_seq=close_left_open(tx, row, self.now))
        return Entered(row, notice, self._begin(tx, row, arrival))

    def _wait_for_turn(self, tx: Transaction, ref: int, lease_until: int) -> None:
        """Raise `Busy` while another turn is inside or somebody came before."""
        if self.desk.holds(ref):
            raise Busy
        if lease_until:
            (now,) = tx.one("db_now") or (0,)
            if lease_until > now:
                raise Busy
        (first,) = tx.one("ticket_first", {"key": self.key}) or (None,)
        if first is not None and (self.ticket is None or first < self.ticket):
            raise Busy
        if self.ticket is not None:
            tx.run("ticket_drop", {"id": self.ticket})

    def _begin(self, tx: Transaction, row: SessionRow, arrival: str | None) -> Place:
        now = to_micros(self.now)
        drafts = self.said.drafts()
        last_seq, number, epoch = self._take(tx, row.ref, len(drafts), 1)
        transcript.insert(
            tx, row.ref, last_seq, drafts, now, turns=[number] * len(drafts), author=self._author()
        )
        tx.run(
            "turn_insert",
            {
                "ref": row.ref,
                "number": number,
                "arrival": arrival,
                "now": now,
                "first_seq": last_seq - len(drafts) + 1,
            },
        )
        return Place(row.ref, number, epoch)

    def _take(self, tx: Transaction, ref: int, count: int, turns: int) -> tuple[int, int, int]:
        """Raise the epoch: from now on every older one can write nothing."""
        row = tx.one(
            "session_enter",
            {
                "ref": ref,
                "count": count,
                "turns": turns,
                "now": to_micros(self.now),
                "lease": lease_micros(self.house),
            },
        )
        assert row is not None
        last_seq, number, epoch = row
        return last_seq, number, epoch

    def _again(self, tx: Transaction, known: Row) -> Entered | Answered:
        """The message came before: its answer, or its turn goes on where it was cut off."""
        ref, number, state, answer_seq, session_id, turns, ended_at, open_turn, until, now = known
        is_under_way = state == "open" and (until > now or self.desk.holds(ref))
        if is_under_way:
            raise Busy
        can_go_on = state in ("open", "interrupted") and number == turns and ended_at is None
        if not can_go_on:
            return Answered(session_id, _said_at(tx, ref, answer_seq))
        self._wait_for_turn(tx, ref, until)
        row = acts.require(tx, session_id)
        if open_turn is not None:
            row = row._replace(last_seq=close_left_open(tx, row, self.now))
        _, _, epoch = self._take(tx, ref, 0, 0)
        tx.run("turn_reopen", {"ref": ref, "number": number})
        return Entered(row, None, Place(ref, number, epoch))

    def _author(self) -> str | None:
        source = self.said.source
        if source.chat_type == "dm" or source.participant is None:
            return None
        if acts.owner_person(source, self.house) is not None:
            return None
        return to_json({"id": source.participant, "name": source.user_name})


def close_left_open(tx: Transaction, row: SessionRow, now: datetime) -> int:
    """Close a turn that was left open; the last sequence number after it.

    Whatever it had called and not heard of gets a result that says so. Nothing is run again.
    """
    assert row.open_turn is not None
    drafts = interrupted_results(tx, row.ref, row.last_seq, row.open_turn)
    last_seq = row.last_seq + len(drafts)
    moment = to_micros(now)
    if drafts:
        tx.run("session_add_rows", {"ref": row.ref, "count": len(drafts)})
        transcript.insert(
            tx,
            row.ref,
            last_seq,
            drafts,
            moment,
            turns=[row.open_turn] * len(drafts),
            kind=INTERRUPTED,
        )
    closing = {"ref": row.ref, "number": row.open_turn, "now": moment, "answer_seq": None}
    tx.run("turn_close", {**closing, "state": "interrupted"})
    acts.event(tx, row.ref, now, "interrupted", {"turn": row.open_turn, "calls": len(drafts)})
    return last_seq


def interrupted_results(tx: Transaction, ref: int, last_seq: int, turn: int) -> list[Draft]:
    """A result for each call of a turn that has none."""
    params = {"ref": ref, "last": last_seq, "turn": turn}
    found = [rows.message(row, tx) for row in tx.all("turn_rows", params)]
    drafts = []
    for block in blocks(found):
        for call, result in zip(block.calls, block.results, strict=True):
            if result.row is None:
                given = _given_id(block.row.body, call, block.calls)
                name = call["function"]["name"]
                drafts.append(_interrupted(given, name))
    return drafts


def lease_micros(house: House) -> int:
    return round(house.settings.lease_seconds * 1_000_000)


def _interrupted(call_id: str, name: str) -> Draft:
    return draft(
        {
            "role": TOOL,
            "tool_call_id": call_id,
            "name": name,
            "content": INTERRUPTED_RESULT,
            "interrupted": True,
        }
    )


def _given_id(body: dict[str, Any], call: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """The id as it was stored, which the grammar may have made unique."""
    stored = [item for item in body.get("tool_calls") or [] if isinstance(item, dict)]
    place = calls.index(call)
    given = stored[place].get("id") if place < len(stored) else None
    return given if isinstance(given, str) and given else call["id"]


def _said_at(tx: Transaction, ref: int, seq: int | None) -> str | None:
    if seq is None:
        return None
    found = tx.all("messages_of", {"session": ref, "first": seq, "last": seq})
    return text_of(rows.message(found[0], tx).body) if found else None
