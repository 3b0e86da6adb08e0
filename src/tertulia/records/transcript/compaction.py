"""Compaction: show the oldest turns as a summary instead of word by word.

The summariser runs outside any transaction. Its summary is committed together with the position it
stands for, provided that the transcript is still at the revision that was read; otherwise, and on
any failure, nothing changes. The messages stay in the log, and the revision before can be restored.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from tertulia.core import validate
from tertulia.core.history import summary as summaries
from tertulia.core.history.formats import Style, render
from tertulia.core.history.repair import build_blocks
from tertulia.core.history.summary import Compaction, Summariser
from tertulia.core.history.view import Span, oldest_spans, view_of_spans
from tertulia.core.message import INTERNAL, SUMMARY, Message, draft, text_of
from tertulia.errors import AgentFailed, AgentTimeout, StaleWrite
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.records.transcript.read import read_messages, read_summary
from tertulia.records.transcript.revisions import add_revision
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, to_micros

# The most messages that one compaction summarises; the rest is left for the next one.
_MOST_MESSAGES = 1000


class _OldTurns(NamedTuple):
    """The oldest turns of a transcript, as they were read."""

    current: CurrentView
    messages: list[Message]
    summary: str | None  # of the messages before these


def compact(
    context: StoreContext,
    session_id: str,
    summarise: Summariser,
    *,
    keep_turns: int,
    within: float,
    by: str | None = None,
) -> Compaction | None:
    """Summarise all but the newest turns; return None if there is nothing to summarise.

    Raise `AgentFailed` or `AgentTimeout` if there is no usable summary, `StaleWrite` if the
    transcript was changed in between; then nothing is changed.
    """
    validate.integer("keep_turns", keep_turns, 0)
    old = context.db.read(lambda tx: _read_old_turns(tx, session_id, keep_turns))
    if not old.messages:
        return None
    # As a model is shown them, with authors: a raw text could claim to be of somebody else.
    style = Style(authors=True, redactor=context.redactor())
    messages = render(build_blocks(old.messages), "openai", style)
    summary = _call_summariser(summarise, messages, old.summary, within)
    problem = summaries.find_summary_problem(summary, messages)
    if problem is not None:
        raise AgentFailed(
            f"The summary cannot be used: {problem}. Nothing was changed.",
            hint="Check the summariser; without one, an extract is made.",
        )
    now = to_micros(context.clock.now())
    return context.db.write(lambda tx: _commit(tx, session_id, old, summary, now, by))


def _read_old_turns(tx: Transaction, session_id: str, keep_turns: int) -> _OldTurns:
    current = session_rows.current_view(tx, session_id)
    fresh = current.spans_after_summary()
    total = sum(span.size for span in fresh)
    messages = read_messages(tx, oldest_spans(fresh, _MOST_MESSAGES))
    # At the read limit the last turn may be incomplete; leave it out.
    keep = keep_turns if total <= _MOST_MESSAGES else 1
    turns = sorted({message.turn for message in messages})
    old_turns = set(turns[: max(0, len(turns) - keep)])
    summary = read_summary(tx, current)
    return _OldTurns(
        current,
        list(takewhile(lambda message: message.turn in old_turns, messages)),
        None if summary is None else text_of(summary.body),
    )


def _commit(
    tx: Transaction, session_id: str, old: _OldTurns, summary: str, now: int, by: str | None
) -> Compaction:
    current = session_rows.current_view(tx, session_id)
    if current.number != old.current.number:
        raise StaleWrite(
            "The transcript was changed while it was summarised; nothing was compacted.",
            hint="Try again.",
        )
    last = old.messages[-1]
    message = draft({"role": SUMMARY, "content": summary})
    seq = add_messages(tx, current.ref, [Entry(message, INTERNAL)], now)
    view = view_of_spans(current.view.spans(current.last_seq), current.ref, seq)
    after = Span(last.session, last.seq, last.seq)
    number = add_revision(
        tx, current._replace(last_seq=seq), view, "compaction", now,
        before=current.last_seq, by=by, summary_seq=seq, after=after,
    )  # fmt: skip
    return Compaction(summary, len(old.messages), number)


def _call_summariser(
    summarise: Summariser, bodies: Sequence[Mapping[str, Any]], previous: str | None, within: float
) -> str:
    """Return the summary, from a thread of its own: if it hangs, the caller does not."""
    results: list[str] = []
    problems: list[BaseException] = []

    def call() -> None:
        try:
            results.append(summarise(bodies, previous))
        except BaseException as problem:  # noqa: BLE001 — raised to the caller below
            problems.append(problem)

    thread = threading.Thread(target=call, name="tertulia-summary", daemon=True)
    thread.start()
    thread.join(min(within, threading.TIMEOUT_MAX))
    if problems:
        raise AgentFailed(
            f"The summariser failed: {problems[0]!r}. Nothing was changed.",
            hint="Repair it and try again; without one, an extract is made.",
        ) from problems[0]
    if not results:
        raise AgentTimeout(
            f"The summariser gave no answer within {within:g} seconds. Nothing was changed.",
            hint="Try again, or give it more time.",
        )
    return results[0]
