"""Rows, their verdicts, and their output as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Sense = Literal["≤", "≥", "="]


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a figure."""

    sense: Sense
    value: float
    unit: str = "×"

    def holds(self, figure: float) -> bool:
        if self.sense == "≤":
            return figure <= self.value
        if self.sense == "≥":
            return figure >= self.value
        return figure == self.value

    def __str__(self) -> str:
        return f"{self.sense} {self.value:g}{_spaced(self.unit)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, its comparison value, and the measured times if it is a time."""

    name: str
    what: str
    figure: float | None
    limit: Limit | None = None
    unit: str = "×"
    ours: str = ""
    against: str = ""
    note: str = ""
    problem: str = ""
    disturbed: bool = False
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def is_timed(self) -> bool:
        """Return whether a busy machine could have changed the figure."""
        return bool(self.numbers)

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        if self.limit is None:
            return "for information"
        verdict_text = "met" if self.limit.holds(self.figure) else "not met"
        return f"{verdict_text}, disturbed" if self.disturbed else verdict_text


@dataclass(frozen=True, slots=True)
class PeerRow:
    """The result of another store for one row."""

    name: str
    peer: str
    size: str = ""
    value: float | None = None
    unit: str = "ms"
    worst: float | None = None
    against_raw: float | None = None
    against_ours: float | None = None
    problem: str = ""


def timing(
    name: str,
    what: str,
    *,
    ours: float,
    against: tuple[str, float],
    limit: Limit | None = None,
    note: str = "",
    numbers: dict[str, float] | None = None,
    disturbed: bool = False,
) -> Row:
    """Return a row whose figure is the ratio of two times, given in seconds."""
    label, theirs = against
    return Row(
        name,
        what,
        ours / theirs,
        limit,
        ours=milliseconds(ours),
        against=f"{label} {milliseconds(theirs)}",
        note=note,
        disturbed=disturbed,
        numbers={"ours_ms": ours * 1000, "against_ms": theirs * 1000, **(numbers or {})},
    )


def milliseconds(seconds: float) -> str:
    return f"{_rounded(seconds * 1000)} ms"


def table(rows: Sequence[Row]) -> str:
    head = ("row", "what", "tertulia", "against", "figure", "limit", "verdict")
    body = [
        (
            row.name,
            row.what,
            row.ours,
            row.against,
            _figure(row.figure, row.unit),
            str(row.limit or ""),
            row.verdict,
        )
        for row in rows
    ]
    notes = [f"  {row.name}: {row.note or row.problem}" for row in rows if row.note or row.problem]
    return "\n".join([_aligned(head, body), "", "Notes", *notes])


def peer_table(rows: Sequence[PeerRow]) -> str:
    names = [row.name for row in rows]
    head = ("row", "store", "size", "measured", "worst", "× raw", "× tertulia")
    body = [
        (
            row.name,
            row.peer,
            row.size,
            row.problem or _figure(row.value, row.unit),
            _figure(row.worst, row.unit),
            _figure(row.against_raw, ""),
            _figure(row.against_ours, ""),
        )
        for row in sorted(rows, key=lambda row: (names.index(row.name), row.peer))
    ]
    return _aligned(head, body)


def write_json(
    path: Path,
    *,
    about: dict[str, object],
    rows: Sequence[Row],
    peers: Sequence[PeerRow],
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = [asdict(row) | {"verdict": row.verdict} for row in rows]
    document = {"about": about, "rows": ours, "peers": [asdict(row) for row in peers]}
    path.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else _rounded(value) + _spaced(unit)


def _rounded(value: float) -> str:
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _spaced(unit: str) -> str:
    return unit if unit in {"", "×"} else f" {unit}"


def _aligned(head: tuple[str, ...], body: Sequence[tuple[str, ...]]) -> str:
    lines = [head, *body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = "  ".join("─" * width for width in widths)
    aligned_lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([aligned_lines[0], rule, *aligned_lines[1:]])
