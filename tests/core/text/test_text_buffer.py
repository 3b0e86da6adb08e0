"""Text that grows by many small pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.text_buffer import TextBuffer


@given(st.lists(st.text(max_size=5)), st.sets(st.integers(0, 20)))
def test_text_is_the_pieces_joined(pieces: list[str], read_at: set[int]) -> None:
    buffer = TextBuffer()
    for number, piece in enumerate(pieces):
        buffer.append(piece)
        if number in read_at:
            assert str(buffer) == "".join(pieces[: number + 1])
    text = "".join(pieces)
    assert (str(buffer), len(buffer), bool(buffer)) == (text, len(text), bool(text))


def test_cleared_buffer_is_empty() -> None:
    buffer = TextBuffer()
    buffer.append("hello")
    buffer.clear()
    assert (str(buffer), len(buffer), bool(buffer)) == ("", 0, False)


def test_text_that_was_read_is_not_joined_again() -> None:
    buffer = TextBuffer()
    for piece in ("hello", " ", "there"):
        buffer.append(piece)
    assert str(buffer) is str(buffer)
