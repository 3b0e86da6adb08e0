"""What a newcomer runs first in a checkout: `make run`, and the example it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

_SHOW = 'show:; @echo "$${XDG_CACHE_HOME:-none}"'


def _cache_folder(**environ: str) -> str:
    path = os.environ.get("PATH", os.defpath)
    shown = subprocess.run(
        ["make", "--no-print-directory", "--eval", _SHOW, "show"],
        cwd=ROOT, env={"PATH": path, **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    return shown.stdout.strip()


def test_downloads_are_cached_in_the_checkout_without_a_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert _cache_folder() == str(ROOT / ".cache")
    assert _cache_folder(HOME=str(tmp_path / "file/home")) == str(ROOT / ".cache")
    assert _cache_folder(HOME=str(tmp_path)) == "none"
    assert _cache_folder(XDG_CACHE_HOME=str(tmp_path / "own")) == str(tmp_path / "own")


@pytest.mark.check
def test_headings_of_the_first_example_fit_eighty_columns() -> None:
    example = subprocess.run(
        [sys.executable, ROOT / "examples/first_steps.py"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    headings = [line for line in example.stdout.splitlines() if line.startswith("──")]
    assert len(headings) == 9
    assert {len(heading) for heading in headings} == {80}
