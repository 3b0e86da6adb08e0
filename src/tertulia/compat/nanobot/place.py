"""nanobot's keys, which are any text, as sources and back.

`platform:chat` is a direct message there. Every other key is kept whole, as a chat of a type that
no platform has, so that no two keys ever meet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tertulia.core.source import LOCAL, Source

CHAT_TYPE: Final = "nanobot"


def source_of(key: str) -> Source:
    """Where the messages of a key come from."""
    platform, colon, chat = key.partition(":")
    if platform and colon and chat:
        return Source(platform, chat)
    return Source(LOCAL, key, chat_type=CHAT_TYPE)


def key_of(source: Source) -> str:
    """The inverse."""
    if source.chat_type == CHAT_TYPE:
        return source.chat_id
    return f"{source.platform}:{source.chat_id}"


def left_behind(workspace: Path) -> Path | None:
    """The folder to import that system's own files of a workspace from; None if it left none.

    Older versions kept them in the workspace, later ones beside it, under the workspace's id.
    """
    if (workspace / ".nanobot" / "workspace-id").is_file() and _has_lines(
        workspace.parent / "sessions", "*/*.jsonl"
    ):
        return workspace.parent
    return workspace if _has_lines(workspace / "sessions", "*.jsonl") else None


def _has_lines(folder: Path, pattern: str) -> bool:
    return next(folder.glob(pattern), None) is not None
