"""One sitting of a conversation."""

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
    """The session before this one ended by itself; `notify` says whether to tell the person."""

    reason: str
    had_activity: bool
    session_id: str
    notify: bool = True


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it stood in the store at one moment."""

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

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the names of the fields, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain["origin"] = self.origin.to_dict()
        return plain


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of many. `next` is the cursor of the rest, None at the end."""

    items: tuple[T, ...]
    next: str | None = None
