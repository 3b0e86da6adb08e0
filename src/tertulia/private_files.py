"""Files and folders that only their owner may read: they hold what people said."""

from __future__ import annotations

import os


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder with mode 0700, and so each missing folder above it.

    `os.makedirs` gives its mode to the last one only. Folders that exist stay as they are. Raise
    OSError if one cannot be created.
    """
    folder = os.path.abspath(path)
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for name in reversed(missing):
        try:
            os.mkdir(name, 0o700)
        except FileExistsError:
            if not os.path.isdir(name):
                raise


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file and return its descriptor; a new one gets mode 0600. Raise OSError."""
    return os.open(path, flags | os.O_CREAT, 0o600)
