"""Bytes on disk for each byte of message text, with the search index, after closing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.corpus import Corpus, Message, text_bytes
from benchmarks.peers import PeerError
from benchmarks.raw import RawTurns, encoded
from benchmarks.report import Limit, Row
from benchmarks.stage import Stage

TURNS_OF_A_SESSION = 50


def run(stage: Stage) -> list[Row]:
    count = int(stage.sizes.megabytes * 1_000_000) // text_bytes(Corpus().turn(0))
    turns = Corpus().turns(count)
    text = sum(text_bytes(turn) for turn in turns)
    mine = _written(stage.new_path("disk"), turns) / text
    raw = _written_raw(stage.new_path("raw"), turns) / text
    _ask_others(stage, min(count, 2_000), mine, raw)
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


def _written(path: Path, turns: list[list[Message]]) -> int:
    with ours.open_store(path, "fast") as store:
        for number, turn in enumerate(turns):
            session = store.sessions.open(ours.source(number // TURNS_OF_A_SESSION))
            store.transcript(session.id).extend(turn, usage=ours.USAGE)
        store.settle()
    return _size(path)


def _written_raw(path: Path, turns: list[list[Message]]) -> int:
    sessions = len(turns) // TURNS_OF_A_SESSION + 1
    with closing(RawTurns(path, "fast", sessions)) as raw:
        for number, turn in enumerate(turns):
            raw.write(number // TURNS_OF_A_SESSION, encoded(turn))
    return _size(path)


def _size(path: Path) -> int:
    """The file and all that lies beside it under its name."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def _ask_others(stage: Stage, turns: int, mine: float, raw: float) -> None:
    for peer in stage.peers:
        try:
            theirs = peer.figure("disk", turns=turns)
        except PeerError as problem:
            against.refused(stage, "disk", peer, problem)
            continue
        size = f"{turns:,} turns"
        against.note(stage, "disk", peer, theirs, size=size, ours=mine, raw=raw, unit="MB")
