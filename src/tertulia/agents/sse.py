"""Parses lines and server-sent events from byte chunks that may be cut anywhere."""

from __future__ import annotations

from typing import NamedTuple

_BOM = "\ufeff"


class SseEvent(NamedTuple):
    """One server-sent event: its name, and its data lines joined by line breaks."""

    name: str
    data: str


class LineSplitter:
    """Splits byte chunks into complete lines, which end with LF, CR or CR LF.

    Bytes after the last line end are buffered, so a character that is cut in two is completed by
    the next chunk.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that this chunk completes."""
        # Split only when a chunk has a line end, so that the cost of a long line is linear in its
        # length. A CR at the end of the buffer may be the first half of a CR LF.
        has_end = b"\n" in chunk or b"\r" in chunk or self._rest.endswith(b"\r")
        self._rest += chunk
        if not has_end:
            return []
        lines = self._rest.splitlines(keepends=True)
        is_whole = lines[-1].endswith(b"\n") if lines else True
        self._rest = bytearray() if is_whole else lines.pop()
        return [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines]

    def rest(self) -> list[str]:
        """Return the buffered last line, which has no line end, or an empty list."""
        left, self._rest = self._rest.rstrip(b"\r\n"), bytearray()
        return [left.decode("utf-8", "replace")] if left else []


class SseParser:
    """Parses server-sent events; comments, ids and unknown fields are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[str] = []
        self._is_first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes."""
        return self._parse_lines(self._lines.feed(chunk))

    def rest(self) -> list[SseEvent]:
        """Return the last event if the empty line after it is missing: some servers omit it."""
        return self._parse_lines([*self._lines.rest(), ""])

    def _parse_lines(self, lines: list[str]) -> list[SseEvent]:
        events = []
        for line in lines:
            if self._is_first:
                self._is_first = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901 — the first line of a stream only
            if line:
                self._parse_field(line)
            elif self._data:
                events.append(SseEvent(self._name, "\n".join(self._data)))
                self._name, self._data = "", []
            else:
                self._name = ""
        return events

    def _parse_field(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
