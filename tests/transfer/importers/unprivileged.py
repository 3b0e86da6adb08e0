"""Run code that obeys the modes of files, also as root."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def file_modes_obeyed() -> Iterator[None]:
    """Take from this thread, for a block, the right of root to read every file."""
    if os.geteuid() != 0:
        yield
        return
    library = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Sets * 2)()

    def call(name: str) -> None:
        if getattr(library, name)(ctypes.byref(header), sets) != 0:
            raise OSError(ctypes.get_errno(), name)

    call("capget")
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDES
    call("capset")
    try:
        yield
    finally:
        sets[0].effective = before
        call("capset")
