"""A session, its notice, and pages of results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from tertulia.core.source import Source
from tertulia.core.usage import CostStatus, Usage

State = Literal["all", "current", "ended"]
STATES: tuple[State, ...] = ("all", "current", "ended")

T = TypeVar("T")


class Notice(msgspec.Struct, frozen=True):
    """The automatic end of the previous session; `notify` is true if the user is to be told."""

    reason: str
    had_activity: bool
    session_id: str
    notify: bool = True


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session in the store when it was read."""

    id: str
    key: str
    agent: str
    origin: Source
    display_name: str | None
    title: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    parent_id: str | None
    parent_kind: str | None
    usage: Usage
    last_prompt_tokens: int
    cost_usd: float | None
    cost_status: CostStatus
    cost_source: str | None
    model: str | None
    provider: str | None
    metadata: Mapping[str, Any]
    version: int
    notice: Notice | None = None

    def __hash__(self) -> int:
        return hash((self.id, self.version))  # a dict, as the metadata is, has no hash

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain values, for JSON."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        fields["origin"] = self.origin.to_dict()
        return fields


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of results. `next` is the cursor of the next page, None on the last one."""

    items: tuple[T, ...]
    next: str | None = None
