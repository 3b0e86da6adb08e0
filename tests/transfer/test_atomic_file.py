"""A new file is complete or absent, and private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tertulia.errors import ConfigError, StoreError
from tertulia.transfer.atomic_file import new_file, new_folder


def test_file_appears_complete_and_private(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with new_file(target) as partial:
        Path(partial).write_text("hello")
        assert not target.exists()
    assert target.read_text() == "hello"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["out.txt"]


def test_failure_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(TypeError), new_file(target, force=True) as partial:
        Path(partial).write_text(b"not a text")  # type: ignore[arg-type]
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(ConfigError, match="exists already"), new_file(target):
        pass
    with new_file(target, force=True) as partial:
        Path(partial).write_text("new")
    assert target.read_text() == "new"


def test_missing_folder_is_an_error_with_the_path(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "out.txt"
    with pytest.raises(StoreError, match="missing"), new_file(target):
        pass


def test_folder_with_files_is_refused_without_force(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    new_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    new_folder(folder)  # empty: accepted
    (folder / "file").touch()
    with pytest.raises(ConfigError, match="not empty"):
        new_folder(folder)
    new_folder(folder, force=True)
