"""The other stores in a row: who can take part, and what came out for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measure import Samples
from benchmarks.peers import Peer, PeerError, PeerOperation
from benchmarks.report import PeerRow
from benchmarks.stage import Stage


def joined(stage: Stage, row: str, what: str, sizes: Iterable[int]) -> list[PeerOperation]:
    """Every other store that offers the operation; why one does not is noted at once."""
    return [
        operation
        for size in sizes
        for peer in stage.peers
        if (operation := _prepared(stage, row, peer, what, size)) is not None
    ]


def noted(
    stage: Stage,
    row: str,
    taking_part: Sequence[PeerOperation],
    found: dict[str, Samples],
    *,
    counted: str,
    ours: float,
    raw: float | None = None,
) -> None:
    """What the others needed, as milliseconds and as ratios; `counted` is what their size is of."""
    for operation in taking_part:
        samples = found[operation.name]
        if not samples.bursts:
            refused(stage, row, operation.peer, PeerError(samples.gave_up))
            continue
        note(
            stage,
            row,
            operation.peer,
            samples.median * 1000,
            worst=samples.worst * 1000,
            size=f"{operation.size:,} {counted}",
            ours=ours * 1000,
            raw=None if raw is None else raw * 1000,
        )


def note(
    stage: Stage,
    row: str,
    peer: Peer,
    value: float,
    *,
    size: str,
    ours: float,
    raw: float | None = None,
    worst: float | None = None,
    unit: str = "ms",
) -> None:
    stage.peer_rows.append(
        PeerRow(
            row,
            peer.name,
            size=size,
            value=value,
            unit=unit,
            worst=worst,
            against_raw=None if raw is None else value / raw,
            against_ours=value / ours,
        )
    )


def refused(stage: Stage, row: str, peer: Peer, problem: PeerError) -> None:
    told = PeerRow(row, peer.name, problem=str(problem))
    if told not in stage.peer_rows:
        stage.peer_rows.append(told)


def _prepared(stage: Stage, row: str, peer: Peer, what: str, size: int) -> PeerOperation | None:
    try:
        return peer.operation(what, size)
    except PeerError as problem:
        refused(stage, row, peer, problem)
        return None
