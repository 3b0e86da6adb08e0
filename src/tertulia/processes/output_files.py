"""A program's output, read from its files: never all of it, and always something to read.

Positions are bytes since the program began, so they stay right while it goes on writing. What is
shown is text, whatever the program wrote: half a character at the edge waits for its other half,
bytes that are no text are marked, and what moves a terminal's cursor is left out.
"""

from __future__ import annotations

import codecs
import os
import re
from typing import Final, NamedTuple

from tertulia.processes import supervisor

ROLLING: Final = 200_000
"""How many characters of a program's output can be read: the newest."""

_WIDEST = 4  # bytes of a character
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"  # titles and such
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Every other control character as its picture, so that it is seen and harms nothing.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys((*range(128, 160), *range(55296, 57344)), 65533)


class OutputChunk(NamedTuple):
    """Some output. `oldest` is where what can still be read begins, `total` where it ends."""

    text: str
    start: int
    end: int
    oldest: int
    total: int

    @property
    def is_whole(self) -> bool:
        """Whether this is everything the program has written."""
        return self.start == 0 and self.end == self.total


class OutputFiles:
    """The output of one program. Nothing of it is kept in memory."""

    def __init__(self, folder: str, *, is_final: bool) -> None:
        self._folder = folder
        self._is_final = is_final

    def total(self) -> int:
        """How many bytes were written so far."""
        segments = self._segments()
        return segments[-1][0] + segments[-1][1] if segments else 0

    def newest(self, characters: int, *, before: int | None = None) -> OutputChunk:
        """The last characters, or the last of those before a position."""
        window, oldest, total = self._window()
        if before is not None:
            window = window[: max(0, before - oldest)]
        text = self._decoded(window, is_cut=before is None)
        shown = text[-characters:] if characters else ""
        end = oldest + len(_encoded(text))
        return OutputChunk(readable(shown), end - len(_encoded(shown)), end, oldest, total)

    def since(self, after: int, characters: int) -> OutputChunk:
        """The first characters that came after a position, as far as they can still be read."""
        window, oldest, total = self._window()
        start = max(after, oldest)
        text = self._decoded(window[start - oldest :], is_cut=True)[:characters]
        return OutputChunk(readable(text), start, start + len(_encoded(text)), oldest, total)

    def _window(self) -> tuple[bytes, int, int]:
        """The bytes of the newest characters that may be read, where they begin, and the end."""
        total = self.total()
        data = self._read(max(0, total - ROLLING * _WIDEST), total)
        start = total - len(data)
        if start:
            whole = data.lstrip(bytes(range(0x80, 0xC0))) if data[:1] else data
            # No character has more than three bytes that go on with another.
            data = whole if len(data) - len(whole) <= 3 else data
        text = _decode(data)[0] if len(data) > ROLLING else ""
        if len(text) > ROLLING:
            # Bytes of half a character at the end are no part of the text.
            data = data[len(_encoded(text[:-ROLLING])) :]
        return data, total - len(data), total

    def _decoded(self, data: bytes, *, is_cut: bool) -> str:
        text, rest = _decode(data)
        if rest and (self._is_final or not is_cut):
            text += rest.decode("utf-8", "surrogateescape")
        return text

    def _read(self, start: int, end: int) -> bytes:
        """What is still there of a range; the beginning may be gone."""
        found = b""
        for begins, size, path in self._segments():
            if begins + size <= start or begins >= end:
                continue
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, start - begins))
                    found += file.read(min(end, begins + size) - max(start, begins))
            except FileNotFoundError:
                found = b""  # the keeper has just dropped it
        return found

    def _segments(self) -> list[tuple[int, int, str]]:
        """Where each file begins, how long it is, and its path, in order."""
        found = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith(supervisor.OUTPUT):
                        begins = int(entry.name.removeprefix(supervisor.OUTPUT))
                        found.append((begins, os.stat(entry.path).st_size, entry.path))
        except FileNotFoundError:
            return sorted(found)
        return sorted(found)


def readable(text: str) -> str:
    """A text that can be shown anywhere, and stored."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain.translate(_PICTURES)


def _decode(data: bytes) -> tuple[str, bytes]:
    """The text of bytes, and the bytes of half a character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(data), decoder.getstate()[0]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
