"""The messages of one session: append-only, visible through revisions that can be undone."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final

from msgspec import structs

from tertulia.core import validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.history.account import CUT, SUMMED_UP, account_for
from tertulia.core.history.formats import (
    Format,
    Style,
    Timestamps,
    render,
    to_text,
    token_counter,
)
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import Block, build_blocks
from tertulia.core.history.shown_media import (
    MAX_TEXT,
    MediaView,
    choose_shown,
    hashes_to_load,
)
from tertulia.core.history.summary import Compaction, Summariser, extract_summary
from tertulia.core.history.view import Span, View, newest_spans, view_of_spans
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import Draft, Message, draft, text_of
from tertulia.core.text.time_head import time_head
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove
from tertulia.records import budgets, session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import revisions
from tertulia.records.transcript.account_rows import (
    AccountRow,
    AccountRows,
    HistoryAccount,
    MadeHistory,
    read_account_rows,
)
from tertulia.records.transcript.log import Entry, add_messages, append_messages
from tertulia.records.transcript.read import (
    RecentMessages,
    read_ahead,
    read_bodies,
    read_files,
    read_messages,
    read_plain_history,
    read_recent,
    read_turn_number,
)
from tertulia.records.transcript.revisions import Cut, Revision
from tertulia.records.transcript.windows import (
    RevisionChange,
    TranscriptWindow,
    read_revisions,
    read_window,
)
from tertulia.records.usage import charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, from_micros, to_micros

_MINUTE: Final = 60_000_000  # microseconds


@checks_arguments
class Transcript:
    """All messages a session ever had, and those that are visible now.

    `by` is who changes it, for the events of the session.
    """

    def __init__(self, context: StoreContext, session_id: str, *, by: str | None = None) -> None:
        self._context = context
        self._db = context.db
        self.session_id = session_id
        self.by = by

    # -- adding

    def append(self, message: Mapping[str, Any]) -> int:
        """Store a message; return its sequence number.

        Raise `IllegalMove` if it is not a message, `NotFound` if there is no such session.
        """
        return self._extend([draft(message)], None)

    def extend(self, messages: Iterable[Mapping[str, Any]], usage: Usage | None = None) -> int:
        """Store messages and their usage in one transaction; return the last sequence number.

        Raise as `append` does; then nothing is stored.
        """
        return self._extend([draft(message) for message in messages], usage)

    def _extend(self, drafts: Sequence[Draft], usage: Usage | None) -> int:
        now = to_micros(self._context.clock.now())
        cost = None if usage is None else charge(usage)
        entries = [Entry(item) for item in drafts]

        def work(tx: Transaction) -> int:
            if cost is not None:
                budgets.share_ledger_lock(tx, self._context)
            return append_messages(tx, self.session_id, entries, now, cost=cost)

        # The first statement locks the row of the session, and no other session is touched.
        last = self._db.write(work, lane=f"session {self.session_id}")
        self._context.notify_indexer()
        return last

    # -- reading

    def load(self, *, newest: int | None = None) -> list[dict[str, Any]]:
        """Return the visible messages as they were given; with `newest` only that many."""
        return self._db.read(lambda tx: read_bodies(tx, self._spans(tx, newest)))

    def entries(self, *, newest: int | None = None) -> list[Message]:
        """Return the visible messages with sequence number, turn, time and author."""
        return self._db.read(lambda tx: read_messages(tx, self._spans(tx, newest)))

    def window(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        revision: int | None = None,
        limit: int = 60,
    ) -> TranscriptWindow:
        """Return some of the visible messages, and how many precede and follow them.

        These are the newest, or those `before` or `after` a sequence number, or those `around` it,
        with it. With `revision` they are those that this revision shows. Raise `NotFound` if there
        is no such revision, or the message is not visible in it.
        """
        return self._db.read(
            lambda tx: read_window(
                tx, self.session_id, before=before, after=after, around=around,
                revision=revision, limit=limit,
            )
        )  # fmt: skip

    def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
        *,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages for the model: the newest turns that fit, always legal.

        `max_tokens` is kept by estimate. `timestamps` puts the time before the text of the user
        ("user") or of both sides ("all"), or the local time before that of the user ("local").
        Formats: openai, responses, anthropic, text. With `model` reasoning of other models is left
        out.
        """
        budget = _require_budget(max_messages, max_tokens)
        # A history that is legal as it is stored is the same for every model.
        may_be_plain = format in ("openai", "text") and timestamps != "all" and max_tokens is None
        is_local = timestamps == "local"
        zone: tzinfo | None = None

        def head(micros: int) -> str:
            if zone is None:
                return time_head(from_micros(micros), None)
            return _head_of_minute(micros // _MINUTE, zone)

        def work(tx: Transaction) -> list[dict[str, Any]] | RecentMessages:
            nonlocal zone
            if self._db.has_one_writer:
                ahead, current = None, session_rows.current_view(tx, self.session_id)
            else:
                ahead = read_ahead(tx, self.session_id, budget)
                current = ahead.current
            if is_local:
                zone = self._context.zone_of(current.zone)
            if may_be_plain:
                plain = read_plain_history(
                    tx, current, budget, ahead, head=None if timestamps == "none" else head
                )
                if plain is not None:
                    return plain
            return read_recent(tx, current, budget, ahead=ahead)

        plain_or_recent = self._db.read(work)
        if isinstance(plain_or_recent, list):
            return plain_or_recent if format == "openai" else to_text(plain_or_recent)
        history = self._make_history(plain_or_recent, budget, timestamps, format, model, zone)
        return history.messages

    def _load_media_view(self, blocks: Sequence[Block], model: ModelTraits) -> MediaView:
        """Return the files that a model is shown, with their bytes."""
        shown = choose_shown(blocks, model)
        hashes = hashes_to_load(blocks, shown, model)
        contents = self._db.read(lambda tx: read_files(tx, hashes)) if hashes else {}
        return MediaView(
            model, shown, {hash_: b64encode(data).decode() for hash_, data in contents.items()}
        )

    def account(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
        *,
        upto: int | None = None,
        limit: int = 200,
    ) -> HistoryAccount:
        """Return a history, and what became of each of the newest `limit` rows on its way there.

        With `upto` it is the history as of that message. Raise `NotFound` if it is not visible.
        """
        validate.integer("limit", limit, 1, 1000)
        budget = _require_budget(max_messages, max_tokens)

        def work(tx: Transaction) -> tuple[RecentMessages, AccountRows, tzinfo | None]:
            current = session_rows.current_view(tx, self.session_id)
            recent = read_recent(tx, current, budget, upto)
            zone = self._context.zone_of(current.zone) if timestamps == "local" else None
            return recent, read_account_rows(tx, self.session_id, upto, limit), zone

        recent, rows, zone = self._db.read(work)
        history = self._make_history(recent, budget, timestamps, format, None, zone)
        fates = account_for(recent.messages, history.candidates, history.window)
        return HistoryAccount(
            rows=tuple(
                AccountRow(row, SUMMED_UP if is_old else fates.get((row.session, row.seq), CUT))
                for row, is_old in rows.items
            ),
            before=rows.before,
            messages=tuple(history.messages),
            tokens=history.tokens,
            summary=None if recent.summary is None else text_of(recent.summary.body),
        )

    def count(self) -> int:
        """Return how many messages are visible."""
        current = self._db.read(lambda tx: session_rows.current_view(tx, self.session_id))
        return current.view.count(current.last_seq)

    # -- changing the visible messages

    def rewrite(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Show these messages instead of the visible ones."""
        entries = [Entry(draft(message)) for message in messages]
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            current = session_rows.current_view(tx, self.session_id)
            last_seq = append_messages(tx, self.session_id, entries, now, is_activity=False)
            view = View.whole(current.ref, current.last_seq + 1)
            revisions.add_revision(
                tx, current._replace(last_seq=last_seq), view, "rewrite", now,
                before=current.last_seq, by=self.by,
            )  # fmt: skip

        self._db.write(work)

    def clear(self) -> None:
        """Hide all messages."""
        self._revise("clear", lambda tx, current: [])

    def undo(self, turns: int = 1) -> int:
        """Hide the newest turns, each from the user's message on; return how many there were."""
        validate.integer("turns", turns, -(2**63))
        if turns < 1:
            raise IllegalMove(f"{turns} turns cannot be undone.", hint="Give 1 or more.")
        undone = 0

        def cut(tx: Transaction, current: CurrentView) -> list[Span] | None:
            nonlocal undone
            starts = revisions.turn_starts(tx, current, turns)
            undone = len(starts)
            return current.view.before(*starts[-1], current.last_seq) if starts else None

        self._revise("undo", cut)
        return undone

    def redo(self) -> bool:
        """Show again the turns of the last undo; return whether that was possible.

        It is not if nothing was undone, or if a message was stored since.
        """
        now = to_micros(self._context.clock.now())
        return self._db.write(lambda tx: revisions.redo(tx, self.session_id, now, by=self.by))

    def keep_recent(self, n: int) -> None:
        """Show only the newest `n` messages, and the ones before them in the same turn."""

        def cut(tx: Transaction, current: CurrentView) -> list[Span] | None:
            spans = current.view.spans(current.last_seq)
            if n <= 0:
                return []
            if current.view.count(current.last_seq) <= n:
                return None
            first = newest_spans(spans, n)[0]
            return revisions.since_turn_of(tx, current, first.log, first.first)

        self._revise("keep_recent", cut)

    def edit(self, seq: int, message: Mapping[str, Any]) -> None:
        """Show another message instead of message `seq`, in the same turn.

        Raise `NotFound` if that message is not visible.
        """
        entry = Entry(draft(message))
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            current = session_rows.current_view(tx, self.session_id)
            log = revisions.locate(current, seq)
            turn = read_turn_number(tx, log, seq)
            last = add_messages(tx, current.ref, [structs.replace(entry, turn=turn)], now)
            spans = [
                *current.view.before(log, seq, current.last_seq),
                Span(current.ref, last, last),
                *current.view.after(log, seq, current.last_seq),
            ]
            view = view_of_spans(spans, current.ref, last)
            revisions.add_revision(
                tx, current._replace(last_seq=last), view, "edit", now,
                before=current.last_seq, by=self.by,
            )  # fmt: skip

        self._db.write(work)
        self._context.notify_indexer()

    def remove(self, seq: int) -> None:
        """Hide message `seq`; raise `NotFound` if it is not visible."""

        def cut(tx: Transaction, current: CurrentView) -> list[Span]:
            spans = current.view.spans(current.last_seq)
            return revisions.without(spans, revisions.locate(current, seq), seq)

        self._revise("remove", cut)

    def pop(self, *, skip: Sequence[str] = ()) -> Message | None:
        """Hide the newest message and return it; None if there is none.

        Rows of the kinds in `skip` that follow it are hidden with it.
        """
        popped: Message | None = None

        def cut(tx: Transaction, current: CurrentView) -> list[Span] | None:
            nonlocal popped
            popped = None
            spans = current.view.spans(current.last_seq)
            while spans and popped is None:
                log, first, last = spans.pop()
                if last > first:
                    spans.append(Span(log, first, last - 1))
                (message,) = read_messages(tx, [Span(log, last, last)])
                popped = None if message.kind in skip else message
            return None if popped is None else spans

        self._revise("remove", cut)
        return popped

    def compact(
        self,
        summarise: Summariser | None = None,
        *,
        keep_turns: int = 4,
        within: float = 60.0,
    ) -> Compaction | None:
        """Show all but the newest turns as a summary; None if there is nothing to summarise.

        Without a summariser, an extract of the messages is the summary. On any failure nothing
        changes. `restore` of the revision before undoes a compaction.
        """
        from tertulia.records.transcript.compaction import compact

        return compact(
            self._context, self.session_id, summarise or extract_summary, keep_turns=keep_turns,
            within=within, by=self.by,
        )  # fmt: skip

    # -- revisions

    def revisions(self) -> list[Revision]:
        """Return every revision of the transcript, oldest first."""

        def work(tx: Transaction) -> list[Revision]:
            current = session_rows.current_view(tx, self.session_id)
            rows = tx.all("revisions_of", {"session": current.ref})
            return [revisions.to_revision(row, current) for row in rows]

        return self._db.read(work)

    def find_revisions(
        self, *, limit: int = 50, before: int | None = None
    ) -> tuple[RevisionChange, ...]:
        """Return revisions, newest first, below number `before`, with who made them."""
        return self._db.read(lambda tx: read_revisions(tx, self.session_id, limit, before))

    def at(self, n: int) -> list[dict[str, Any]]:
        """Return the messages that revision `n` shows; raise `NotFound` if there is none."""

        def work(tx: Transaction) -> list[dict[str, Any]]:
            current = session_rows.current_view(tx, self.session_id)
            row = revisions.require_revision(tx, current, n)
            return read_bodies(tx, revisions.spans_of(row, current))

        return self._db.read(work)

    def restore(self, n: int) -> None:
        """Show what revision `n` shows, to undo a clear, a rewrite or any other change.

        Raise `NotFound` if there is no such revision.
        """
        now = to_micros(self._context.clock.now())
        self._db.write(lambda tx: revisions.restore(tx, self.session_id, n, now, by=self.by))

    def _make_history(
        self,
        recent: RecentMessages,
        budget: HistoryBudget,
        timestamps: Timestamps,
        format: Format,
        model: ModelTraits | None,
        zone: tzinfo | None,
    ) -> MadeHistory:
        """Return the history of what was read, with the blocks that it was made from."""
        style = Style(
            timestamps,
            True,
            self._context.redactor(),
            allow_images=format == "anthropic" or model is not None,
            model=model,
        )
        if zone is not None:
            style = style._replace(zone=zone)
        candidates = [] if recent.summary is None else [Block(recent.summary)]
        candidates += build_blocks(recent.messages)
        # The text of a file takes at most about a half of the budget.
        text_limit = min(MAX_TEXT, (budget.tokens or MAX_TEXT) * 2)
        count_tokens = token_counter(style, text_limit=text_limit)
        window = fit_history(candidates, budget, count_tokens, whole=recent.is_whole)
        if window.result_limit is not None:
            style = style._replace(result_limit=window.result_limit)
        if model is not None:
            view = self._load_media_view(window.blocks, model)
            style = style._replace(media=view._replace(text_limit=text_limit))
        messages = render(window.blocks, format, style)
        return MadeHistory(candidates, window, messages, count_tokens)

    def _spans(self, tx: Transaction, newest: int | None) -> list[Span]:
        current = session_rows.current_view(tx, self.session_id)
        spans = current.view.spans(current.last_seq)
        return spans if newest is None else newest_spans(spans, newest)

    def _revise(self, made_by: str, cut: Cut) -> None:
        now = to_micros(self._context.clock.now())
        self._db.write(
            lambda tx: revisions.revise(tx, self.session_id, made_by, cut, now, by=self.by)
        )


def _require_budget(max_messages: int, max_tokens: int | None) -> HistoryBudget:
    """Return the budget of a history; raise `ConfigError` unless each maximum is above 0."""
    validate.integer("max_messages", max_messages, 1)
    if max_tokens is not None:
        validate.integer("max_tokens", max_tokens, 1)
    return HistoryBudget(max_messages, max_tokens)


@lru_cache(maxsize=4096)
def _head_of_minute(minute: int, zone: tzinfo) -> str:
    """Return the line with the local time; cached, because each turn shows the same messages.

    A minute has one local time, because the offset of every zone has whole minutes (since 1972).
    """
    return time_head(from_micros(minute * _MINUTE), zone)
