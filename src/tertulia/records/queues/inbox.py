"""The inbox: accepted messages that are to be answered, in order within each conversation.

waiting → taken → done
                → waiting   it failed and is tried again, or the lease of its claim ran out
                → dead      it cannot be answered
        → done              a turn that was already running answers it too (`Turn.take_in`)
gathered                    its text was added to the message before it and is answered with that
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from tertulia.core import keys, validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.media import to_dicts
from tertulia.core.message import from_json, to_json
from tertulia.core.session import Page
from tertulia.core.source import LOCAL, Source
from tertulia.core.text.storable import storable
from tertulia.errors import LimitExceeded, StaleWrite
from tertulia.records import session_rows
from tertulia.records.links import linked_key
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.records.turns.user_message import UserMessage
from tertulia.storage.base import Database, Params, Row, StatementLost, Step, Transaction
from tertulia.storage.rows import from_micros, parse_source, to_micros

CHANNEL: Final = "inbox"

InboxState = Literal["waiting", "taken", "done", "dead", "gathered"]
INBOX_STATES: tuple[InboxState, ...] = ("waiting", "taken", "done", "dead", "gathered")
# A user who never stops writing is answered after this many times `gather_seconds`.
_MAX_GATHER_PAUSES: Final = 5
_RETRY_SECONDS: Final = 10.0


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted message. `is_new` is False if the same message had been accepted before.

    An item that `resumes` a batch of approvals is no message: it continues the turn of the message
    with that id, now that its calls were approved or declined. `node` is the gateway in whose
    terminal it was typed: no other one claims it while that one lives. `worker` is the gateway that
    has claimed it, or had claimed it last.
    """

    id: int
    key: str
    source: Source
    text: str | None
    message_id: str | None
    media: tuple[Any, ...]
    state: InboxState
    attempts: int
    not_before: datetime
    received_at: datetime
    problem: str | None
    gathered_into: int | None = None
    is_new: bool = False
    resumes: str | None = None
    node: str | None = None
    worker: str | None = None


