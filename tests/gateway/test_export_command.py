"""`/export` with a file: only at the terminal, never over a file that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia import Source
from tertulia import open as open_store
from tertulia.errors import IllegalMove
from tertulia.gateway.export_command import run_export


@pytest.mark.parametrize(
    ("name", "expected"), [("talk.md", "hello"), ("talk.html", "<html"), ("talk.jsonl", '"role"')]
)
def test_terminal_writes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(str(tmp_path / "talk.db")) as store:
        with store.turn(Source.local(), "hello") as turn:
            turn.add_assistant("hi")
        assert "hello" in run_export(store, Source.local(), turn.session, "")
        reply = run_export(store, Source.local(), turn.session, name)
        assert str(tmp_path / name) in reply
        assert expected in (tmp_path / name).read_text("utf-8")
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        with pytest.raises(IllegalMove, match="cannot be written"):
            run_export(store, Source.local(), turn.session, name)
        with pytest.raises(IllegalMove, match="Only the terminal"):
            run_export(store, Source("telegram", "1"), turn.session, "other.md")
    assert not (tmp_path / "other.md").exists()
