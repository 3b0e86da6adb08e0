"""Bars by day, as numbers that a template draws as SVG; each bar is a link with a name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 160
_GAP: Final = 0.25


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar. `value` is None if it is not known, which is not zero."""

    day: date
    value: float | None
    name: str
    x: float
    y: float
    width: float
    height: float


def lay_out(days: Sequence[tuple[date, float | None, str]]) -> list[Bar]:
    """Return the bars of some days, each with its value and its name, scaled to the chart."""
    if not days:
        return []
    step = WIDTH / len(days)
    top = max((value or 0 for _, value, _ in days), default=0) or 1
    bars = []
    for index, (day, value, name) in enumerate(days):
        height = round((value or 0) / top * HEIGHT, 2)
        # A small amount is still there to be seen and clicked.
        height = max(height, 2.0) if value else height
        bars.append(
            Bar(
                day=day,
                value=value,
                name=name,
                x=round(step * (index + _GAP / 2), 2),
                y=round(HEIGHT - height, 2),
                width=round(step * (1 - _GAP), 2),
                height=height,
            )
        )
    return bars
