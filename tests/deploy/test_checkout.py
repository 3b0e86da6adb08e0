"""What a newcomer runs first in a checkout: `make run`, and the example it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT


def _variable(name: str, **environ: str) -> str:
    """Return a variable as programs that `make` starts get it."""
    path = os.environ.get("PATH", os.defpath)
    rule = f'show:; @echo "$${{{name}:-none}}"'
    shown = subprocess.run(
        ["make", "--no-print-directory", "--eval", rule, "show"],
        cwd=ROOT, env={"PATH": path, **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    return shown.stdout.strip()


def _cache_folder(**environ: str) -> str:
    return _variable("XDG_CACHE_HOME", **environ)


def test_certificates_of_the_system_are_trusted(tmp_path: Path) -> None:
    assert _variable("UV_SYSTEM_CERTS", HOME=str(tmp_path)) == "1"
    assert _variable("UV_SYSTEM_CERTS", HOME=str(tmp_path), UV_SYSTEM_CERTS="0") == "0"


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