@checks_arguments
class Inbox:
    """The accepted messages of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db
        self._last_person = ""  # who was served last; the next claim goes on after them

    def put(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        gather_seconds: float = 0,
        group: str | None = None,
        waiting_limit: int | None = None,
    ) -> InboxItem:
        """Store a message for answering and return its inbox item.

        A message with the same dedupe key changes nothing: the stored item is returned as it is.
        If it was deleted with its session, the returned item has the id 0 and no content.
        With `gather_seconds` the message waits that long for more: further messages of the same
        user in that time are added to it and answered together with it; if it has a `group`, only
        messages of the same group. Raise `LimitExceeded` if `waiting_limit` messages of this user
        wait already.
        """
        if waiting_limit is not None:
            validate.integer("waiting_limit", waiting_limit, 0)
        key = session_rows.key_of(self._context, source)
        now = self._context.clock.now()
        platform_id = None if message_id is None else str(message_id)
        content = {"text": text, "message_id": platform_id, "media": to_dicts(list(media))}
        dedupe_key = UserMessage(source, text, platform_id, ()).dedupe_key
        params = {
            "arrival": dedupe_key,
            "hash": _hash(dedupe_key or ""),
            "key": key,
            "person": claim_person(source),
            "node": _terminal_node(self._context, source),
            "source": to_json(source.to_dict()),
            "body": to_json(content if group is None else content | {"group": group}),
            "now": to_micros(now),
            **base.pause_params(now, gather_seconds),
        }
        item = _accept(self._db, source, params, gather_seconds, waiting_limit)
        if item.is_new:
            self._db.notify(CHANNEL)
        return item

    def claim(
        self,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        per_person: int | None = None,
        running: Mapping[str, int] = MappingProxyType({}),
        worker: str | None = None,
    ) -> list[InboxItem]:
        """Claim the oldest waiting message of each conversation that has no claimed one.

        Claims alternate between people (round robin), so that nobody waits for all messages of
        another person. `running` counts the turns in progress by `claim_person`; nobody gets more
        than `per_person` turns at once. Renew a claim before its lease ends, or another worker gets
        the message. The name of the `worker` is stored only to be shown.
        """
        base.check_limit(limit)
        order = _order_params(self._last_person, limit, per_person, running)

        def steps(params: Params) -> list[Step]:
            claim = {**params, **order, "worker": storable(worker)}
            return [("inbox_expire", {}), ("inbox_wake", params), ("inbox_claim", claim)]

        *_, rows = QUEUE.claim_together(self._context, limit, lease_seconds, steps)
        items = sorted(map(to_item, rows), key=lambda item: item.id)
        self._last_person = _last_served(items, self._last_person)
        return items

    def wait(
        self,
        seconds: float,
        *,
        per_person: int | None = None,
        running: Mapping[str, int] = MappingProxyType({}),
    ) -> bool:
        """Wait until something can be claimed; return False if nothing can after `seconds`.

        `per_person` and `running` are those of `claim`; `running` may change meanwhile.
        """

        def step() -> Step:
            return "inbox_is_due", _order_params("", 1, per_person, dict(running))

        return QUEUE.wait(self._context, seconds, step)

    def renew(self, item: InboxItem, *, lease_seconds: float = 60) -> None:
        """Extend the lease of a claim; raise `StaleWrite` if another worker has the message."""
        QUEUE.renew(self._context, item, lease_seconds)

    def done(self, item: InboxItem) -> None:
        """Settle a claimed message as answered; raise `StaleWrite` if the claim was lost."""
        QUEUE.settle(self._context, item, base.settle_params(self._context, "done"))

    def dismiss(self, item: InboxItem) -> None:
        """Settle a waiting message that needs no answer; raise `StaleWrite` if it was claimed."""
        self._db.write(lambda tx: settle_waiting(tx, item), lane=lane_of(item))
        self._db.notify(CHANNEL)

    def edit(
        self,
        source: Source,
        message_id: str | int,
        text: str | None,
        *,
        media: Sequence[Any] | None = None,
    ) -> InboxItem | None:
        """Change a message that still waits, and return it; without `media` its files stay.

        Return None if there is no such message, somebody else wrote it, it was gathered with
        others, or a turn has it already: then nothing is changed.
        """
        dedupe_key = UserMessage(source, None, str(message_id), ()).dedupe_key

        def work(tx: Transaction) -> InboxItem | None:
            row = _waiting_row(tx, dedupe_key, source)
            if row is None:
                return None
            changes = {"text": text} | ({} if media is None else {"media": to_dicts(list(media))})
            params = {"id": row[0], "body": to_json(from_json(row[4]) | changes)}
            row = tx.one("inbox_edit", params)
            return None if row is None else to_item(row)

        return self._db.write(work, lane=self._lane(source))

    def withdraw(self, source: Source, message_id: str | int) -> InboxItem | None:
        """Settle a message that its author deleted while it still waits, and return it.

        Return None, and change nothing, in the cases in which `edit` does.
        """
        dedupe_key = UserMessage(source, None, str(message_id), ()).dedupe_key

        def work(tx: Transaction) -> InboxItem | None:
            row = _waiting_row(tx, dedupe_key, source)
            if row is None:
                return None
            item = to_item(row)
            try:
                settle_waiting(tx, item)
            except StaleWrite:
                return None  # another worker has claimed it since it was read
            return item

        item = self._db.write(work, lane=self._lane(source))
        self._db.notify(CHANNEL)
        return item

    def failed(
        self,
        item: InboxItem,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """Settle a claimed message as not answered.

        It is tried again after `retry_after` seconds, or never with `for_good`. Raise `StaleWrite`
        if the claim was lost.
        """
        state: InboxState = "dead" if for_good else "waiting"
        params = base.settle_params(self._context, state, problem=problem, retry_after=retry_after)
        QUEUE.settle(self._context, item, params)

    def find(
        self,
        *,
        state: InboxState | None = None,
        key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Return a page of accepted messages, oldest first: all, or by state and conversation."""
        statement = "inbox_find" if state is None else "inbox_find_by_state"
        if key is not None:
            statement = "inbox_find_by_key"

        def read(tx: Transaction, page: Params) -> Iterable[InboxItem]:
            return map(to_item, tx.all(statement, {**page, "state": state, "key": key}))

        return base.find(self._context, limit, cursor, read)

    def count(self, state: InboxState, *, limit: int = 1000) -> int:
        """Return how many messages have a state, counted up to `limit`."""
        return QUEUE.count(self._context, state, limit)

    def _lane(self, source: Source) -> str:
        """Return the lane of the conversation of a source."""
        return session_rows.lane_of(session_rows.key_of(self._context, source))


def _accept(
    db: Database, source: Source, params: Params, gather_seconds: float, waiting_limit: int | None
) -> InboxItem:
    """Store a message by one statement if nothing has to be decided, else by `_accept_in`.

    A message without an id is left to the latter: if the connection broke, nobody could tell
    whether it was stored.
    """
    lane = session_rows.lane_of(params["key"])
    is_simple = params["arrival"] is not None and not gather_seconds and waiting_limit != 0
    step = "inbox_accept", {**params, "waiting_limit": waiting_limit or 0}
    is_lost = False
    if is_simple:
        try:
            results = db.attempt([step], lanes=[lane])
        except StatementLost:
            results, is_lost = None, True
        if results is not None and results[0]:
            return to_item(results[0][0], is_new=True)

    return db.write(
        lambda tx: _accept_in(tx, source, params, gather_seconds, waiting_limit, is_lost=is_lost),
        lane=lane,
    )


