"""`kill -9` in the middle of an import, then the same import again: the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import SETTINGS, dump, kind_of, planted

pytestmark = pytest.mark.check

TREES = ["nanobothead_migrated", "hermes019_moved_home", "hermes013_dual"]


def killed(where: Path, kind: str, folder: Path, moment: str, number: int) -> None:
    path = os.pathsep.join(part for part in sys.path if part)
    words = [str(where), kind, str(folder), moment, str(number)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.transfer.killed_import", *words],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("moment", ["after", "within"])
def test_killed_import_resumes_to_the_same_result(tree: str, moment: str, tmp_path: Path) -> None:
    folder, kind = planted(tree, tmp_path), kind_of(tree)
    with tertulia.open(tmp_path / "straight.db", settings=SETTINGS) as store:
        import_from(store, kind, folder)
        wanted = dump(store)
    where = tmp_path / "killed.db"
    for number in (2, 1, 4):  # each run goes on where the one before it died
        killed(where, kind, folder, moment, number)
    with tertulia.open(where, settings=SETTINGS) as store:
        import_from(store, kind, folder)
        assert dump(store) == wanted
        assert store.check() == []


def test_half_imported_session_is_not_current(tmp_path: Path) -> None:
    folder = planted("nanobot004_main", tmp_path)
    where = tmp_path / "talk.db"
    killed(where, "nanobot", folder, "after", 1)
    with tertulia.open(where, settings=SETTINGS) as store:
        for session in store.sessions.find(state="current").items:
            assert session.end_reason is None
        arriving = [s for s in store.sessions.find().items if s.end_reason == "arriving"]
        assert all(store.sessions.current(session.key) is None for session in arriving)
        assert arriving  # a session of this tree is longer than one commit
