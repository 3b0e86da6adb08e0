"""The messages of one session: append-only, seen through revisions that can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import dropwhile, repeat
from typing import Any, NamedTuple

import msgspec

from tertulia.core import validate
from tertulia.core.history.content import FROM_PERSON
from tertulia.core.history.formats import (
    FORMATS,
    TIMESTAMPS,
    Format,
    Style,
    Timestamps,
    render,
    weigher,
)
from tertulia.core.history.repair import (
    HIDDEN,
    SHOWN,
    Block,
    blocks,
)
from tertulia.core.history.summary import (
    Compaction,
    Summariser,
    extract,
)
from tertulia.core.history.tokens import (
    MOST_CHARACTERS,
    PER_IMAGE,
)
from tertulia.core.history.view import (
    Span,
    View,
    newest_of,
    opened,
)
from tertulia.core.history.window import (
    DECENT,
    HistoryBudget,
    fit,
)
from tertulia.core.message import (
    INTERNAL,
    TOOL,
    USER,
    Draft,
    Message,
    draft,
    from_json,
    text_of,
    to_json,
)
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, IllegalMove, NotFound
from tertulia.records import (
    budgets,
    session_rows,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.usage import Charge, charge
from tertulia.storage import rows
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import CurrentView, from_micros, to_micros, view_from

# A budget of tokens is filled by a few dozen messages or by hundreds: the first ones tell. A
# history looks no further back than the last for the sake of rows that are not shown.
_FIRST_LOOK = 32
# More than the budget takes, to see that the window is cut; results in front may have lost their
# calls.
_SPARE = 4
_LAST_LOOK = 10_000
_LOOK_BACK = 100


class Revision(msgspec.Struct, frozen=True):
    """One way the transcript was seen: what made it, from which other, and how long it is."""

    number: int
    made_by: str
    made_from: int | None
    at: datetime
    messages: int
    is_current: bool


class Transcript:
    """All messages of a session ever, and the ones that are seen now."""

    def __init__(self, context: StoreContext, session_id: str) -> None:
        self._context = context
        self._db = context.db
        self.session_id = session_id

    # -- adding

    def append(self, message: Mapping[str, Any]) -> int:
        """Store a message; its sequence number."""
        return self._extend([draft(message)], None)

    def extend(self, messages: Iterable[Mapping[str, Any]], usage: Usage | None = None) -> int:
        """Store messages and what they cost in one transaction; the last sequence number."""
        validate.many("messages", messages)
        return self._extend([draft(message) for message in messages], usage)

    def _extend(self, drafts: Sequence[Draft], usage: Usage | None) -> int:
        now = to_micros(self._context.clock.now())
        cost = None if usage is None else charge(usage)

        def work(tx: Transaction) -> int:
            if cost is not None:
                budgets.will_spend(tx, self._context)
            return append_in(tx, self.session_id, drafts, cost, now)

        # Its first statement takes the session's row, and nobody else's is touched.
        last = self._db.write(work, lane=f"session {self.session_id}")
        self._context.notify()
        return last

    # -- reading

    def load(self, *, newest: int | None = None) -> list[dict[str, Any]]:
        """The messages that are seen, as they were given; with `newest` only that many."""
        return self._db.read(lambda tx: _bodies(tx, self._spans(tx, newest)))

    def entries(self, *, newest: int | None = None) -> list[Message]:
        """The same with their places: sequence, turn, time and author."""

        return self._db.read(lambda tx: read(tx, self._spans(tx, newest)))

    def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
    ) -> list[dict[str, Any]]:
        """What the model is shown: the newest turns that fit, always legal.

        `max_tokens` is kept by estimate. `timestamps` puts the time before the words of the
        person ("user") or of both ("all"). Formats: openai, responses, anthropic, text.
        """
        _check_history(max_messages, max_tokens, timestamps, format)
        budget = HistoryBudget(max_messages, max_tokens)
        redactor = self._context.redactor()
        style = Style(timestamps, True, redactor, pictures=format == "anthropic")
        recent = self._db.read(lambda tx: _recent(tx, self.session_id, budget))
        found = [] if recent.summary is None else [Block(recent.summary)]
        found += blocks(recent.rows)
        shown = fit(found, budget, weigher(style), whole=recent.is_whole)
        if shown.result_limit is not None:
            style = style._replace(result_limit=shown.result_limit)
        return render(shown.blocks, format, style)

    def count(self) -> int:
        """How many messages are seen."""
        seen = self._db.read(lambda tx: session_rows.current_view(tx, self.session_id))
        return seen.view.count(seen.last_seq)

    # -- changing what is seen

    def rewrite(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Show these messages instead of what was shown."""
        validate.many("messages", messages)
        drafts = [draft(message) for message in messages]
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            seen = session_rows.current_view(tx, self.session_id)
            last = append_in(tx, self.session_id, drafts, None, now, is_activity=False)
            view = View.whole(seen.ref, seen.last_seq + 1)
            show(tx, seen._replace(last_seq=last), view, "rewrite", now, before=seen.last_seq)

        self._db.write(work)

    def clear(self) -> None:
        """Show nothing of what there was."""
        self._revise("clear", lambda tx, seen: [])

    def undo(self, turns: int = 1) -> int:
        """Take back the newest turns, each from the person's message on; how many there were."""
        validate.whole("turns", turns, -(2**63))
        if turns < 1:
            raise IllegalMove(f"{turns} turns cannot be undone.", hint="Give 1 or more.")
        undone = 0

        def cut(tx: Transaction, seen: CurrentView) -> list[Span] | None:
            nonlocal undone
            found = _turn_starts(tx, seen, turns)
            undone = len(found)
            return seen.view.before(*found[-1], seen.last_seq) if found else None

        self._revise("undo", cut)
        return undone

    def redo(self) -> bool:
        """Bring back what the last undo took, if nothing was said since; whether there was any."""
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> bool:
            seen = session_rows.current_view(tx, self.session_id)
            if seen.made_by != "undo" or seen.made_from is None or seen.last_seq > seen.start_seq:
                return False
            _leave(tx, seen, seen.last_seq)
            place = {"session": seen.ref, "number": seen.made_from}
            tx.run("revision_close", {**place, "seq": None})
            tx.run("revision_point", place)
            session_rows.event(tx, seen.ref, from_micros(now), "redo", {"revision": seen.made_from})
            return True

        return self._db.write(work)

    def keep_recent(self, n: int) -> None:
        """Show only the newest `n` messages, and what comes before them in the same turn."""
        validate.number("n", n)

        def cut(tx: Transaction, seen: CurrentView) -> list[Span] | None:
            spans = seen.view.spans(seen.last_seq)
            if n <= 0:
                return []
            if seen.view.count(seen.last_seq) <= n:
                return None
            first = newest_of(spans, n)[0]
            return _from_turn(tx, seen, first.log, first.first)

        self._revise("keep_recent", cut)

    def edit(self, seq: int, message: Mapping[str, Any]) -> None:
        """Show another message in the place of one, and in its turn."""
        drafts = [draft(message)]
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            seen = session_rows.current_view(tx, self.session_id)
            log = _locate(seen, seq)
            (turn,) = tx.one("message_turn", {"session": log, "seq": seq}) or (0,)
            last = seen.last_seq + 1
            tx.run("session_add_rows", {"ref": seen.ref, "count": 1})
            insert(tx, seen.ref, last, drafts, now, turns=[turn])
            spans = [
                *seen.view.before(log, seq, seen.last_seq),
                Span(seen.ref, last, last),
                *seen.view.after(log, seq, seen.last_seq),
            ]
            view = opened(spans, seen.ref, last)
            show(tx, seen._replace(last_seq=last), view, "edit", now, before=seen.last_seq)

        self._db.write(work)
        self._context.notify()

    def remove(self, seq: int) -> None:
        """Show the transcript without one message."""
        self._revise(
            "remove",
            lambda tx, seen: _without(seen.view.spans(seen.last_seq), _locate(seen, seq), seq),
        )

    def pop(self, *, skip: Sequence[str] = ()) -> Message | None:
        """Show the transcript without its newest message, which is given back; None if empty.

        Rows of the kinds in `skip` that follow it go with it.
        """
        taken: Message | None = None

        def cut(tx: Transaction, seen: CurrentView) -> list[Span] | None:
            nonlocal taken
            taken = None
            spans = seen.view.spans(seen.last_seq)
            while spans and taken is None:
                log, first, last = spans.pop()
                if last > first:
                    spans.append(Span(log, first, last - 1))
                (row,) = read(tx, [Span(log, last, last)])
                taken = None if row.kind in skip else row
            return None if taken is None else spans

        self._revise("remove", cut)
        return taken

    def compact(
        self,
        summarise: Summariser | None = None,
        *,
        keep_turns: int = 4,
        within: float = 60.0,
    ) -> Compaction | None:
        """Show all but the newest turns as a summary; None if there is nothing to sum up.

        Without a summariser an honest extract is made. On any failure nothing moves, and
        `restore` of the revision before undoes it.
        """
        from tertulia.records.transcript.compaction import compact

        return compact(
            self._context, self.session_id, summarise or extract, keep_turns=keep_turns,
            within=within,
        )  # fmt: skip

    # -- revisions

    def revisions(self) -> list[Revision]:
        """Every way the transcript was seen, oldest first."""

        def work(tx: Transaction) -> list[Revision]:
            seen = session_rows.current_view(tx, self.session_id)
            found = tx.all("revisions_of", {"session": seen.ref})
            return [_revision(row, seen) for row in found]

        return self._db.read(work)

    def at(self, n: int) -> list[dict[str, Any]]:
        """The messages as revision `n` shows them."""

        def work(tx: Transaction) -> list[dict[str, Any]]:
            seen = session_rows.current_view(tx, self.session_id)
            spans = _spans_of(_require_revision(tx, seen, n), seen)
            return _bodies(tx, spans)

        return self._db.read(work)

    def restore(self, n: int) -> None:
        """Show what revision `n` showed: how a clear, a rewrite or any other change is undone."""
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            seen = session_rows.current_view(tx, self.session_id)
            row = _require_revision(tx, seen, n)
            view = opened(_spans_of(row, seen), seen.ref, seen.last_seq)
            then = seen._replace(summary_seq=row[7], after_log=row[8], after_seq=row[9])
            show(tx, then, view, "restore", now, before=seen.last_seq)

        self._db.write(work)

    def _spans(self, tx: Transaction, newest: int | None) -> list[Span]:
        seen = session_rows.current_view(tx, self.session_id)
        spans = seen.view.spans(seen.last_seq)
        return spans if newest is None else newest_of(spans, newest)

    def _revise(self, made_by: str, cut: Any) -> None:
        """Make a revision of the spans that `cut` gives; None leaves all as it is."""
        now = to_micros(self._context.clock.now().astimezone(UTC))

        def work(tx: Transaction) -> None:
            seen = session_rows.current_view(tx, self.session_id)
            spans = cut(tx, seen)
            if spans is not None:
                view = opened(spans, seen.ref, seen.last_seq)
                show(tx, seen, view, made_by, now, before=seen.last_seq)

        self._db.write(work)