def _accept_in(
    tx: Transaction,
    source: Source,
    params: Params,
    gather_seconds: float,
    waiting_limit: int | None,
    *,
    is_lost: bool,
) -> InboxItem:
    """Store a message that may be a known one, be shared, be gathered, or be one too many.

    `is_lost`: a statement that got no answer may have stored it.
    """
    key = params["key"]
    if params["arrival"]:
        row = tx.one("inbox_by_dedupe_key_or_hash", params)
        if row is not None and not row[0]:
            return _deleted_item(row, source, key)
        if row is not None:
            return to_item(row, is_new=is_lost and row[8] == params["now"])
    shared_key = linked_key(tx, source, key)
    if shared_key != key:
        tx.lock(session_rows.lane_of(shared_key))
    _check_waiting(tx, params["person"], waiting_limit)
    new = {**params, "key": shared_key}
    row = _gather(tx, new, gather_seconds) if gather_seconds else None
    row = row or tx.one("inbox_put", new)
    assert row is not None
    return to_item(row, is_new=True)


def _order_params(
    last_person: str, limit: int, per_person: int | None, running: Mapping[str, int]
) -> Params:
    """Return the parameters that say in which order people are served, and how many turns each."""
    room = limit if per_person is None else per_person
    rooms = {} if per_person is None else {name: room - count for name, count in running.items()}
    busy = sum(left <= 0 for left in rooms.values())
    return {
        "person": last_person,
        "people": limit + busy + 1,
        "room": room,
        "rooms": to_json(rooms),
        "limit": limit,
    }


def _last_served(items: Sequence[InboxItem], last_person: str) -> str:
    """Return whom a claim served last: of those with the most messages, the last in the circle."""
    served = Counter(claim_person(item.source) for item in items)
    most = max(served.values(), default=0)
    last_round = (person for person, count in served.items() if count == most)
    return max(last_round, key=lambda name: (name <= last_person, name), default=last_person)


def claim_person(source: Source) -> str:
    """Return whose message it is, for limits and the order of claims: the author, else the chat."""
    person = keys.person_of(source)
    return person or keys.person_id(source.platform, source.chat_id, account=source.account)


def _check_waiting(tx: Transaction, person: str, limit: int | None) -> None:
    """Raise `LimitExceeded` if `limit` messages of a person wait already; None is no limit."""
    if limit is None:
        return
    row = tx.one("inbox_count_waiting", {"person": person, "limit": limit})
    if row is not None and row[0] >= limit:
        raise LimitExceeded(
            f"{limit} of your messages wait for an answer, so I did not read this one.",
            hint="Wait for the answers, then write again.",
            retry_after=_RETRY_SECONDS,
        )


def _gather(tx: Transaction, new: Mapping[str, Any], seconds: float) -> Row | None:
    """Add a message to the one before it if that still waits for more from the same user.

    Return the row that records the new message, or None if it needs an inbox item of its own.
    """
    row = tx.one("inbox_newest", {"key": new["key"]})
    if row is None or row[3] != new["source"]:
        return None
    before, content = to_item(row), from_json(new["body"])
    now = from_micros(new["now"])
    group = content.get("group")
    if group != from_json(row[4]).get("group"):
        return None
    if before.state != "waiting" or before.attempts or before.not_before <= now:
        return None
    latest = base.time_after(before.received_at, seconds * _MAX_GATHER_PAUSES)
    combined = {
        "id": before.id,
        "body": to_json(
            {
                "text": "\n".join(text for text in (before.text, content["text"]) if text) or None,
                "message_id": before.message_id,
                "media": [*before.media, *content["media"]],
                "is_gathered": True,
            }
            | ({} if group is None else {"group": group})
        ),
        "not_before": min(new["not_before"], to_micros(latest)),
        "paused_at": new["paused_at"],
    }
    tx.run("inbox_set_body", combined)
    # The text is in the item before; this row only keeps the dedupe key of the new message.
    empty = to_json({"text": None, "message_id": content["message_id"], "media": []})
    return tx.one("inbox_put_gathered", {**new, "body": empty, "into": before.id})


def _waiting_row(tx: Transaction, dedupe_key: str | None, source: Source) -> Row | None:
    """Return the waiting message with that key, if the same person wrote it and nothing else."""
    row = tx.one("inbox_by_dedupe_key", {"arrival": dedupe_key})
    if row is None:
        return None
    item = to_item(row)
    is_author = item.source.participant == source.participant
    is_alone = not from_json(row[4]).get("is_gathered")
    is_open = item.state == "waiting" and not item.attempts
    return row if is_open and is_author and is_alone else None


