"""Types of query parameters and body fields that several operations share."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

MAX_IDS: Final = 200

Platform = Literal["api", "web"]
Count = Annotated[int, Meta(ge=1, le=1000)]
Position = Annotated[int, Meta(ge=0, le=2**53)]
Cursor = Annotated[str, Meta(max_length=400)]
Text = Annotated[str, Meta(max_length=4000)]
Order = Literal["oldest", "newest"]
