"""Where an agent keeps what should be remembered: files that people can read and edit."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Protocol

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
        self._replace(self.path, (self.read() or "# Memory\n") + entry)

    def note(self, text: str, at: datetime) -> None:
        path = self.folder / f"{at:%Y-%m-%d}.md"
        before = path.read_text("utf-8") if path.exists() else f"# {at:%Y-%m-%d}\n\n"
        self._replace(path, before + f"- {at:%H:%M} {' '.join(_sound(text).split())}\n")

    def _replace(self, path: Path, text: str) -> None:
        """Write beside and rename: whoever reads sees the old text or the new one, never half."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=self.folder, prefix=".memory-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as problem:
            raise StoreError(
                f"The memory could not be written to {path}: {problem}.",
                hint="Look at the folder's rights and its free space.",
            ) from problem


def _file_name(agent: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in agent) or "main"


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