def append_in(
    tx: Transaction,
    session_id: str,
    drafts: Sequence[Draft],
    cost: Charge | None,
    now: int,
    *,
    is_activity: bool = True,
    times: Sequence[int] | None = None,
    kinds: Sequence[str | None] | None = None,
) -> int:
    """Append messages within a transaction; the last sequence number.

    Each message of a person begins a turn, and is their activity unless it is only rewritten.
    `times` and `kinds` are those of each message, for messages that were said elsewhere.
    """
    people = sum(item.role == USER for item in drafts)
    params: dict[str, Any] = {
        "id": session_id,
        "count": len(drafts),
        "turns": people,
        "is_activity": is_activity and people > 0,
        "now": now,
    }
    if cost is None:
        row = tx.one("session_append", params)
    else:
        params.update(cost)
        row = tx.one("session_append_with_usage", params)
    if row is None:
        raise session_rows.missing(session_id)
    ref, last_seq, turn, *owner, is_awaited = row
    begun = turn - people
    numbers = [begun := begun + (item.role == USER) for item in drafts]
    insert(
        tx, ref, last_seq, drafts, now, turns=numbers, times=times, kinds=kinds,
        is_awaited=is_awaited,
    )  # fmt: skip
    if cost is not None:
        params.update(turn=turn, platform=owner[0], person=owner[1])
        tx.run("usage_insert", params)
    return int(last_seq)


