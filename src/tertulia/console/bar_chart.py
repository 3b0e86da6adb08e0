"""Bars by day in parts, as numbers that a template draws as SVG; each bar is a link with a name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 160
_GAP: Final = 0.25
_LEAST: Final = 2.0


class BarPart(msgspec.Struct, frozen=True):
    """A part of a bar: the number of its colour, its top and its height."""

    colour: int
    y: float
    height: float


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar. `is_unknown`: its value is not known, which is not zero."""

    day: date
    name: str
    x: float
    width: float
    parts: tuple[BarPart, ...]
    is_unknown: bool


class BarValue(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a day, one for each colour; None for those that are not known."""

    day: date
    name: str
    values: tuple[float | None, ...]


def lay_out(days: Sequence[BarValue]) -> list[Bar]:
    """Return the bars of some days, scaled to the chart; parts stand on each other."""
    if not days:
        return []
    step = WIDTH / len(days)
    top = max((sum(value or 0 for value in each.values) for each in days), default=0) or 1
    bars = []
    for index, each in enumerate(days):
        parts, base = [], float(HEIGHT)
        for colour, value in enumerate(each.values):
            if value:
                # A small amount is still there to be seen and clicked.
                height = max(round(value / top * HEIGHT, 2), _LEAST)
                base -= height
                parts.append(BarPart(colour, round(max(base, 0), 2), height))
        bars.append(
            Bar(
                day=each.day,
                name=each.name,
                x=round(step * (index + _GAP / 2), 2),
                width=round(step * (1 - _GAP), 2),
                parts=tuple(parts),
                is_unknown=not parts and any(value is None for value in each.values),
            )
        )
    return bars
