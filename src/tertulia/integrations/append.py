"""Appending to a conversation without a turn, for SDKs that pass entries after the fact.

One call is one transaction. A message may have marks that find it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tertulia.core.message import draft
from tertulia.records.transcript.log import Entry
from tertulia.records.transcript.marks import add_marks


def to_entry(
    message: Mapping[str, Any], kind: str | None = None, marks: Sequence[str] = ()
) -> Entry:
    """Return a message with its marks, ready to be stored; one with a kind begins no turn."""
    return Entry(add_marks(draft(message), marks), kind, is_inside_turn=kind is not None)
