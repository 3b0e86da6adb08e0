"""A rare word among very many messages, in one session or spread over many."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.corpus import RARE_WORD, Corpus
from benchmarks.measure import Contestant, Operation, interleave
from benchmarks.raw import RawWords
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.newest import talk
from benchmarks.stage import Stage

RARE = 10


def run(stage: Stage) -> list[Row]:
    messages, sessions = stage.sizes.messages[-1], stage.sizes.talks
    others = against.joined(stage, "search", "search", stage.sizes.peer_messages)
    with ExitStack() as stack:
        raw = RawWords(stage.new_path("raw"), Corpus().talk(messages, rare=RARE))
        stack.enter_context(closing(raw))
        contestants: list[Contestant] = [
            _searcher("one", talk(stage, messages), stack),
            _searcher("many", _talks(stage, messages, sessions), stack),
            Operation("raw", raw.search),
            *others,
        ]
        found = interleave(
            contestants, rounds=2 * stage.sizes.rounds, times=25, budget=stage.sizes.peer_budget
        )
    base, mine = found["raw"].median, found["one"].median
    against.noted(stage, "search", others, found, counted="messages", ours=mine, raw=base)
    return [
        _row("search_one", messages, "one session", mine, base),
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
