from pathlib import Path

import pytest

from benchmarks import __main__ as main
from benchmarks import peers
from benchmarks.catalogue import ROWS
from benchmarks.peers import PACKAGES, Peer, PeerError
from benchmarks.report import Row
from benchmarks.run_context import QUICK, RunContext

pytestmark = pytest.mark.check


def test_a_row_that_fails_is_shown_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(context: RunContext) -> list[Row]:
        raise KeyError("missing")

    monkeypatch.setitem(ROWS, "find", broken)
    rows = main.measure("find", RunContext(tmp_path, QUICK, []))
    assert [(row.verdict, row.problem) for row in rows] == [("not measured", "KeyError: 'missing'")]


def test_a_store_that_cannot_be_installed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(package: peers.Package) -> None:
        raise PeerError("no network")

    monkeypatch.setattr(peers, "install", unreachable)
    peer = Peer(PACKAGES[0], tmp_path)
    peer.start()
    with pytest.raises(PeerError, match="no network"):
        peer.operation("turn", 1)
    peer.close()


def test_one_row_from_the_command_line_to_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    options = ["--quick", "--no-peers", "--only", "disk", "--dir", str(tmp_path)]
    assert main.main([*options, "--json", str(file)]) == 0
    assert "disk for 1 MB" in capsys.readouterr().out
    assert file.exists()
    assert list(tmp_path.iterdir()) == [file]
