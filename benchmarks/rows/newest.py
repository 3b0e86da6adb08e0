"""The newest 50 messages of a long session: as stored, and as a history for a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks import peer_results, store_under_test
from benchmarks.corpus import Corpus
from benchmarks.measure import Contestant, Operation, Samples, interleave
from benchmarks.raw_sqlite import RawSession
from benchmarks.report import Limit, Row, timing
from benchmarks.run_context import RunContext


def run(context: RunContext) -> list[Row]:
    few, many = context.sizes.messages
    others = peer_results.prepare_peers(context, "newest", "newest", context.sizes.peer_messages)
    with ExitStack() as stack:
        raw = RawSession(context.new_path("raw"), Corpus().session_turns(many))
        stack.enter_context(closing(raw))
        contestants: list[Contestant] = [
            *_readers(context, stack, few),
            *_readers(context, stack, many),
            Operation("raw", raw.newest),
            *others,
        ]
        samples = interleave(
            contestants, rounds=2 * context.sizes.rounds, times=50, budget=context.sizes.peer_budget
        )
    peer_results.add_samples(
        context,
        "newest",
        others,
        samples,
        unit_name="messages",
        ours=samples[f"newest {many}"].median,
        raw=samples["raw"].median,
    )
    rows = _rows("newest", f"newest 50 of {many:,} messages", samples, (few, many))
    if f"history {many}" in samples:
        rows += _rows("history", f"history of 50 of {many:,} messages", samples, (few, many))
    return rows


def _rows(name: str, what: str, samples: dict[str, Samples], sizes: tuple[int, int]) -> list[Row]:
    few, many = sizes
    short, long, base = (samples[who].median for who in (f"{name} {few}", f"{name} {many}", "raw"))
    return [
        timing(
            f"{name}_growth",
            f"{what} against {few:,}",
            ours=long,
            against=("small", short),
            limit=Limit("≤", 1.2),
        ),
        timing(
            name,
            f"{what}, warm",
            ours=long,
            against=("raw", base),
            limit=Limit("≤", 3),
        ),
    ]


def long_session(context: RunContext, count: int) -> Path:
    return context.built(f"session of {count:,} messages", _fill(count))


def _readers(context: RunContext, stack: ExitStack, count: int) -> list[Operation]:
    store = stack.enter_context(store_under_test.open_store(long_session(context, count)))
    transcript: Any = store.transcript(store.sessions.open(store_under_test.source(0)).id)
    readers = [Operation(f"newest {count}", lambda: transcript.load(newest=50))]
    if hasattr(transcript, "history"):
        readers.append(Operation(f"history {count}", lambda: transcript.history(max_messages=50)))
    for reader in readers:
        _check(reader)
    return readers


def _check(reader: Operation) -> None:
    """Raise if the length is wrong; a history may be up to a turn shorter, to begin with a turn."""
    messages = reader.call()
    if not isinstance(messages, list) or not 46 <= len(messages) <= 50:
        raise RuntimeError(f"{reader.name} returned {messages!r:.200}")


def _fill(count: int) -> Callable[[Path], None]:
    return lambda path: store_under_test.fill_session(path, count, rare=10)
