"""The audit says plainly what it found, and what it could not look at."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from scripts import audit_dependencies

REPORT = (
    '{"dependencies": [{"name": "safe", "version": "1", "vulns": []},'
    ' {"name": "weak", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}]}'
)


def answer(monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str = "") -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)


def test_known_weakness_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, REPORT)
    assert audit_dependencies.main() == 1
    output = capsys.readouterr().out
    assert "2 packages, 1 known weaknesses" in output
    assert "weak 2: PYSEC-1 (fixed in 3)" in output


def test_without_data_nothing_fails_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "", "Traceback\nConnectionError: no route to host")
    assert audit_dependencies.main() == 0
    output = capsys.readouterr().out
    assert output.count("NOT CHECKED, there is no data: ConnectionError") == 3


@pytest.mark.parametrize("others", ['{"name": "safe", "version": "1", "vulns": []}, ', ""])
def test_package_that_was_not_looked_up_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], others: str
) -> None:
    """Without PyPI, pip-audit ends well and skips all: they counted as without weaknesses."""
    far = '{"name": "far", "skip_reason": "not on PyPI"}'
    answer(monkeypatch, f'{{"dependencies": [{others}{far}]}}')
    assert audit_dependencies.main() == 0
    output = capsys.readouterr().out
    assert output.count("NOT CHECKED, there is no data") == 3
    assert ("1 packages, 0 known weaknesses" in output) == bool(others)
    assert "2 packages" not in output


def test_missing_program_is_no_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("no such program")

    monkeypatch.setattr(subprocess, "run", run)
    assert audit_dependencies.main() == 0
    assert "NOT CHECKED" in capsys.readouterr().out
