"""nanobot's keys, which are any text, as sources and back.

`platform:chat` is a direct message there. Every other key is kept whole, as a chat of a type that
no platform has, so that no two keys ever meet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tertulia.core.source import LOCAL, Source

CHAT_TYPE: Final = "nanobot"

_ID = re.compile("[0-9a-f]{32}")


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


def left_behind(workspace: Path) -> list[Path]:
    """The folders that hold that system's own files of a workspace, those of later versions first.

    Early versions kept them in the workspace, later ones outside of it, under the workspace's id.
    """
    found = [workspace / "sessions"]
    if name := _id_of(workspace):
        homes = (workspace.parent, Path.home() / ".nanobot")
        found = [*dict.fromkeys(home / "sessions" / name for home in homes), *found]
    return [folder for folder in found if next(folder.glob("*.jsonl"), None) is not None]


def _id_of(workspace: Path) -> str | None:
    try:
        name = (workspace / ".nanobot" / "workspace-id").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if _ID.fullmatch(name) else None
