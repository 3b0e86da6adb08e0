"""The platform `local`: its builder, and the file of the typed lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tertulia.platforms import local
from tertulia.platforms.definition import BuildContext
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.terminal.adapter import TerminalAdapter


def test_builder_returns_the_terminal() -> None:
    context = BuildContext(name="local", settings=LocalSettings(), folder="state", environ={})
    assert isinstance(local.PLATFORM.build_adapter(context), TerminalAdapter)


class TestHistoryFile:
    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())

    def test_file_is_private(self, tmp_path: Path) -> None:
        path = str(tmp_path / "state/history")
        assert local._history_file(LocalSettings(history=path)) == path
        assert os.stat(path).st_mode & 0o077 == 0

    def test_empty_name_turns_it_off(self) -> None:
        assert local._history_file(LocalSettings(history="")) is None

    def test_file_that_cannot_be_created_is_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert local._history_file(LocalSettings(history=str(tmp_path / "file/history"))) is None
