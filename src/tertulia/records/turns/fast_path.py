"""The fast path: entering and answering in one statement where nothing has to be decided.

`turn_enter` and `turn_answer` change everything that the general path would change, under
conditions that say that the general path would have nothing to decide. If a condition does not
hold they change nothing, and the general path follows: `EnterTurn.enter` and `WriteStep.write`,
where the rules are. On PostgreSQL that makes one round trip of six, and one of two (decision 0015).
On SQLite entering saves five statements; answering has nothing to save there.

If the connection breaks, nobody knows whether the statement was stored. The general path then finds
its own turn by its token, or its own answer. Should the server run the lost statement after that,
its condition does not hold any more: the message is not new, or the turn is answered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tertulia.core import keys
from tertulia.core.message import ASSISTANT, Draft, to_json
from tertulia.core.text.storable import storable
from tertulia.errors import StoreUnavailable
from tertulia.process_identity import own_identity
from tertulia.records import session_rows
from tertulia.records.process_check import ProcessAnswers, write_with_process_check
from tertulia.records.queues import outbox
from tertulia.records.turns.enter import AlreadyAnswered, EnterTurn, OpenedTurn, author_of
from tertulia.records.turns.lease import turn_lease
from tertulia.records.turns.write import WriteStep
from tertulia.storage.base import Params, StatementLost, Transaction
from tertulia.storage.rows import session_row, to_micros

T = TypeVar("T")
Entered = OpenedTurn | AlreadyAnswered

# Before every time that a session can have been active at.
_ALWAYS: Final = -(2**62)


def new_token() -> int:
    """Return a number that identifies the turn of one caller."""
    return int.from_bytes(os.urandom(8), "big") >> 1


# -- entering


def enter(attempt: EnterTurn, lane: str) -> Entered:
    """Enter a session by the fast path if it can be taken, else by the general one."""
    context = attempt.context
    params = entry_params(attempt)
    if params is None:
        return write_with_process_check(context, attempt.enter, lane=lane)
    if context.db.has_one_writer:
        # One transaction for both: there are no round trips to save, and a second commit would be
        # a second wait for the disk.
        def enter_either_way(tx: Transaction, answers: ProcessAnswers) -> Entered:
            return attempt.enter_undecided(tx, params) or attempt.enter(tx, answers)

        return write_with_process_check(context, enter_either_way, lane=lane)
    try:
        results = context.db.attempt([("turn_enter", params)], lanes=(lane,))
    except StatementLost as lost:
        return _or_unknown(
            lost, lambda: write_with_process_check(context, attempt.enter, lane=lane)
        )
    if results is None or not results[0]:
        return write_with_process_check(context, attempt.enter, lane=lane)
    return attempt.opened(session_row(results[0][0]))


def entry_params(attempt: EnterTurn) -> dict[str, Any] | None:
    """Return the parameters of `turn_enter`, or None if only the general path can enter."""
    context, source = attempt.context, attempt.message.source
    dedupe_key = attempt.message.dedupe_key
    if (
        dedupe_key is None
        or attempt.ticket is not None
        or context.settings.budgets
        or not _is_one_row(attempt.drafts)
        or attempt.local_turns.has_turn_of(attempt.key)
    ):
        return None
    platform, chat_type = storable(source.platform), storable(source.chat_type)
    policy = context.settings.policies.for_chat(platform, chat_type)
    cutoffs = policy.cutoffs(attempt.now, zone=context.zone)
    return {
        "key": attempt.key,
        "platform": platform,
        "chat_type": chat_type,
        "active_since": max(map(to_micros, cutoffs.values()), default=_ALWAYS),
        "arrival": dedupe_key,
        "count": 1,
        "turns": 1,
        "now": to_micros(attempt.now),
        "lease": turn_lease(context.settings.lease_seconds),
        "holder": own_identity(),
        "author": author_of(context, source),
        "body": attempt.drafts[0].body,
        "token": attempt.token,
    }


# -- answering

# By whether it is delivered or settles a message, and whether it has usage.
_ANSWERS: Final = {
    (False, False): "turn_answer",
    (False, True): "turn_answer_with_usage",
    (True, False): "turn_answer_queued",
    (True, True): "turn_answer_queued_with_usage",
}


def write(step: WriteStep, lane: str) -> int:
    """Write a step of a turn by the fast path if it can be taken, else by the general one."""
    context = step.context
    params = None if context.db.has_one_writer else answer_params(step)
    if params is None:
        return write_with_process_check(context, step.write, lane=lane)
    statement = _ANSWERS[bool(step.deliveries or step.inbox_item), step.cost is not None]
    try:
        results = context.db.attempt([(statement, params)], lanes=_lanes(step, lane))
    except StatementLost as lost:

        def write_again(tx: Transaction, answers: ProcessAnswers) -> int:
            last_seq = step.was_stored(tx)
            return step.write(tx, answers) if last_seq is None else last_seq

        return _or_unknown(lost, lambda: write_with_process_check(context, write_again, lane=lane))
    if results is None or not results[0]:
        return write_with_process_check(context, step.write, lane=lane)
    return int(results[0][0][0])


def answer_params(step: WriteStep) -> Params | None:
    """Return the parameters of `turn_answer`, or None if only the general path can answer."""
    entry = step.entries[0] if len(step.entries) == 1 else None
    if (
        not step.is_last
        or step.is_after
        or step.also is not None
        or entry is None
        or not _is_one_row([entry.draft])
        or entry.draft.role != ASSISTANT
        or entry.author is not None
        or entry.at is not None
        or entry.turn != step.turn.number
        or len(step.deliveries) > 1
        or (step.deliveries and not step.is_delivered_here)
        or (step.cost is not None and step.context.settings.budgets)
    ):
        return None
    item = step.inbox_item
    return {
        **step.turn.epoch_params(),
        **(step.cost or {}),
        **_delivery_params(step.deliveries),
        "turn": step.turn.number,
        "kind": entry.kind,
        "now": to_micros(step.now),
        "body": entry.draft.body,
        "person": keys.person_of(step.source),
        "item": None if item is None else item.id,
        "attempts": None if item is None else item.attempts,
    }


def _delivery_params(deliveries: Sequence[outbox.Delivery]) -> dict[str, Any]:
    if not deliveries:
        return dict.fromkeys(_DELIVERY)
    return {
        **{name: getattr(deliveries[0], name) for name in _DELIVERY[:-1]},
        "delivered": to_json(deliveries[0].body),
    }


_DELIVERY: Final = (
    "delivery", "target", "platform", "account", "chat_id", "thread_id", "node", "delivered",
)  # fmt: skip


def _lanes(step: WriteStep, lane: str) -> list[str]:
    lanes = [lane]
    if step.inbox_item is not None:
        lanes.append(session_rows.lane_of(step.inbox_item.key))
    if step.deliveries:
        lanes.append(outbox.lane_of(step.deliveries[0]))
    return lanes


def _is_one_row(drafts: Sequence[Draft]) -> bool:
    return len(drafts) == 1 and drafts[0].away is None and not drafts[0].blobs


def _or_unknown(lost: StatementLost, call: Callable[[], T]) -> T:
    """Return what the general path returns; if it fails too, say that the outcome is unknown."""
    try:
        return call()
    except StoreUnavailable as problem:
        raise lost.error from problem
