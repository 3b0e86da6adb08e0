"""Files are read line by line, inside the folder, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia import Store
from tertulia.errors import ConfigError, NotFound
from tertulia.transfer import import_from
from tertulia.transfer.importers import safe_files
from tests.transfer.foreign_folders import all_sessions, planted
from tests.transfer.importers.source_files import HEAD, HELLO, kinds, write
from tests.transfer.importers.unprivileged import file_modes_obeyed


def test_line_of_thirty_megabytes_is_read(store: Store, folder: Path) -> None:
    words = "x" * 30_000_000
    write(folder / "telegram_42.jsonl", HEAD, HELLO, {"role": "assistant", "content": words})
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, report.problems) == (2, ())
    (session,) = all_sessions(store)
    assert store.transcript(session.id).load()[1]["content"] == words


def test_too_long_line_is_skipped_and_reported(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_files, "LONGEST_LINE", 1000)
    long = {"role": "user", "content": "x" * 5000}
    write(folder / "telegram_42.jsonl", HEAD, long, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert report.messages == 1
    assert [(p.kind, p.line) for p in report.problems] == [("line_too_long", 2)]


def test_linked_sessions_folder_is_not_followed(store: Store, tmp_path: Path) -> None:
    outside = planted("hermes001_main", tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "sessions").symlink_to(outside / "sessions")
    for kind in ("hermes", "nanobot", "openclaw", "jsonl"):
        report = import_from(store, kind, home)
        assert report.sessions == 0
    assert store.sessions.count() == 0


def test_unreadable_files_are_reported(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    (folder / "telegram_42.jsonl").chmod(0)
    with file_modes_obeyed():
        report = import_from(store, "nanobot", folder.parent)
    assert kinds(report) == {"unreadable"}
    assert not report.is_whole


def test_missing_folder_is_an_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no folder"):
        import_from(store, "hermes", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="Unknown kind of import"):
        import_from(store, "skype", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a store"):
        import_from(None, "hermes", tmp_path)
