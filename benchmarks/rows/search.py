"""A rare word among very many messages, in one session or spread over many."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.corpus import RARE_WORD, Corpus
from benchmarks.measure import Operation, interleave
from benchmarks.raw import RawWords
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.newest import talk
from benchmarks.stage import Stage

RARE = 10


def run(stage: Stage) -> list[Row]:
    messages, sessions = stage.sizes.messages[-1], stage.sizes.talks
    with ExitStack() as stack:
        raw = RawWords(stage.new_path("raw"), Corpus().talk(messages, rare=RARE))
        stack.enter_context(closing(raw))
        contestants = [
            _searcher("one", talk(stage, messages), stack),
            _searcher("many", _talks(stage, messages, sessions), stack),
            Operation("raw", raw.search),
        ]
        found = interleave(contestants, rounds=2 * stage.sizes.rounds, times=25)
    base = found["raw"].median
    for size in stage.sizes.peer_messages:
        _others(stage, size, ours_seconds=found["one"].median, raw_seconds=base)
    return [
        _row("search_one", messages, "one session", found["one"].median, base),
        _row("search_many", messages, f"{sessions:,} sessions", found["many"].median, base),
    ]


def _talks(stage: Stage, messages: int, sessions: int) -> Path:
    return stage.built(
        f"{messages:,} messages in {sessions:,} sessions",
        lambda path: ours.fill_talks(path, messages, sessions, rare=RARE),
    )


def _searcher(name: str, path: Path, stack: ExitStack) -> Operation:
    store = stack.enter_context(ours.open_store(path))
    hits = len(store.search(RARE_WORD, limit=20).items)
    if hits != RARE:
        raise RuntimeError(f"searching {path.name} gave {hits} hits, {RARE} are there")
    return Operation(name, lambda: store.search(RARE_WORD, limit=20))


def _row(name: str, messages: int, where: str, seconds: float, base: float) -> Row:
    return timing(
        name,
        f"a rare word among {messages:,} messages in {where}",
        ours=seconds,
        against=("raw FTS5", base),
        limit=Limit("≤", 4),
    )


def _others(stage: Stage, size: int, *, ours_seconds: float, raw_seconds: float) -> None:
    ready = against.prepared(stage, "search", "search", size)
    theirs = interleave(ready, rounds=4, times=10, budget=stage.sizes.peer_budget)
    against.noted(
        stage,
        "search",
        ready,
        theirs,
        size=f"{size:,} messages",
        ours=ours_seconds,
        raw=raw_seconds,
    )
