"""Two versions side by side: here this checkout with itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import compare, compared_version
from benchmarks.child_processes import ROOT
from benchmarks.compare import Burst


@pytest.mark.check
@pytest.mark.parametrize("row", compared_version.ROWS)
def test_every_row_is_measured_in_both_versions(row: str, tmp_path: Path) -> None:
    line = compare.compare(ROOT, row, 2, tmp_path)
    assert line.startswith(row)
    assert line.count("×") == 2
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["other", "this"]
    assert all(any(entry.iterdir()) for entry in tmp_path.iterdir())


def test_ratio_is_that_of_this_version_to_the_other() -> None:
    other, this = [Burst(0.002, 0.001)] * 3, [Burst(0.003, 0.0005)] * 3
    assert compare._format("turn", other, this).split() == [
        "turn", "2.000", "3.000", "1.50×", "(1.50", "to", "1.50)", "0.50×",
    ]  # fmt: skip


def test_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.compare", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "is not a checkout of Tertulia" in result.stderr
