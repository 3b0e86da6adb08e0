"""Bytes on disk for each byte of message text, with the search index, after closing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from benchmarks import peer_results, store_under_test
from benchmarks.corpus import Corpus, Message, text_bytes
from benchmarks.peers import PeerError
from benchmarks.raw_sqlite import RawTurns, encoded
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext

TURNS_OF_A_SESSION = 50


def run(context: RunContext) -> list[Row]:
    count = int(context.sizes.megabytes * 1_000_000) // text_bytes(Corpus().turn(0))
    turns = Corpus().turns(count)
    text = sum(text_bytes(turn) for turn in turns)
    mine = _disk_bytes(context.new_path("disk"), turns) / text
    raw = _raw_disk_bytes(context.new_path("raw"), turns) / text
    _measure_peers(context, min(count, 2_000), mine, raw)
    return [
        Row(
            "disk",
            f"disk for 1 MB of message text ({text / 1e6:.0f} MB written)",
            mine,
            Limit("≤", 3, "MB"),
            unit="MB",
            ours=f"{mine:.2f} MB",
            against=f"raw {raw:.2f} MB",
            note="raw holds the same rows and has no search index",
        )
    ]


def _disk_bytes(path: Path, turns: list[list[Message]]) -> int:
    with store_under_test.open_store(path, "fast") as store:
        for number, turn in enumerate(turns):
            session = store.sessions.open(store_under_test.source(number // TURNS_OF_A_SESSION))
            store.transcript(session.id).extend(turn, usage=store_under_test.USAGE)
        store.settle()
    return _size(path)


def _raw_disk_bytes(path: Path, turns: list[list[Message]]) -> int:
    sessions = len(turns) // TURNS_OF_A_SESSION + 1
    with closing(RawTurns(path, "fast", sessions)) as raw:
        for number, turn in enumerate(turns):
            raw.write(number // TURNS_OF_A_SESSION, encoded(turn))
    return _size(path)


def _size(path: Path) -> int:
    """Return the size of a file and of all files whose names begin with its name."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def _measure_peers(context: RunContext, turns: int, mine: float, raw: float) -> None:
    for peer in context.peers:
        try:
            theirs = peer.figure("disk", turns=turns)
        except PeerError as problem:
            peer_results.add_problem(context, "disk", peer, problem)
            continue
        size = f"{turns:,} turns"
        peer_results.add_row(
            context, "disk", peer, theirs, size=size, ours=mine, raw=raw, unit="MB"
        )
