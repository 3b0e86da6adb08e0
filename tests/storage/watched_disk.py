"""A SQLite VFS whose operations can be observed and can fail.

with Disk() as disk:                     # every file that SQLite opens is on it
    disk.before = lambda step: …         # called before each operation, and may raise
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import apsw

_NUMBERS = itertools.count()


class Step(NamedTuple):
    """One operation (write, sync, truncate, delete or read) on the file at `path`."""

    kind: str
    path: str


class Failed(apsw.IOError):
    """The error of a disk operation that a test lets fail."""


def fail(step: Step) -> None:
    """Fail the operation; a value for `Disk.before`."""
    raise Failed(f"no {step.kind} of {os.path.basename(step.path)}")


class Disk(apsw.VFS):
    """The default VFS of SQLite while it is in use."""

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        self.before: Callable[[Step], object] = lambda step: None
        self.after: Callable[[Step], object] = lambda step: None
        self._lock = threading.RLock()
        super().__init__(f"watched{next(_NUMBERS)}", self.base, makedefault=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.before = self.after = lambda step: None
        self.unregister()

    def perform(self, step: Step, operation: Callable[[], Any]) -> Any:
        with self._lock:
            self.before(step)
            result = operation()
            self.after(step)
            return result

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.perform(Step("delete", filename), lambda: super(Disk, self).xDelete(filename, syncdir))


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__(disk.base, name, flags)

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError as problem:
            # A read-only file cannot be locked for writing. SQLite tries, and ignores the failure.
            raise apsw.BusyError from problem

    def xRead(self, amount: int, offset: int) -> bytes:
        read = super().xRead
        return self.disk.perform(  # type: ignore[no-any-return]
            Step("read", self.path), lambda: read(amount, offset)
        )

    def xWrite(self, data: Any, offset: int) -> None:
        write = super().xWrite
        self.disk.perform(Step("write", self.path), lambda: write(data, offset))

    def xTruncate(self, newsize: int) -> None:
        truncate = super().xTruncate
        self.disk.perform(Step("truncate", self.path), lambda: truncate(newsize))

    def xSync(self, flags: int) -> None:
        sync = super().xSync
        self.disk.perform(Step("sync", self.path), lambda: sync(flags))
