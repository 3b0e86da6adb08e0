"""`tertulia run`: it refuses a configuration with nothing to serve."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine


def test_nothing_to_serve_is_refused(tmp_path: Path) -> None:
    text = CommandLine(str(tmp_path / "talk.db"))("run", expect=2).stderr
    assert text.startswith("error: There is nothing to serve")
    assert text.rstrip().endswith("tertulia chat")
    assert not (tmp_path / "talk.db").exists()
