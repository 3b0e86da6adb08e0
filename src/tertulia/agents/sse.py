"""Lines and server-sent events out of bytes, wherever the bytes were cut."""

from __future__ import annotations

from typing import NamedTuple

_BOM = "\ufeff"


class SseEvent(NamedTuple):
    """One server-sent event: its name, and its data lines joined."""

    name: str
    data: str


class LineSplitter:
    """Whole lines, ended by LF, CR or both. What is cut inside a character waits for its rest."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        # Only a chunk with an end of line is looked at, so that a long line costs no more than it
        # is long. A CR at the end may be the first half of a CR LF.
        has_end = b"\n" in chunk or b"\r" in chunk or self._rest.endswith(b"\r")
        self._rest += chunk
        if not has_end:
            return []
        lines = self._rest.splitlines(keepends=True)
        is_whole = lines[-1].endswith(b"\n") if lines else True
        self._rest = bytearray() if is_whole else lines.pop()
        return [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines]

    def rest(self) -> list[str]:
        """The last line, if the end of it never came."""
        left, self._rest = self._rest.rstrip(b"\r\n"), bytearray()
        return [left.decode("utf-8", "replace")] if left else []


class SseParser:
    """Server-sent events; comments, ids and unknown fields are left out."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[str] = []
        self._is_first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        return self._events(self._lines.feed(chunk))

    def rest(self) -> list[SseEvent]:
        """The last event, if its empty line never came: some servers leave it out."""
        return self._events([*self._lines.rest(), ""])

    def _events(self, lines: list[str]) -> list[SseEvent]:
        found = []
        for line in lines:
            if self._is_first:
                self._is_first = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901 — the first line of a stream only
            if line:
                self._take(line)
            elif self._data:
                found.append(SseEvent(self._name, "\n".join(self._data)))
                self._name, self._data = "", []
            else:
                self._name = ""
        return found

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
