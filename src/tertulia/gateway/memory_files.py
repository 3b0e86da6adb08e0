"""The memory of an agent in files that people can read and edit."""

from __future__ import annotations

import contextlib
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tertulia.errors import StoreError
from tertulia.private_files import make_private_folder


class MemorySink(Protocol):
    """Stores what a memory flush produced."""

    def remember(self, text: str, at: datetime) -> None:
        """Store a text that should outlive its session."""

    def note(self, text: str, at: datetime) -> None:
        """Add a line to the history of a day."""


class FileMemory:
    """`MEMORY.md` and one dated history file per day, in a folder per agent."""

    def __init__(self, folder: str | os.PathLike[str], *, agent: str = "main") -> None:
        self.folder = Path(folder) / _file_name(agent)

    @property
    def path(self) -> Path:
        return self.folder / "MEMORY.md"

    def read(self) -> str:
        """Return the text of the memory, or an empty text."""
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return ""

    def remember(self, text: str, at: datetime) -> None:
        entry = f"\n<!-- {at.isoformat(timespec='seconds')} -->\n{_encodable(text).strip()}\n"
        self._append(self.path, "# Memory\n", entry)

    def note(self, text: str, at: datetime) -> None:
        line = f"- {at:%H:%M} {' '.join(_encodable(text).split())}\n"
        self._append(self.folder / f"{at:%Y-%m-%d}.md", f"# {at:%Y-%m-%d}\n\n", line)

    def _append(self, path: Path, heading: str, entry: str) -> None:
        """Append in one write, so that concurrent appends and edits by people are not lost."""
        try:
            make_private_folder(self.folder)
            if not path.exists():
                self._create(path, heading)
            with path.open("ab", buffering=0) as file:
                file.write(entry.encode())
                os.fsync(file.fileno())
        except OSError as problem:
            raise StoreError(
                f"The memory could not be written to {path}: {problem}.",
                hint="Check the permissions and the free space of the folder.",
            ) from problem

    def _create(self, path: Path, heading: str) -> None:
        """Create a file with its heading, unless another process has just created it."""
        handle, partial = tempfile.mkstemp(dir=self.folder, prefix=".memory-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(heading.encode())
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        finally:
            os.unlink(partial)


def _file_name(agent: str) -> str:
    """Return a file name that is unique for the agent and cannot leave the folder."""
    return quote(agent, safe="").replace(".", "%2E") or "main"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