def insert(
    tx: Transaction,
    ref: int,
    last_seq: int,
    drafts: Sequence[Draft],
    now: int,
    *,
    turns: Sequence[int],
    author: str | None = None,
    kind: str | None = None,
    times: Sequence[int] | None = None,
    kinds: Sequence[str | None] | None = None,
    is_awaited: bool = False,
) -> None:
    """Write messages into the log so that the last one has the number `last_seq`.

    `times` and `kinds` stand in for `now` and `kind` where each message has its own. A session
    `is_awaited` if messages before these are not indexed yet: then the index knows of it.
    """
    place = (ref << 32) + last_seq - len(drafts)
    entries = []
    each_at = repeat(now, len(drafts)) if times is None else times
    each_kind = repeat(kind, len(drafts)) if kinds is None else kinds
    for item, turn, at, sort in zip(drafts, turns, each_at, each_kind, strict=True):
        place += 1
        entries.append((place, turn, item.role, sort, author, at, item.body, item.away))
        if item.blobs:
            _put_away(tx, place, item)
    tx.many("message_insert", entries)
    if not is_awaited:
        tx.run("unindexed_put", {"session": ref})


def read(tx: Transaction, spans: Iterable[Span]) -> list[Message]:
    """Every message of the spans, oldest first."""
    found: list[Message] = []
    for log, first, last in spans:
        params = {"session": log, "first": first, "last": last}
        found += _messages(tx.all("messages_of", params), tx)
    return found


