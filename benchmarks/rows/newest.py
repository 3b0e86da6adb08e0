"""The newest 50 messages of a long talk: as they were stored, and as a history for a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks import against, ours
from benchmarks.corpus import Corpus
from benchmarks.measure import Contestant, Operation, Samples, interleave
from benchmarks.raw import RawTalk
from benchmarks.report import Limit, Row, timing
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    few, many = stage.sizes.messages
    others = against.joined(stage, "newest", "newest", stage.sizes.peer_messages)
    with ExitStack() as stack:
        raw = RawTalk(stage.new_path("raw"), Corpus().talk(many))
        stack.enter_context(closing(raw))
        contestants: list[Contestant] = [
            *_readers(stage, stack, few),
            *_readers(stage, stack, many),
            Operation("raw", raw.newest),
            *others,
        ]
        found = interleave(
            contestants, rounds=2 * stage.sizes.rounds, times=50, budget=stage.sizes.peer_budget
        )
    against.noted(
        stage,
        "newest",
        others,
        found,
        counted="messages",
        ours=found[f"newest {many}"].median,
        raw=found["raw"].median,
    )
    rows = _rows("newest", f"newest 50 of {many:,} messages", found, (few, many))
    if f"history {many}" in found:
        rows += _rows("history", f"history of 50 of {many:,} messages", found, (few, many))
    return rows


def _rows(name: str, what: str, found: dict[str, Samples], sizes: tuple[int, int]) -> list[Row]:
    few, many = sizes
    short, long, base = (found[who].median for who in (f"{name} {few}", f"{name} {many}", "raw"))
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


def talk(stage: Stage, count: int) -> Path:
    return stage.built(f"talk of {count:,} messages", _filler(count))


def _readers(stage: Stage, stack: ExitStack, count: int) -> list[Operation]:
    store = stack.enter_context(ours.open_store(talk(stage, count)))
    transcript: Any = store.transcript(store.sessions.open(ours.source(0)).id)
    readers = [Operation(f"newest {count}", lambda: transcript.load(newest=50))]
    if hasattr(transcript, "history"):
        readers.append(Operation(f"history {count}", lambda: transcript.history(max_messages=50)))
    for reader in readers:
        _checked(reader)
    return readers


def _checked(reader: Operation) -> None:
    """A history may leave out up to a turn, to begin where a turn begins."""
    found = reader.call()
    if not isinstance(found, list) or not 46 <= len(found) <= 50:
        raise RuntimeError(f"{reader.name} gave {found!r:.200}")


def _filler(count: int) -> Callable[[Path], None]:
    return lambda path: ours.fill_talk(path, count, rare=10)
