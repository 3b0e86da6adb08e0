"""The result of one check of `tertulia doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    state: State
    detail: str
    advice: str | None = None
