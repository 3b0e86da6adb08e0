"""Compaction: the oldest turns are shown as a summary instead of word by word.

The summariser runs outside any transaction. Its summary is committed together with the offset it
stands for, if the transcript is still seen as it was read; otherwise, and on any failure, nothing
moves. The messages stay in the log, and the revision before can be restored.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tertulia.core import validate
from tertulia.core.history import summary as summaries
from tertulia.core.history.summary import (
    Compaction,
    Summariser,
)
from tertulia.core.history.view import (
    Span,
    oldest_of,
    opened,
)
from tertulia.core.message import INTERNAL, SUMMARY, Message, draft, text_of
from tertulia.errors import AgentFailed, AgentTimeout, StaleWrite
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import transcript
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, to_micros

# How many messages one compaction sums up at most; what is left is for the next.
_AT_ONCE = 1000


class _Past(NamedTuple):
    """The oldest turns of a transcript, as they were read."""

    seen: CurrentView
    messages: list[Message]
    previous: str | None


def compact(
    context: StoreContext,
    session_id: str,
    summarise: Summariser,
    *,
    keep_turns: int,
    within: float,
) -> Compaction | None:
    """Sum up all but the newest turns; None if there is nothing to sum up."""
    validate.whole("keep_turns", keep_turns, 0)
    past = context.db.read(lambda tx: _past(tx, session_id, keep_turns))
    if not past.messages:
        return None
    bodies = [message.body for message in past.messages]
    summary = _called(summarise, bodies, past.previous, within)
    problem = summaries.fault(summary, bodies)
    if problem is not None:
        raise AgentFailed(
            f"The summary cannot be used: {problem}. Nothing was changed.",
            hint="Look at the summariser; without one, an extract is made.",
        )
    now = to_micros(context.clock.now())
    return context.db.write(lambda tx: _commit(tx, session_id, past, summary, now))


def _past(tx: Transaction, session_id: str, keep_turns: int) -> _Past:
    seen = session_rows.current_view(tx, session_id)
    fresh = seen.fresh()
    total = sum(span.size for span in fresh)
    found = transcript.read(tx, oldest_of(fresh, _AT_ONCE))
    # Where more follows, the last turn that was read may be only a part of itself.
    kept = keep_turns if total <= _AT_ONCE else 1
    turns = sorted({message.turn for message in found})
    summed = set(turns[: max(0, len(turns) - kept)])
    standing = transcript.summary_of(tx, seen)
    previous = None if standing is None else text_of(standing.body)
    messages = []
    for message in found:
        if message.turn not in summed:
            break
        messages.append(message)
    return _Past(seen, messages, previous)


def _commit(tx: Transaction, session_id: str, past: _Past, summary: str, now: int) -> Compaction:
    seen = session_rows.current_view(tx, session_id)
    if seen.number != past.seen.number:
        raise StaleWrite(
            "The transcript was changed while it was summed up; nothing was compacted.",
            hint="Try again.",
        )
    last = past.messages[-1]
    told = draft({"role": SUMMARY, "content": summary})
    seq = seen.last_seq + 1
    tx.run("session_add_rows", {"ref": seen.ref, "count": 1})
    transcript.insert(tx, seen.ref, seq, [told], now, turns=[seen.turns], kind=INTERNAL)
    view = opened(seen.view.spans(seen.last_seq), seen.ref, seq)
    after = Span(last.session, last.seq, last.seq)
    number = transcript.show(
        tx, seen._replace(last_seq=seq), view, "compaction", now,
        before=seen.last_seq, summary_seq=seq, after=after,
    )  # fmt: skip
    return Compaction(summary, len(past.messages), number)


def _called(
    summarise: Summariser, bodies: Sequence[Mapping[str, Any]], previous: str | None, within: float
) -> str:
    """The summary, from a thread of its own: one that hangs must not hang the caller."""
    found: list[str] = []
    problems: list[BaseException] = []

    def call() -> None:
        try:
            found.append(summarise(bodies, previous))
        except BaseException as problem:  # noqa: BLE001 — told to the caller below
            problems.append(problem)

    thread = threading.Thread(target=call, name="tertulia-summary", daemon=True)
    thread.start()
    thread.join(within)
    if problems:
        raise AgentFailed(
            f"The summariser failed: {problems[0]!r}. Nothing was changed.",
            hint="Mend it and try again; without one, an extract is made.",
        ) from problems[0]
    if not found:
        raise AgentTimeout(
            f"The summariser gave no answer within {within:g} seconds. Nothing was changed.",
            hint="Try again, or give it more time.",
        )
    return found[0]
