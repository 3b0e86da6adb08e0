"""A driver's error is translated by the first kind it belongs to."""

from __future__ import annotations

from tertulia.errors import StoreError, StoreFull, StoreUnavailable
from tertulia.storage.error_kinds import ErrorKind, find_kind, invalid_value

KINDS: tuple[ErrorKind, ...] = (
    (BlockingIOError, StoreFull, "First", "Do this."),
    (OSError, StoreUnavailable, "Second", "Do that."),
)


def test_the_first_kind_that_fits_counts() -> None:
    error = find_kind(BlockingIOError(), KINDS, "talk.db", "why")
    assert type(error) is StoreFull
    assert error.message == "First (talk.db: why)."
    assert error.hint == "Do this."
    assert type(find_kind(OSError(), KINDS, "talk.db", "why")) is StoreUnavailable


def test_another_error_has_no_kind() -> None:
    assert find_kind(ValueError(), KINDS, "talk.db", "why") is None


def test_an_invalid_value_is_no_fault_of_the_store() -> None:
    assert not isinstance(invalid_value("a lone surrogate"), StoreError)
    assert "a lone surrogate" in invalid_value("a lone surrogate").message
