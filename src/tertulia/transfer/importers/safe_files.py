"""Read files from an untrusted folder.

No link is followed, and nothing outside the folder is ever opened. Lines are read one at a time; a
damaged line is reported with its file and number, and the readable part of it is used.
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
from tertulia.transfer.importers.report import UNREADABLE, Findings

# A line is held in memory; pictures inside messages make lines of 30 MB.
LONGEST_LINE = 256 * 1024 * 1024
_BUFFER = 1 << 20
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
# The start of a record inside a line, after one that was never finished.
_RECORD_START = re.compile(rb'\{"(?:role|_type|type|content)"')
# At most this many starts in one line are tried: each try parses the rest of the line.
_MOST_STARTS = 64

_decode = msgspec.json.Decoder().decode


class ReadProgress:
    """The number of bytes read so far, and the total."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0


class Line(NamedTuple):
    """A line that holds a JSON value."""

    number: int
    value: Any


class SafeFolder:
    """A folder of another program; it is read and never changed."""

    def __init__(self, path: str | os.PathLike[str], findings: Findings) -> None:
        name = os.fspath(path)
        self.root = os.path.realpath(name)
        self.findings = findings
        self.progress = ReadProgress()
        if not os.path.isdir(self.root):
            raise NotFound(
                f"There is no folder {name}.", hint="Give the data folder of the other program."
            )

    def files(self, under: str, suffix: str, *, deep: bool = False) -> list[str]:
        """Return the files with a suffix, sorted; links are reported and left out."""
        names: list[str] = []
        if under and not self.is_folder(under):
            return names
        for entry in self._entries(under):
            name = f"{under}/{entry.name}" if under else entry.name
            if entry.is_symlink():
                self._report_link(name)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(suffix):
                if deep:
                    names += self.files(name, suffix, deep=True)
            elif entry.name.endswith(suffix):
                names.append(name)
        return names

    def folders(self, under: str) -> list[str]:
        """Return the folders directly below a folder."""
        if not self.is_folder(under):
            return []
        return [
            f"{under}/{entry.name}" if under else entry.name
            for entry in self._entries(under)
            if entry.is_dir(follow_symlinks=False)
        ]

    def is_folder(self, name: str) -> bool:
        """Return whether there is such a folder, reached without following a link."""
        return self._has_mode(name, stat.S_ISDIR)

    def is_file(self, name: str) -> bool:
        """Return whether there is such a file, reached without following a link."""
        return self._has_mode(name, stat.S_ISREG)

    def exists(self, name: str) -> bool:
        """Return whether anything of that name exists, a broken link included."""
        return os.path.lexists(self.path(name))

    def refuses(self, name: str) -> bool:
        """Return whether that name exists but must not be read; if so, report the reason."""
        path = self.path(name)
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return False
        if stat.S_ISLNK(mode) or not self._is_within(name):
            self._report_link(name)
            return True
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a special file"
            self.findings.add(name, None, "not_a_file", f"this is {kind}, not a regular file")
            return True
        return False

    def path(self, name: str) -> str:
        """Return the absolute path of a name."""
        return os.path.join(self.root, *name.split("/")) if name else self.root

    def size(self, name: str) -> int:
        """Return the size in bytes, or 0 if it cannot be read."""
        try:
            return os.lstat(self.path(name)).st_size
        except OSError:
            return 0

    def changed_at(self, name: str) -> int:
        """Return the time of the last write in microseconds, for files that record no time."""
        try:
            return os.lstat(self.path(name)).st_mtime_ns // 1000
        except OSError:
            return 0

    def open(self, name: str) -> IO[bytes] | None:
        """Open a file for reading; return None (and report a problem) if that is not possible."""
        if self.refuses(name):
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            return os.fdopen(os.open(self.path(name), flags), "rb", buffering=_BUFFER)
        except OSError as problem:
            self.findings.add(name, None, UNREADABLE, f"cannot be opened: {problem.strerror}")
            return None

    def is_unreadable(self, name: str) -> bool:
        """Return whether a regular file cannot be opened now; if so, report the reason.

        Then nothing may be stored for it: a later import reads it.
        """
        if not self.is_file(name):
            return False
        file = self.open(name)
        if file is not None:
            file.close()
        return file is None

    def read(self, name: str, *, limit: int = -1) -> bytes | None:
        """Return the content of a small file, or None (and report a problem).

        With a limit, at most that many bytes from its beginning.
        """
        file = self.open(name)
        if file is None:
            return None
        try:
            with file:
                return file.read(limit)
        except OSError as problem:
            self.findings.add(name, None, UNREADABLE, f"cannot be read: {problem.strerror}")
            return None

    def has_text(self, name: str) -> bool:
        """Return whether a file that can be read has anything but white space."""
        file = self.open(name)
        if file is None:
            return False
        with file:
            try:
                return any(not chunk.isspace() for chunk in iter(partial(file.read, _BUFFER), b""))
            except OSError:
                return False

    def lines(self, name: str, *, quietly: bool = False) -> Iterator[Line]:
        """Yield the JSON values in a file, line by line; damage is reported unless `quietly`."""
        file = self.open(name)
        if file is None:
            return
        findings = Findings() if quietly else self.findings
        with file:
            try:
                yield from self._lines(file, name, findings, None if quietly else self.progress)
            except OSError as problem:
                findings.add(name, None, UNREADABLE, f"reading stopped: {problem.strerror}")

    def _lines(
        self, file: IO[bytes], name: str, findings: Findings, progress: ReadProgress | None
    ) -> Iterator[Line]:
        is_empty = True
        for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            line = raw
            if progress is not None:
                progress.done += len(line)
            if number == 1 and line.startswith(_BOM):
                findings.add(name, 1, "bom", "the file begins with a byte order mark")
                line = line[3:]
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                _skip_line(file)
                findings.add(
                    name, number, "line_too_long", f"the line has more than {LONGEST_LINE} bytes"
                )
                continue
            try:
                value = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if line and not line.isspace():
                    is_empty = False
                    yield from _recover_line(line, name, number, findings)
                continue
            is_empty = False
            yield Line(number, value)
        if is_empty:
            findings.add(name, None, "empty_file", "the file is empty")

    def _entries(self, under: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path(under)) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as problem:
            self.findings.add(under or ".", None, UNREADABLE, f"{problem.strerror}")
            return []

    def _report_link(self, name: str) -> None:
        self.findings.add(name, None, "symlink", "a symbolic link; it is not followed")

    def _has_mode(self, name: str, is_kind: Callable[[int], bool]) -> bool:
        try:
            return is_kind(os.lstat(self.path(name)).st_mode) and self._is_within(name)
        except (OSError, ValueError):
            return False

    def _is_within(self, name: str) -> bool:
        """Return whether no part of the path is a link."""
        return os.path.realpath(self.path(name)) == self.path(name)


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(_BUFFER)) and not rest.endswith(b"\n"):
        pass


