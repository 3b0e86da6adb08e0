"""Files and folders that only their owner may read: they hold what people said."""

from __future__ import annotations

import os
import secrets


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


def read_or_make_secret(path: str | os.PathLike[str]) -> str:
    """Return the secret in a file; make both if there is none. Raise OSError.

    The file appears with its content, or not at all: two programs that begin at the same moment
    read the same secret.
    """
    make_private_folder(os.path.dirname(os.path.abspath(path)))
    while True:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                return file.read().strip()
        except FileNotFoundError:
            written = f"{os.fspath(path)}.{os.getpid()}"
            with os.fdopen(open_private(written, os.O_WRONLY | os.O_TRUNC), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(written, path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                os.replace(written, path)
                continue
            os.unlink(written)
