"""`tertulia bench`: figures of a store of its own, which is gone afterwards."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Demo, Typed


def test_it_measures_and_leaves_nothing_behind(typed: Typed, demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    before = Path(demo.path).read_bytes()
    figures = typed.json("bench", "--turns", "10", "--folder", str(folder))
    assert [one["times"] for one in figures] == [10] * 5
    assert all(0 < one["median_ms"] <= one["p99_ms"] for one in figures)
    assert list(folder.iterdir()) == []
    assert Path(demo.path).read_bytes() == before


def test_people_see_a_line_for_each(typed: Typed, tmp_path: Path) -> None:
    told = typed("bench", "--turns", "10").stdout
    assert "a turn, durable" in told
    assert "a search" in told


def test_it_needs_a_folder_that_is_there(typed: Typed, tmp_path: Path) -> None:
    told = typed("bench", "--folder", str(tmp_path / "none"), expect=2).stderr
    assert "does not exist" in told


def test_a_list_of_commands_tells_whole_sentences(typed: Typed) -> None:
    assert "..." not in typed("--help").stdout.replace("[ARGS]...", "")
