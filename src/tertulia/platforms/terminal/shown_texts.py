"""Texts that were shown while they were written, so that their delivery is not printed again."""

from __future__ import annotations

from collections import deque

_MAX_TEXTS = 16


class ShownTexts:
    """The text of the answer in progress, and of the last answers."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._texts: deque[str] = deque(maxlen=_MAX_TEXTS)

    def add(self, piece: str) -> None:
        """Add a piece of the answer in progress."""
        self._pieces.append(piece)

    def discard(self) -> None:
        """Forget the text so far: it is not delivered, because a tool is called first."""
        self._pieces.clear()

    def finish(self, text: str | None = None) -> None:
        """End the answer in progress, or remember a text that was shown at once."""
        if text is None:
            text = "".join(self._pieces)
            self._pieces.clear()
        if text.strip():
            self._texts.append(text.strip())

    def was_shown(self, text: str) -> bool:
        """Return whether this text was shown; True once for each time it was shown."""
        stripped = text.strip()
        if stripped and stripped == "".join(self._pieces).strip():
            self._pieces.clear()
            return True
        if stripped in self._texts:
            self._texts.remove(stripped)
            return True
        return False
