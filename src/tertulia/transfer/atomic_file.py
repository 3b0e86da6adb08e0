"""New files that are whole or not there at all, and for their owner only: conversations are."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator

from tertulia.errors import ConfigError, StoreError

Progress = Callable[[int, int], None]


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[str]:
    """Where to write what shall stand at `path`; it gets there when all of it is written."""
    target = os.fspath(path)
    if os.path.lexists(target) and not force:
        raise ConfigError(
            f"{target} exists already.", hint="Name a new file, or give --force.", field="path"
        )
    partial = ""
    try:
        # A name of its own, so that no file of anybody else's is written over on the way.
        folder = os.path.dirname(os.path.abspath(target))
        handle, partial = tempfile.mkstemp(prefix=".tertulia-", dir=folder)
        os.close(handle)
        yield partial
        os.replace(partial, target)
    except OSError as problem:
        raise StoreError(
            f"{target} could not be written: {problem.strerror or problem}.",
            hint="Look whether its folder exists and has space.",
            where=target,
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def new_folder(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Make a folder for its owner only, or take one with nothing in it."""
    target = os.fspath(path)
    try:
        os.makedirs(target, mode=0o700, exist_ok=True)
        is_used = bool(os.listdir(target))
    except OSError as problem:
        raise StoreError(
            f"The folder {target} cannot be made: {problem.strerror or problem}.",
            hint="Name another one.",
            where=target,
        ) from problem
    if is_used and not force:
        raise ConfigError(
            f"{target} is not empty.",
            hint="Name a new folder, or give --force to replace files of the same name.",
            field="path",
        )
