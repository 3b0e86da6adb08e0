"""Other stores in a row: the stores that offer an operation, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measure import Samples
from benchmarks.peers import Peer, PeerError, PeerOperation
from benchmarks.report import PeerRow
from benchmarks.run_context import RunContext


def prepare_peers(
    context: RunContext, row: str, what: str, sizes: Iterable[int]
) -> list[PeerOperation]:
    """Return every other store that offers the operation; add a row for each that does not."""
    return [
        operation
        for size in sizes
        for peer in context.peers
        if (operation := _prepare(context, row, peer, what, size)) is not None
    ]


def add_samples(
    context: RunContext,
    row: str,
    operations: Sequence[PeerOperation],
    samples_by_name: dict[str, Samples],
    *,
    unit_name: str,
    ours: float,
    raw: float | None = None,
) -> None:
    """Add the times of other stores, in ms and as ratios; `unit_name` is the unit of their size."""
    for operation in operations:
        samples = samples_by_name[operation.name]
        if not samples.bursts:
            add_problem(context, row, operation.peer, PeerError(samples.gave_up))
            continue
        add_row(
            context,
            row,
            operation.peer,
            samples.median * 1000,
            worst=samples.worst * 1000,
            size=f"{operation.size:,} {unit_name}",
            ours=ours * 1000,
            raw=None if raw is None else raw * 1000,
        )


def add_row(
    context: RunContext,
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
    context.peer_rows.append(
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


def add_problem(context: RunContext, row: str, peer: Peer, problem: PeerError) -> None:
    peer_row = PeerRow(row, peer.name, problem=str(problem))
    if peer_row not in context.peer_rows:
        context.peer_rows.append(peer_row)


def _prepare(
    context: RunContext, row: str, peer: Peer, what: str, size: int
) -> PeerOperation | None:
    try:
        return peer.operation(what, size)
    except PeerError as problem:
        add_problem(context, row, peer, problem)
        return None
