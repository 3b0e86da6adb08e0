"""A disk that can be watched and can fail: SQLite's own, with a look at every operation.

with Disk() as disk:                     # every file that SQLite opens is on it
    disk.before = lambda step: …         # sees what is about to be done, and may raise
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
    """One operation: write, sync, truncate, delete or read; on the file of that path."""

    kind: str
    path: str


class Failed(apsw.IOError):
    """The disk says no."""


def fail(step: Step) -> None:
    """What `before` can be set to."""
    raise Failed(f"no {step.kind} of {os.path.basename(step.path)}")


class Disk(apsw.VFS):
    """The default place for SQLite's files while it is in use."""

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

    def done(self, step: Step, operation: Callable[[], Any]) -> Any:
        with self._lock:
            self.before(step)
            result = operation()
            self.after(step)
            return result

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.done(Step("delete", filename), lambda: super(Disk, self).xDelete(filename, syncdir))


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__(disk.base, name, flags)

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError as problem:
            # A file that is only read cannot be locked for writing. SQLite tries, and minds it not.
            raise apsw.BusyError from problem

    def xRead(self, amount: int, offset: int) -> bytes:
        read = super().xRead
        return self.disk.done(  # type: ignore[no-any-return]
            Step("read", self.path), lambda: read(amount, offset)
        )

    def xWrite(self, data: Any, offset: int) -> None:
        write = super().xWrite
        self.disk.done(Step("write", self.path), lambda: write(data, offset))

    def xTruncate(self, newsize: int) -> None:
        truncate = super().xTruncate
        self.disk.done(Step("truncate", self.path), lambda: truncate(newsize))

    def xSync(self, flags: int) -> None:
        sync = super().xSync
        self.disk.done(Step("sync", self.path), lambda: sync(flags))
