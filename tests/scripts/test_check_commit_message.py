"""The commit-message check accepts the house form and names every departure from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import check_commit_message


@pytest.mark.parametrize(
    "subject",
    [
        "storage: lock rows in key order",
        "gateway, http: count turns of both in one limit",
        "Merge branch 'x'",
        "a: " + "x" * 69,
    ],
)
def test_good_subject_has_no_problem(subject: str) -> None:
    assert check_commit_message.find_problems(subject) == []


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        ("a: " + "x" * 70, "73 characters"),
        ("What is piped in gets its answer", "area"),
        ("Storage: lock rows", "area"),
        ("storage: lock rows.", "full stop"),
        ("", "area"),
    ],
)
def test_bad_subject_is_named(subject: str, word: str) -> None:
    (problem,) = check_commit_message.find_problems(subject)
    assert word in problem


def test_message_file_fails_with_its_subject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("# a comment\nno area here\n\nstorage: in the body\n")
    assert check_commit_message.main([str(message)]) == 1
    assert "no area here" in capsys.readouterr().err


def test_runs_as_a_program(tmp_path: Path) -> None:
    import subprocess

    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("storage: lock rows in key order\n")
    script = Path(check_commit_message.__file__)
    assert subprocess.run([sys.executable, script, message], check=False).returncode == 0
