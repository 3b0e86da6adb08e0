"""Pages of rows with falling numbers, newest first: a cursor is the number of the last row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.session import Page
from tertulia.storage.base import Row

T = TypeVar("T")

_MAX_LIMIT: Final = 1000
_NEWEST: Final = 2**62


def page_params(limit: int, cursor: str | None) -> dict[str, int]:
    """Return the parameters `before` and `limit` of a statement that reads a page.

    It reads one row more than the page has: then the page has a cursor for the next. Raise
    `ConfigError` if the limit or the cursor is not valid.
    """
    validate.integer("limit", limit, 1, _MAX_LIMIT)
    before = _NEWEST if cursor is None else cursors.decode(cursor, 1)[0]
    return {"before": before, "limit": limit + 1}


def to_page(rows: Sequence[Row], limit: int, convert: Callable[[Row], T]) -> Page[T]:
    """Return the rows that `page_params` read as a page; the first column is the number."""
    next_cursor = cursors.encode(rows[limit - 1][0]) if len(rows) > limit else None
    return Page(tuple(map(convert, rows[:limit])), next_cursor)
