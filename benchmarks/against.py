"""The other stores in a row: who can take part, and what came out for them."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import Samples
from benchmarks.peers import Peer, PeerError, PeerOperation
from benchmarks.report import PeerRow
from benchmarks.stage import Stage


def prepared(stage: Stage, row: str, what: str, size: int) -> list[PeerOperation]:
    """Every other store that offers the operation; why one does not is noted at once."""
    ready = []
    for peer in stage.peers:
        try:
            peer.ask("prepare", what, size=size)
            ready.append(PeerOperation(peer, what))
        except PeerError as problem:
            _refused(stage, row, peer, problem)
    return ready


def noted(
    stage: Stage,
    row: str,
    taking_part: list[PeerOperation],
    found: dict[str, Samples],
    *,
    size: str,
    ours: float,
    raw: float | None = None,
) -> None:
    for operation in taking_part:
        seconds = found[operation.name].median
        stage.peer_rows.append(
            PeerRow(
                row,
                operation.peer.name,
                size=size,
                value=seconds * 1000,
                against_raw=None if raw is None else seconds / raw,
                against_ours=seconds / ours,
            )
        )


def figures(stage: Stage, row: str, find: Callable[[Peer], PeerRow]) -> None:
    """One number from each other store, which `find` asks for."""
    for peer in stage.peers:
        try:
            stage.peer_rows.append(find(peer))
        except PeerError as problem:
            _refused(stage, row, peer, problem)


def _refused(stage: Stage, row: str, peer: Peer, problem: PeerError) -> None:
    stage.peer_rows.append(PeerRow(row, peer.name, problem=str(problem)))
