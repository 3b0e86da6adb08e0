"""Files and folders that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.private_files import make_private_folder, open_private

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_every_new_folder_is_private(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    make_private_folder(tmp_path / "shared" / "data" / "memory")
    make_private_folder(tmp_path / "shared" / "data" / "memory")
    assert mode(tmp_path / "shared" / "data") == 0o700
    assert mode(tmp_path / "shared" / "data" / "memory") == 0o700
    assert mode(tmp_path / "shared") == 0o755


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(OSError, match="data"):
        make_private_folder(tmp_path / "data" / "memory")


def test_new_file_is_private(tmp_path: Path) -> None:
    os.close(open_private(tmp_path / "log", os.O_WRONLY | os.O_APPEND))
    assert mode(tmp_path / "log") == 0o600
