"""`tertulia bench`: it measures a temporary store and deletes it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine, Demo


def test_bench_measures_and_deletes_its_store(cli: CommandLine, demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    before = Path(demo.path).read_bytes()
    measurements = cli.json("bench", "--turns", "10", "--folder", str(folder))
    assert [item["times"] for item in measurements] == [10] * 5
    assert all(0 < item["median_ms"] <= item["p99_ms"] for item in measurements)
    assert list(folder.iterdir()) == []
    assert Path(demo.path).read_bytes() == before


def test_prints_a_line_for_each_measurement(cli: CommandLine, tmp_path: Path) -> None:
    text = cli("bench", "--turns", "10").stdout
    assert "a turn, durable" in text
    assert "a search" in text


def test_missing_folder_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    text = cli("bench", "--folder", str(tmp_path / "none"), expect=2).stderr
    assert "does not exist" in text


def test_help_does_not_truncate_sentences(cli: CommandLine) -> None:
    assert "..." not in cli("--help").stdout.replace("[ARGS]...", "")
