"""nanobot's keys as sources and back, and the folders of its own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.compat.nanobot.session_keys import find_session_folders, key_of, source_of

WORKSPACE_ID = "0123456789abcdef" * 2


@given(st.text(st.characters(exclude_categories=())))
def test_key_round_trips_through_its_source(key: str) -> None:
    assert key_of(source_of(key)) == key


@pytest.mark.parametrize(
    ("key", "chat", "thread"),
    [
        ("telegram:42", "42", None),
        ("telegram:-1:topic:2", "-1", "2"),
        ("discord:1:thread:2", "1", "2"),
    ],
)
def test_key_becomes_chat_and_thread(key: str, chat: str, thread: str | None) -> None:
    source = source_of(key)
    assert (source.platform, source.chat_id, source.thread_id) == (
        key.split(":", maxsplit=1)[0], chat, thread
    )  # fmt: skip


def test_session_folders_of_later_versions_come_first(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".nanobot").mkdir(parents=True)
    (workspace / ".nanobot" / "workspace-id").write_text(WORKSPACE_ID)
    early, later = workspace / "sessions", tmp_path / "sessions" / WORKSPACE_ID
    assert find_session_folders(workspace) == []
    for folder in (early, later):
        folder.mkdir(parents=True)
        (folder / "telegram_42.jsonl").touch()
    assert find_session_folders(workspace) == [later, early]
