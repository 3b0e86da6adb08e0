"""Reading files that nobody vouches for.

A folder is read without following a link, and nothing outside of it is ever opened. Lines are read
one at a time; one that is damaged is told with its place, and what can still be read of it is.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

import msgspec

from tertulia.errors import NotFound
from tertulia.transfer.importers.report import Findings

# A line is held in memory. Pictures within messages make some of 30 MB.
LONGEST_LINE = 256 * 1024 * 1024
_BUFFER = 1 << 20
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Where a record begins in the middle of a line, behind one that was never finished.
_RECORD = re.compile(rb'\{"(?:role|_type|type|content)"')
_TRIES = 64

_decode = msgspec.json.Decoder().decode


class ReadProgress:
    """How many bytes of how many are read."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0


class Line(NamedTuple):
    """A line that holds a JSON value."""

    number: int
    value: Any


class SafeFolder:
    """A folder of another program, which is read and never changed."""

    def __init__(self, path: str | os.PathLike[str], findings: Findings) -> None:
        given = os.fspath(path)
        self.root = os.path.realpath(given)
        self.findings = findings
        self.meter = ReadProgress()
        if not os.path.isdir(self.root):
            raise NotFound(
                f"There is no folder {given}.", hint="Name the folder that the other program uses."
            )

    def files(self, under: str, suffix: str, *, deep: bool = False) -> list[str]:
        """Files whose names end so, sorted; links are refused and told, and so are odd things."""
        found: list[str] = []
        if under and not self.is_folder(under):
            return found
        for entry in self._entries(under):
            name = f"{under}/{entry.name}" if under else entry.name
            if entry.is_symlink():
                self._refuse(name)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(suffix):
                if deep:
                    found += self.files(name, suffix, deep=True)
            elif entry.name.endswith(suffix):
                found.append(name)
        return found

    def folders(self, under: str) -> list[str]:
        """The folders within one."""
        if not self.is_folder(under):
            return []
        return [
            f"{under}/{entry.name}" if under else entry.name
            for entry in self._entries(under)
            if entry.is_dir(follow_symlinks=False)
        ]

    def is_folder(self, name: str) -> bool:
        """Whether there is such a folder, reached without a link."""
        return self._mode(name, stat.S_ISDIR)

    def is_file(self, name: str) -> bool:
        """Whether there is such a file, reached without a link."""
        return self._mode(name, stat.S_ISREG)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def refuses(self, name: str) -> bool:
        """Whether there is something of that name which is not read; it is told why."""
        path = self.path(name)
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return False
        if stat.S_ISLNK(mode) or not self._is_within(name):
            self._refuse(name)
            return True
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
            self.findings.add(name, None, "not_a_file", f"this is {kind}, not a file")
            return True
        return False

    def path(self, name: str) -> str:
        return os.path.join(self.root, *name.split("/")) if name else self.root

    def size(self, name: str) -> int:
        try:
            return os.lstat(self.path(name)).st_size
        except OSError:
            return 0

    def changed_at(self, name: str) -> int:
        """When something was last written, for what tells no time itself."""
        try:
            return os.lstat(self.path(name)).st_mtime_ns // 1000
        except OSError:
            return 0

    def open(self, name: str) -> IO[bytes] | None:
        """The file for reading; None, and told, where that is not possible."""
        if self.refuses(name):
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            return os.fdopen(os.open(self.path(name), flags), "rb", buffering=_BUFFER)
        except OSError as problem:
            self.findings.add(name, None, "unreadable", f"it cannot be opened: {problem.strerror}")
            return None

    def read(self, name: str) -> bytes | None:
        """All of a small file."""
        file = self.open(name)
        if file is None:
            return None
        try:
            with file:
                return file.read()
        except OSError as problem:
            self.findings.add(name, None, "unreadable", f"it cannot be read: {problem.strerror}")
            return None

    def lines(self, name: str, *, quietly: bool = False) -> Iterator[Line]:
        """The JSON values in a file, line by line; damage is told unless `quietly`."""
        file = self.open(name)
        if file is None:
            return
        findings = Findings() if quietly else self.findings
        with file:
            try:
                yield from self._lines(file, name, findings, None if quietly else self.meter)
            except OSError as problem:
                findings.add(name, None, "unreadable", f"reading stopped: {problem.strerror}")

    def _lines(
        self, file: IO[bytes], name: str, findings: Findings, meter: ReadProgress | None
    ) -> Iterator[Line]:
        is_empty = True
        for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            line = raw
            if meter is not None:
                meter.done += len(line)
            if number == 1 and line.startswith(_BOM):
                findings.add(name, 1, "bom", "the file begins with a byte order mark")
                line = line[3:]
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                _skip_line(file)
                findings.add(name, number, "line_too_long", f"it is longer than {LONGEST_LINE}")
                continue
            try:
                value = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if line and not line.isspace():
                    is_empty = False
                    yield from _recovered(line, name, number, findings)
                continue
            is_empty = False
            yield Line(number, value)
        if is_empty:
            findings.add(name, None, "empty_file", "there is nothing in it")

    def _entries(self, under: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path(under)) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as problem:
            self.findings.add(under or ".", None, "unreadable", f"{problem.strerror}")
            return []

    def _refuse(self, name: str) -> None:
        self.findings.add(name, None, "symlink", "a link; it is not followed")

    def _mode(self, name: str, is_kind: Callable[[int], bool]) -> bool:
        try:
            return is_kind(os.lstat(self.path(name)).st_mode) and self._is_within(name)
        except (OSError, ValueError):
            return False

    def _is_within(self, name: str) -> bool:
        """No part of the way is a link."""
        return os.path.realpath(self.path(name)) == self.path(name)


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(_BUFFER)) and not rest.endswith(b"\n"):
        pass


def _recovered(raw: bytes, name: str, number: int, findings: Findings) -> Iterator[Line]:
    """What can be read of a line that is not JSON in UTF-8 as it should be."""
    try:
        text, is_text = raw.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_text = raw.decode("utf-8", "replace"), False
    value = parsed(text)
    if value is _NOTHING:
        yield from _behind(raw, name, number, findings)
        return
    if not is_text:
        findings.add(name, number, "invalid_utf8", "bytes that are no text were replaced by U+FFFD")
    elif _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        findings.add(name, number, "lone_surrogate", "half of a surrogate pair was kept as it is")
    yield Line(number, value)


def _behind(raw: bytes, name: str, number: int, findings: Findings) -> Iterator[Line]:
    """A record that begins within a broken line, if there is one."""
    is_cut = not raw.endswith(b"\n")
    for start in [found.start() for found in _RECORD.finditer(raw, 1)][:_TRIES]:
        value = parsed(raw[start:].decode("utf-8", "replace"))
        if isinstance(value, dict):
            told = f"not JSON up to byte {start}; the record behind it was read"
            findings.add(name, number, "garbage_line", told)
            yield Line(number, value)
            return
    kind = "truncated_line" if is_cut else "garbage_line"
    findings.add(name, number, kind, f"not JSON: {raw[:80]!r}")


class _Nothing:
    """The answer where there is no value; `null` is one."""


_NOTHING = _Nothing()


def parsed(text: str) -> Any:
    """The JSON value, with what only Python's own reader takes; `_NOTHING` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NOTHING


def is_nothing(value: object) -> bool:
    return value is _NOTHING
