"""Write new files atomically, readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from tertulia.errors import ConfigError, StoreError
from tertulia.private_files import make_private_folder


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[str]:
    """Yield a temporary path to write to; rename it to `path` when the block ends without error.

    Raise `ConfigError` if the file exists and `force` is not set, and `StoreError` if it cannot be
    written.
    """
    target = os.fspath(path)
    if os.path.lexists(target) and not force:
        raise ConfigError(
            f"{target} exists already.",
            hint="Name a new file, or give --force.",
            field="path",
        )
    partial = ""  # set once the temporary file exists
    try:
        # A unique name, so that two writers of the same file do not share a partial file.
        folder = os.path.dirname(os.path.abspath(target))
        handle, partial = tempfile.mkstemp(prefix=".tertulia-", dir=folder)
        os.close(handle)
        yield partial
        os.replace(partial, target)
    except OSError as problem:
        raise StoreError(
            f"{target} could not be written: {problem.strerror or problem}.",
            hint="Check that its folder exists and that the disk has space.",
            where=target,
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def new_folder(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Create a folder that only its owner can read, or accept an empty one.

    Raise `ConfigError` if it has files and `force` is not set.
    """
    target = os.fspath(path)
    try:
        make_private_folder(target)
        is_used = bool(os.listdir(target))
    except OSError as problem:
        raise StoreError(
            f"The folder {target} cannot be created: {problem.strerror or problem}.",
            hint="Give the name of another folder.",
            where=target,
        ) from problem
    if is_used and not force:
        raise ConfigError(
            f"{target} is not empty.",
            hint="Name a new folder, or give --force to replace files of the same name.",
            field="path",
        )
