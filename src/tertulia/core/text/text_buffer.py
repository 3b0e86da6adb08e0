"""Text that grows by many small pieces, such as an answer that is streamed."""

from __future__ import annotations


class TextBuffer:
    """Collects pieces of text and joins them when the text is read.

    `text += piece` would copy everything that came before for each piece, so that a long answer
    would cost the square of its length.
    """

    __slots__ = ("_length", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def append(self, piece: str) -> None:
        """Add a piece at the end."""
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)

    def clear(self) -> None:
        """Remove all pieces."""
        self._pieces.clear()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        """Return the text so far; until the next piece, it is not joined again."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
