"""Convert nanobot's keys, which can be any text, to sources and back; find nanobot's own files.

Keys are parsed as the importer parses them, so that imported sessions continue. A key that its
source would not give back exactly is stored whole, as a chat of a type that no platform has.
Therefore two different keys never share a source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tertulia.core.source import LOCAL, Source, StoredChatType
from tertulia.transfer.importers import nanobot

CHAT_TYPE: Final = StoredChatType("nanobot")

# The separator between a chat and its thread in nanobot's keys.
_THREAD_SEPARATORS: Final = {"telegram": ":topic:", "discord": ":thread:", "slack": ":"}


def source_of(key: str) -> Source:
    """Return the source of the messages of a key."""
    source = nanobot.source_of(key)
    return source if key_of(source) == key else Source(LOCAL, key, chat_type=CHAT_TYPE)


def key_of(source: Source) -> str:
    """Return the key of a source; the inverse of `source_of`."""
    if source.chat_type == CHAT_TYPE:
        return source.chat_id
    chat = f"{source.platform}:{source.chat_id}" if source.chat_id else source.platform
    if source.thread_id is None:
        return chat
    return f"{chat}{_THREAD_SEPARATORS.get(source.platform, ':')}{source.thread_id}"


def find_session_folders(workspace: Path) -> list[Path]:
    """Return the folders with nanobot's own session files of a workspace.

    Early versions stored them in the workspace, later ones outside of it, under the workspace's id;
    the folders of later versions come first.
    """
    folders = [workspace / "sessions"]
    if name := _get_workspace_id(workspace):
        homes = (workspace.parent, Path.home() / ".nanobot")
        folders = [*dict.fromkeys(home / "sessions" / name for home in homes), *folders]
    return [folder for folder in folders if next(folder.glob("*.jsonl"), None) is not None]


def _get_workspace_id(workspace: Path) -> str | None:
    try:
        name = (workspace / ".nanobot" / "workspace-id").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if nanobot.WORKSPACE_ID.fullmatch(name) else None
