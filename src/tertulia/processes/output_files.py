"""Reads a program's output from its segment files, in bounded chunks of readable text.

Positions are bytes since the program began, so they stay valid while it writes. Any output becomes
readable text: half a character at the end is returned later with its other half, invalid bytes are
replaced, and terminal escape sequences are removed.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from typing import Final, NamedTuple

from tertulia.processes import supervisor

READABLE_LENGTH: Final = 200_000
"""The number of newest characters of a program's output that can be read."""

_MAX_CHARACTER_BYTES = 4
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"  # titles and other strings
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Every other control character is replaced by its Unicode picture: visible and harmless.
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {
    0x7F: 0x2421
}
_CONTROL_PICTURES |= dict.fromkeys((*range(128, 160), *range(55296, 57344)), 65533)


class OutputChunk(NamedTuple):
    """A part of the output. `oldest` is the first readable position, `total` the end of all."""

    text: str
    start: int
    end: int
    oldest: int
    total: int

    @property
    def is_whole(self) -> bool:
        """Return whether this is everything the program has written."""
        return self.start == 0 and self.end == self.total


class OutputFiles:
    """The output of one program; nothing of it is cached in memory.

    `is_final` is true if the program has ended: then the other half of a character that is cut at
    the end will never come.
    """

    def __init__(self, folder: str, *, is_final: bool) -> None:
        self._folder = folder
        self._is_final = is_final

    def total(self) -> int:
        """Return the number of bytes written so far."""
        segments = self._segments()
        return segments[-1][0] + segments[-1][1] if segments else 0

    def newest(self, characters: int, *, before: int | None = None) -> OutputChunk:
        """Return the last characters of the output, or the last ones before a position."""
        window, oldest, total = self._window()
        if before is not None:
            window = window[: max(0, before - oldest)]
        text = self._decode(window, is_live_end=before is None)
        last = text[-characters:] if characters else ""
        end = oldest + len(_encode(text))
        return OutputChunk(to_readable(last), end - len(_encode(last)), end, oldest, total)

    def since(self, after: int, characters: int) -> OutputChunk:
        """Return the first characters after a position that can still be read."""
        window, oldest, total = self._window()
        start = max(after, oldest)
        text = self._decode(window[start - oldest :], is_live_end=True)[:characters]
        return OutputChunk(to_readable(text), start, start + len(_encode(text)), oldest, total)

    def _window(self) -> tuple[bytes, int, int]:
        """Return the readable bytes, the position where they begin, and the position of the end."""
        total = self.total()
        data = self._read(max(0, total - READABLE_LENGTH * _MAX_CHARACTER_BYTES), total)
        start = total - len(data)
        if start:
            whole = data.lstrip(bytes(range(0x80, 0xC0))) if data[:1] else data
            # A character has at most three continuation bytes; more are not a cut character.
            data = whole if len(data) - len(whole) <= 3 else data
        text = _decode_prefix(data)[0] if len(data) > READABLE_LENGTH else ""
        if len(text) > READABLE_LENGTH:
            # The bytes of half a character at the end are not part of the text.
            data = data[len(_encode(text[:-READABLE_LENGTH])) :]
        return data, total - len(data), total

    def _decode(self, data: bytes, *, is_live_end: bool) -> str:
        """Return the text of bytes; at the live end, half a character is left for later."""
        text, rest = _decode_prefix(data)
        if rest and (self._is_final or not is_live_end):
            text += rest.decode("utf-8", "surrogateescape")
        return text

    def _read(self, start: int, end: int) -> bytes:
        """Return the part of a range that still exists; its beginning may be deleted."""
        data = b""
        for begin, size, path in self._segments():
            if begin + size <= start or begin >= end:
                continue
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, start - begin))
                    data += file.read(min(end, begin + size) - max(start, begin))
            except FileNotFoundError:
                data = b""  # the supervisor has just deleted this segment
        return data

    def _segments(self) -> list[tuple[int, int, str]]:
        """Return start position, size and path of each segment file, in order."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        segments = []
        for name in names:
            if name.startswith(supervisor.OUTPUT):
                path = os.path.join(self._folder, name)
                # The supervisor may delete the oldest segment at this moment.
                with contextlib.suppress(FileNotFoundError):
                    begin = int(name.removeprefix(supervisor.OUTPUT))
                    segments.append((begin, os.stat(path).st_size, path))
        return sorted(segments)


def to_readable(text: str) -> str:
    """Return a text without escape sequences and control characters, safe to show and store."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain.translate(_CONTROL_PICTURES)


def _decode_prefix(data: bytes) -> tuple[str, bytes]:
    """Return the text of bytes, and the bytes of half a character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(data), decoder.getstate()[0]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
