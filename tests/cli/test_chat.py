"""`tertulia chat` in a pipe: every line is answered, and the conversation continues."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import run


def test_piped_lines_are_answered_in_order(tmp_path: Path) -> None:
    done = run("chat", "--store", str(tmp_path / "talk.db"), input="plums\npears\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("You said: plums") < done.stdout.index("You said: pears")
    assert "Tertulia ·" not in done.stdout  # the greeting is for people at a terminal


@pytest.mark.check
def test_conversation_continues_after_a_restart(tmp_path: Path) -> None:
    store = str(tmp_path / "talk.db")
    assert "I was shown 1 message," in run("chat", "--store", store, input="plums\n").stdout
    assert stat.S_IMODE(os.stat(store).st_mode) == 0o600
    assert "I was shown 3 messages" in run("chat", "--store", store, input="pears\n").stdout
