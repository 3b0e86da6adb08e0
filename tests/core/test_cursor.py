from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import ConfigError
from tertulia.core import cursor

numbers = st.integers(-(2**63) + 1, 2**63 - 1)


@given(st.lists(numbers, min_size=1, max_size=4))
def test_cursor_is_read_back(position: list[int]) -> None:
    assert cursor.decode(cursor.encode(*position), len(position)) == position


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 1),
        ("%%%", 1),
        ("nonsense", 1),
        (cursor.encode(1, 2), 1),
        (cursor.encode(2**70), 1),
        ("WzEuNV0", 1),  # the position 1.5
        ("é", 1),
    ],
)
def test_invalid_cursor_is_refused(text: str, length: int) -> None:
    with pytest.raises(ConfigError, match="Invalid cursor") as caught:
        cursor.decode(text, length)
    assert caught.value.field == "cursor"