def _terminal_node(context: StoreContext, source: Source) -> str | None:
    """Return the node that has to claim a message: this one, if it was typed in its terminal."""
    return context.terminal.name if source.platform == LOCAL else None


def put_resume(
    tx: Transaction,
    context: StoreContext,
    source: Source,
    key: str,
    message_id: str,
    *,
    batch: str,
) -> None:
    """Let any worker continue the turn of a message, once for each batch of approvals."""
    tx.lock(session_rows.lane_of(key))
    dedupe_key = f"approval:{batch}"  # two parts: no message has such a key
    if tx.one("inbox_by_dedupe_key", {"arrival": dedupe_key}) is not None:
        return
    body: dict[str, Any] = {"text": None, "message_id": message_id, "media": []}
    now = context.clock.now()
    params = {
        "arrival": dedupe_key,
        "key": key,
        "node": _terminal_node(context, source),
        "person": claim_person(source),
        "source": to_json(source.to_dict()),
        "body": to_json({**body, "resumes": batch}),
        "now": to_micros(now),
        **base.pause_params(now, None),
    }
    tx.run("inbox_put", params)


def settle_answered(tx: Transaction, item: InboxItem) -> None:
    """Settle a claimed message as answered, in the transaction that stores its answer."""
    tx.lock(lane_of(item))
    columns = {"problem": None, "not_before": to_micros(item.not_before), "paused_at": 0}
    QUEUE.settle_in(tx, item, {"state": "done", **columns})


def settle_waiting(tx: Transaction, item: InboxItem) -> None:
    """Settle a waiting message as answered by a turn that was already running.

    Raise `StaleWrite` if it is no longer waiting.
    """
    tx.lock(lane_of(item))
    # The text is in the transcript of the turn now, and is deleted together with that.
    empty = to_json({"text": None, "message_id": item.message_id, "media": []})
    params = {"id": item.id, "attempts": item.attempts, "body": empty}
    if tx.changed("inbox_gather", params) == 0:
        raise _stale(tx, item)
    QUEUE.promote(tx, lane_columns(item))


def delete_of_session(tx: Transaction, session: int, now: datetime) -> None:
    """Delete the accepted messages that the turns of a session answered.

    A hash of each stays, so that a message that is sent again is not answered again.
    """
    for (dedupe_key,) in tx.all("deleted_messages_of_session", {"session": session}):
        if dedupe_key:
            tx.run("deleted_message_put", {"hash": _hash(dedupe_key), "at": to_micros(now)})
    tx.run("inbox_delete_gathered", {"session": session})
    items = tx.all("inbox_delete", {"session": session})
    items += tx.all("inbox_delete_resumes", {"session": session})
    for (key,) in sorted(set(items)):
        tx.lock(session_rows.lane_of(key))
        QUEUE.promote(tx, {"key": key})


def lane_of(item: InboxItem) -> str:
    """Return the lane of a message: its conversation."""
    return session_rows.lane_of(item.key)


def lane_columns(item: InboxItem) -> Params:
    """Return the columns of the lane of a message."""
    return {"key": item.key}


def _stale(tx: Transaction, item: InboxItem) -> StaleWrite:
    return StaleWrite(
        "Another worker has claimed or settled the message.",
        hint="Do not answer it. A claim can be lost once its lease has run out; renew it in time.",
    )


def _hash(dedupe_key: str) -> str:
    return hashlib.sha256(dedupe_key.encode()).hexdigest()


def _deleted_item(row: Row, source: Source, key: str) -> InboxItem:
    """Return a settled item for a message that was deleted with its session."""
    at = from_micros(row[7])
    return InboxItem(
        id=0, key=key, source=source, text=None, message_id=None, media=(), state="done",
        attempts=0, not_before=at, received_at=at, problem=None, gathered_into=None, is_new=False,
    )  # fmt: skip


def to_item(row: Row, *, is_new: bool = False) -> InboxItem:
    """Return the inbox item of a row of `part_inbox_columns`."""
    (id_, _, key, source, body, state, attempts, not_before, received_at, problem,
     gathered_into, node, worker) = row  # fmt: skip
    content = from_json(body)
    return InboxItem(
        id=id_,
        key=key,
        source=parse_source(source),
        text=content["text"],
        message_id=content["message_id"],
        media=tuple(content["media"]),
        state=state,
        attempts=attempts,
        not_before=from_micros(not_before),
        received_at=from_micros(received_at),
        problem=problem,
        gathered_into=gathered_into,
        is_new=is_new,
        resumes=content.get("resumes"),
        node=node,
        worker=worker,
    )


QUEUE: Final = base.ClaimQueue(
    table="inbox",
    channel=CHANNEL,
    argument="item",
    entry_type=InboxItem,
    lane_name=lane_of,
    lane=lane_columns,
    stale=_stale,
)