def _recover_line(raw: bytes, name: str, number: int, findings: Findings) -> Iterator[Line]:
    """Yield what can be read of a line that is not valid JSON in UTF-8."""
    try:
        text, is_text = raw.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_text = raw.decode("utf-8", "replace"), False
    value = parse_json(text)
    if value is _INVALID:
        yield from _recover_record(raw, name, number, findings)
        return
    if not is_text:
        findings.add(name, number, "invalid_utf8", "invalid UTF-8 was replaced by U+FFFD")
    elif _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        findings.add(name, number, "lone_surrogate", "a lone surrogate was kept as it is")
    yield Line(number, value)


def _recover_record(raw: bytes, name: str, number: int, findings: Findings) -> Iterator[Line]:
    """Yield a whole record that begins inside a broken line, if there is one."""
    is_cut = not raw.endswith(b"\n")
    for start in [match.start() for match in _RECORD_START.finditer(raw, 1)][:_MOST_STARTS]:
        value = parse_json(raw[start:].decode("utf-8", "replace"))
        if isinstance(value, dict):
            detail = f"not JSON up to byte {start}; the record after it was read"
            findings.add(name, number, "garbage_line", detail)
            yield Line(number, value)
            return
    kind = "truncated_line" if is_cut else "garbage_line"
    findings.add(name, number, kind, f"not JSON: {raw[:80]!r}")


class _Invalid:
    """The result for text that is not JSON; None is the result for `null`."""


_INVALID = _Invalid()


def parse_json(text: str) -> Any:
    """Return the JSON value, by Python's lenient reader; see `is_invalid` for text that is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _INVALID


def is_invalid(value: object) -> bool:
    """Return whether `parse_json` found no JSON value."""
    return value is _INVALID
