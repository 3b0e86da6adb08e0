"""nanobot's keys, which are any text, as sources and back; and where that system left its files.

Keys are read as the importer reads them, so that what was imported goes on. A key that could not be
told from another one afterwards is kept whole, as a chat of a type that no platform has. So no two
keys ever meet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tertulia.core.source import LOCAL, Source
from tertulia.transfer.importers import nanobot

CHAT_TYPE: Final = "nanobot"

# What stands between a chat and its thread in that system's keys.
_BETWEEN: Final = {"telegram": ":topic:", "discord": ":thread:", "slack": ":"}
_ID = re.compile("[0-9a-f]{32}")


def source_of(key: str) -> Source:
    """Where the messages of a key come from."""
    found = nanobot.source_of(key)
    return found if key_of(found) == key else Source(LOCAL, key, chat_type=CHAT_TYPE)


def key_of(source: Source) -> str:
    """The inverse."""
    if source.chat_type == CHAT_TYPE:
        return source.chat_id
    chat = f"{source.platform}:{source.chat_id}" if source.chat_id else source.platform
    if source.thread_id is None:
        return chat
    return f"{chat}{_BETWEEN.get(source.platform, ':')}{source.thread_id}"


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
