"""A screen with a scrollback that the live view writes to, read as a person would see it.

It behaves as most terminals do when it gets narrower: it breaks the rows that no longer fit.
"""

from __future__ import annotations

import pyte
from prompt_toolkit.data_structures import Size

LINES = 40


class ReadScreen:
    """A terminal with a scrollback, which is written to as a file."""

    encoding = "utf-8"

    def __init__(self, columns: int) -> None:
        self._open(columns)

    def _open(self, columns: int) -> None:
        self.columns = columns
        self._screen = pyte.HistoryScreen(columns, LINES, history=10_000, ratio=0.5)
        self._screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self._screen)

    def write(self, data: str) -> None:
        self._stream.feed(data)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    @property
    def size(self) -> Size:
        return Size(rows=LINES, columns=self.columns)

    @property
    def rows(self) -> list[str]:
        """Return the scrollback and the screen, up to the cursor."""
        above = [
            "".join(row[x].data for x in range(self.columns)).rstrip()
            for row in self._screen.history.top
        ]
        shown = self._screen.display[: self._screen.cursor.y + 1]
        return [*above, *(row.rstrip() for row in shown)]

    def shows(self, word: str) -> bool:
        """Return whether a word stands on the screen, not far above the cursor."""
        y, buffer = self._screen.cursor.y, self._screen.buffer
        rows = range(y, max(y - 15, -1), -1)
        return any(word in "".join([cell.data for cell in buffer[row].values()]) for row in rows)

    def resize(self, columns: int) -> None:
        """Change the width, and break the rows that are too wide now."""
        rows, cursor_x = self.rows, self._screen.cursor.x
        self._open(columns)
        pieces = [
            row[start : start + columns]
            for row in rows
            for start in range(0, max(len(row), 1), columns)
        ]
        self.write("\r\n".join(pieces))
        self._screen.cursor_to_column(cursor_x + 1)
