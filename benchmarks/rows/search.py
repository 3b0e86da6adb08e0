"""Search for a rare word among many messages, in one session or spread over many."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import peer_results, store_under_test
from benchmarks.corpus import RARE_WORD, Corpus
from benchmarks.measure import Contestant, Operation, interleave
from benchmarks.raw_sqlite import RawSearch
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.newest import long_session
from benchmarks.run_context import RunContext

RARE = 10


def run(context: RunContext) -> list[Row]:
    messages, sessions = context.sizes.messages[-1], context.sizes.talks
    others = peer_results.prepare_peers(context, "search", "search", context.sizes.peer_messages)
    with ExitStack() as stack:
        raw = RawSearch(context.new_path("raw"), Corpus().session_turns(messages, rare=RARE))
        stack.enter_context(closing(raw))
        contestants: list[Contestant] = [
            _search_operation("one", long_session(context, messages), stack),
            _search_operation("many", _many_sessions(context, messages, sessions), stack),
            Operation("raw", raw.search),
            *others,
        ]
        samples = interleave(
            contestants, rounds=2 * context.sizes.rounds, times=25, budget=context.sizes.peer_budget
        )
    base, mine = samples["raw"].median, samples["one"].median
    peer_results.add_samples(
        context, "search", others, samples, unit_name="messages", ours=mine, raw=base
    )
    return [
        _row("search_one", messages, "one session", mine, base),
        _row("search_many", messages, f"{sessions:,} sessions", samples["many"].median, base),
    ]


def _many_sessions(context: RunContext, messages: int, sessions: int) -> Path:
    return context.built(
        f"{messages:,} messages in {sessions:,} sessions",
        lambda path: store_under_test.fill_many_sessions(path, messages, sessions, rare=RARE),
    )


def _search_operation(name: str, path: Path, stack: ExitStack) -> Operation:
    store = stack.enter_context(store_under_test.open_store(path))
    hits = len(store.search(RARE_WORD, limit=20).items)
    if hits != RARE:
        raise RuntimeError(f"searching {path.name} returned {hits} hits, {RARE} are stored")
    return Operation(name, lambda: store.search(RARE_WORD, limit=20))


def _row(name: str, messages: int, where: str, seconds: float, base: float) -> Row:
    return timing(
        name,
        f"a rare word among {messages:,} messages in {where}",
        ours=seconds,
        against=("raw FTS5", base),
        limit=Limit("≤", 4),
    )
