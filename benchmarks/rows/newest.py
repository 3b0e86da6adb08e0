"""The newest 50 messages of a long talk, legal and ready for a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.corpus import Corpus
from benchmarks.measure import Operation, interleave
from benchmarks.raw import RawTalk
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    few, many = stage.sizes.messages
    with ExitStack() as stack:
        contestants = [_reader(stage, stack, few), _reader(stage, stack, many)]
        raw = RawTalk(stage.new_path("raw"), Corpus().talk(many))
        stack.enter_context(closing(raw))
        contestants.append(Operation("raw", raw.newest))
        found = interleave(contestants, rounds=2 * stage.sizes.rounds, times=50)
    short, long, base = (found[who].median for who in (f"{few}", f"{many}", "raw"))
    for size in stage.sizes.peer_messages:
        _others(stage, size, ours_seconds=long, raw_seconds=base)
    what = f"newest 50 of {many:,} messages"
    return [
        Row(
            "newest_growth",
            f"{what} against {few:,}",
            long / short,
            Limit("≤", 1.2),
            ours=milliseconds(long),
            against=f"small {milliseconds(short)}",
        ),
        Row(
            "newest",
            f"{what}, warm",
            long / base,
            Limit("≤", 3),
            ours=milliseconds(long),
            against=f"raw {milliseconds(base)}",
            note="raw reads 50 rows and decodes them; the store also makes the history legal",
        ),
    ]


def talk(stage: Stage, count: int) -> Path:
    return stage.built(f"talk of {count:,} messages", _filler(count))


def _reader(stage: Stage, stack: ExitStack, count: int) -> Operation:
    store = stack.enter_context(ours.open_store(talk(stage, count)))
    transcript = store.transcript(store.sessions.open(ours.source(0)).id)
    shown = len(transcript.history(max_messages=50))
    if not 40 <= shown <= 50:
        raise RuntimeError(f"history(max_messages=50) of {count} messages gave {shown}")
    return Operation(f"{count}", lambda: transcript.history(max_messages=50))


def _filler(count: int) -> Callable[[Path], None]:
    return lambda path: ours.fill_talk(path, count, rare=10)


def _others(stage: Stage, size: int, *, ours_seconds: float, raw_seconds: float) -> None:
    ready = against.prepared(stage, "newest", "newest", size)
    theirs = interleave(ready, rounds=4, times=25, budget=stage.sizes.peer_budget)
    against.noted(
        stage,
        "newest",
        ready,
        theirs,
        size=f"{size:,} messages",
        ours=ours_seconds,
        raw=raw_seconds,
    )