def _messages(found: list[Row], tx: Transaction) -> list[Message]:
    """`rows.message` for many: a call for each would take as long as reading them."""
    try:
        return [
            Message(
                log, seq, turn, role, kind, at, author,
                from_json(body) if away is None else rows.whole_body(body, away, tx),
            )
            for log, seq, turn, role, kind, at, author, body, away in found
        ]  # fmt: skip
    except (ValueError, TypeError) as problem:
        raise rows.damaged("a message", problem) from problem


def _bodies(tx: Transaction, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The same without their places, which takes half the time."""
    found: list[dict[str, Any]] = []
    for log, first, last in spans:
        params = {"session": log, "first": first, "last": last}
        found += [
            rows.body(body) if away is None else rows.whole_body(body, away, tx)
            for body, away in tx.all("bodies_of", params)
        ]
    return found


class _Recent(NamedTuple):
    """What a history is made of: the summary that stands, and the newest messages."""

    summary: Message | None
    rows: list[Message]
    is_whole: bool


def _recent(tx: Transaction, session_id: str, budget: HistoryBudget) -> _Recent:
    """As many of the newest messages as a history can need."""
    seen = session_rows.current_view(tx, session_id)
    left = seen.fresh()
    found: list[Message] = []
    count = budget.messages + _SPARE if budget.tokens is None else _FIRST_LOOK
    while left and count:
        newest, left = _taken(left, count)
        found = read(tx, newest) + found
        count = _missing(found, budget) if left and len(found) < _LAST_LOOK else 0
    if left and not _has_person(found):
        # A result whose call was not read must not be taken for that of another call.
        found = _person_before(tx, left) + list(dropwhile(_is_result, found))
    return _Recent(summary_of(tx, seen), found, is_whole=not left)


def _taken(spans: list[Span], count: int) -> tuple[list[Span], list[Span]]:
    """The spans of the newest messages, and those of what is older."""
    newest = newest_of(spans, count)
    older = spans[: len(spans) - len(newest)]
    log, first, _ = spans[len(older)]
    if newest[0].first > first:
        older.append(Span(log, first, newest[0].first - 1))
    return newest, older


def _missing(found: list[Message], budget: HistoryBudget) -> int:
    """How many more messages to read; none if these are surely more than the budget takes."""
    shown = [
        row for row in dropwhile(_is_result, found) if row.kind not in HIDDEN and row.role in SHOWN
    ]
    wanted = budget.messages + 1 - len(shown)
    if budget.tokens is None or wanted <= 0:
        return max(wanted, 0)
    sizes = [_size(row) for row in shown]
    if not _has_person(found):
        # In a turn that is too big by itself results are shortened, and then more of them fit.
        sizes = [min(size, DECENT) for size in sizes]
    size = sum(sizes)
    left = budget.tokens * MOST_CHARACTERS - size
    # A little more than it takes if they are like these, but no leap for a few short ones.
    likely = left * len(found) * 9 // (8 * size + 1) + 1
    return max(0, min(wanted, likely, 8 * len(found) + 8))


def _size(row: Message) -> int:
    """About how many characters a message is, its pictures counted as what they weigh."""
    content = row.body.get("content")
    if not isinstance(content, list) or row.role != USER:
        return len(text_of(row.body))
    media = [part for part in content if isinstance(part, dict) and part.get("type") in FROM_PERSON]
    return len(text_of(row.body)) + len(media) * PER_IMAGE * MOST_CHARACTERS


def _has_person(found: Iterable[Message]) -> bool:
    return any(row.role == USER and row.kind not in HIDDEN for row in found)


def _is_result(row: Message) -> bool:
    return row.role == TOOL


def summary_of(tx: Transaction, seen: CurrentView) -> Message | None:
    """The summary that stands before what is shown, if there is one."""
    if seen.summary_seq is None:
        return None
    at = {"session": seen.ref, "first": seen.summary_seq, "last": seen.summary_seq}
    return rows.message(tx.all("messages_of", at)[0], tx)


def _person_before(tx: Transaction, spans: list[Span]) -> list[Message]:
    """The last words of the person in these spans, if there are any."""
    for span in reversed(spans):
        params = {"session": span.log, "first": span.first, "last": span.last}
        found = tx.one("message_of_person", params)
        if found is not None:
            return [rows.message(found, tx)]
    return []


def _check_history(
    max_messages: int, max_tokens: int | None, timestamps: Timestamps, form: Format
) -> None:
    for name, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
        if value is None and name == "max_tokens":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} is {value!r}.", hint="Give 1 or more.", field=name)
    if timestamps not in TIMESTAMPS:
        raise ConfigError(
            f"timestamps is {timestamps!r}.",
            hint=f"Allowed: {', '.join(TIMESTAMPS)}.",
            field="timestamps",
        )
    if form not in FORMATS:
        raise ConfigError(
            f"format is {form!r}.", hint=f"Allowed: {', '.join(FORMATS)}.", field="format"
        )


def _put_away(tx: Transaction, place: int, item: Draft) -> None:
    for blob in item.blobs:
        tx.run("blob_insert", {"hash": blob.hash, "size": blob.size, "data": blob.data})
        tx.run("blob_link", {"place": place, "hash": blob.hash})


def show(
    tx: Transaction,
    seen: CurrentView,
    view: View,
    made_by: str,
    now: int,
    *,
    before: int,
    summary_seq: int | None = None,
    after: Span | None = None,
) -> int:
    """Make a revision and point the session at it; its number."""
    _leave(tx, seen, before)
    newest_one = tx.one("revision_newest", {"session": seen.ref})
    assert newest_one is not None
    number = int(newest_one[0]) + 1
    if after is None:
        summary_seq, after = _standing(seen, view)
    tx.run(
        "revision_insert",
        {
            "session": seen.ref,
            "number": number,
            "ranges": to_json(view.ranges),
            "made_by": made_by,
            "made_from": seen.number,
            "start_seq": seen.last_seq,
            "now": now,
            "summary_seq": summary_seq,
            "after_log": after and after.log,
            "after_seq": after and after.first,
        },
    )
    tx.run("revision_point", {"session": seen.ref, "number": number})
    session_rows.event(tx, seen.ref, from_micros(now), made_by, {"revision": number})
    return number


def _standing(seen: CurrentView, view: View) -> tuple[int | None, Span | None]:
    """The summary that still stands in a new view: its last message must be seen in it."""
    if seen.after_log is None or seen.after_seq is None:
        return None, None
    if not view.holds(seen.after_log, seen.after_seq, seen.last_seq):
        return None, None
    return seen.summary_seq, Span(seen.after_log, seen.after_seq, seen.after_seq)


def inherit_summary(tx: Transaction, seen: CurrentView, fork: int, view: View, now: int) -> None:
    """Let a summary stand in a fork as well, with a copy of its text in the fork's own log."""
    summary_seq, after = _standing(seen, view)
    if after is None or summary_seq is None:
        return
    standing = summary_of(tx, seen)
    assert standing is not None
    told = draft(standing.body)
    own = session_rows.current_view_of(tx, fork)
    tx.run("session_add_rows", {"ref": fork, "count": 1})
    insert(tx, fork, own.last_seq + 1, [told], now, turns=[own.turns], kind=INTERNAL)
    opened_view = opened(view.spans(own.last_seq), fork, own.last_seq + 1)
    show(
        tx, own._replace(last_seq=own.last_seq + 1), opened_view, "compaction", now,
        before=own.last_seq, summary_seq=own.last_seq + 1, after=after,
    )  # fmt: skip


def _leave(tx: Transaction, seen: CurrentView, last_seq: int) -> None:
    """Close the revision that is left, so that it shows later what it showed until now."""
    tx.run("revision_close", {"session": seen.ref, "number": seen.number, "seq": last_seq})


def _turn_starts(tx: Transaction, seen: CurrentView, turns: int) -> list[tuple[int, int]]:
    """Where the newest turns begin, newest first. Reads those turns and nothing before them."""
    starts: list[tuple[int, int]] = []
    turn = -1
    for log, seq, number in _backwards(tx, seen.view.spans(seen.last_seq)):
        if number != turn:
            if len(starts) == turns or number == 0:
                break
            turn = number
            starts.append((log, seq))
        else:
            starts[-1] = (log, seq)
    return starts


def _backwards(tx: Transaction, spans: list[Span]) -> Iterable[tuple[int, int, int]]:
    """(log, seq, turn) from the newest message back, read a few at a time."""
    for span in reversed(spans):
        last = span.last
        while last >= span.first:
            params = {"session": span.log, "first": span.first, "last": last, "limit": _LOOK_BACK}
            found = tx.all("messages_turns", params)
            if not found:
                break
            for seq, turn in found:
                yield span.log, seq, turn
            last = found[-1][0] - 1


def _from_turn(tx: Transaction, seen: CurrentView, log: int, seq: int) -> list[Span]:
    """The spans from the start of the turn a message is in."""
    start = (log, seq)
    turn: int | None = None
    spans = [*seen.view.before(log, seq, seen.last_seq), Span(log, seq, seq)]
    for back_log, back_seq, number in _backwards(tx, spans):
        if turn is not None and number != turn:
            break
        turn = number
        start = (back_log, back_seq)
    return seen.view.since(*start, seen.last_seq)


def _locate(seen: CurrentView, seq: int) -> int:
    try:
        return seen.view.locate(seq, seen.last_seq)
    except LookupError:
        raise NotFound(
            f"No message {seq} is seen in this transcript.",
            hint="`entries()` tells the sequence numbers.",
        ) from None


def _without(spans: list[Span], log: int, seq: int) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if span.log == log and span.first <= seq <= span.last:
            parts = (Span(log, span.first, seq - 1), Span(log, seq + 1, span.last))
            found += (part for part in parts if part.size > 0)
        else:
            found.append(span)
    return found


def _require_revision(tx: Transaction, seen: CurrentView, number: int) -> tuple[Any, ...]:
    row = tx.one("revision_get", {"session": seen.ref, "number": number})
    if row is None:
        raise NotFound(
            f"The transcript has no revision {number}.", hint="`revisions()` lists them."
        )
    return row


def _spans_of(row: tuple[Any, ...], seen: CurrentView) -> list[Span]:
    number, ranges, _, _, _, closed_seq, *_ = row
    last_seq = seen.last_seq if number == seen.number else closed_seq
    return view_from(ranges).spans(last_seq)


def _revision(row: tuple[Any, ...], seen: CurrentView) -> Revision:
    number, _, made_by, made_from, _, _, at, *_ = row
    count = sum(span.size for span in _spans_of(row, seen))
    return Revision(number, made_by, made_from, from_micros(at), count, number == seen.number)
