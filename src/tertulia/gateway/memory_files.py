"""Where an agent keeps what should be remembered: files that people can read and edit."""

from __future__ import annotations

import contextlib
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tertulia.errors import StoreError


class MemorySink(Protocol):
    """Takes what a flush produced."""

    def remember(self, text: str, at: datetime) -> None:
        """Keep a text that should outlive its session."""

    def note(self, text: str, at: datetime) -> None:
        """Add a line to what happened on a day."""


class FileMemory:
    """`MEMORY.md` and one dated history file per day, in a folder per agent."""

    def __init__(self, folder: str | os.PathLike[str], *, agent: str = "main") -> None:
        self.folder = Path(folder) / _file_name(agent)

    @property
    def path(self) -> Path:
        return self.folder / "MEMORY.md"

    def read(self) -> str:
        """What is remembered, or nothing."""
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return ""

    def remember(self, text: str, at: datetime) -> None:
        entry = f"\n<!-- {at.isoformat(timespec='seconds')} -->\n{_sound(text).strip()}\n"
        self._append(self.path, "# Memory\n", entry)

    def note(self, text: str, at: datetime) -> None:
        line = f"- {at:%H:%M} {' '.join(_sound(text).split())}\n"
        self._append(self.folder / f"{at:%Y-%m-%d}.md", f"# {at:%Y-%m-%d}\n\n", line)

    def _append(self, path: Path, head: str, entry: str) -> None:
        """Add to a file in one write: two who add at once lose nothing, nor what a person wrote."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                self._begin(path, head)
            with path.open("ab", buffering=0) as file:
                file.write(entry.encode())
                os.fsync(file.fileno())
        except OSError as problem:
            raise StoreError(
                f"The memory could not be written to {path}: {problem}.",
                hint="Look at the folder's rights and its free space.",
            ) from problem

    def _begin(self, path: Path, head: str) -> None:
        """Make a file with its head, unless somebody else just did."""
        handle, partial = tempfile.mkstemp(dir=self.folder, prefix=".memory-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(head.encode())
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        finally:
            os.unlink(partial)


def _file_name(agent: str) -> str:
    """Different for different agents, and never a way out of the folder."""
    return quote(agent, safe="").replace(".", "%2E") or "main"


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
