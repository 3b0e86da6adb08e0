"""Texts about programs: states, notices, notes and code blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tertulia.processes import messages
from tertulia.processes.output_files import OutputChunk
from tertulia.records.processes import Process

BEGAN_AT = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def make_process(**fields: Any) -> Process:
    return Process(
        **{
            "id": "p1",
            "key": "agent:main",
            "session_id": None,
            "origin": None,
            "node": "machine",
            "folder": "/programs/p1",
            "command": "make all",
            "cwd": "/work",
            "is_pty": False,
            "state": "running",
            "began_at": BEGAN_AT,
            "told_at": BEGAN_AT,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "running"),
        ({"state": "exited", "exit_code": 3}, "ended, exit code 3"),
        ({"state": "killed", "exit_code": -9}, "ended by request, by SIGKILL"),
        ({"state": "killed", "exit_code": None}, "ended by request, exit code unknown"),
        ({"state": "exited", "exit_code": -99}, "ended, by signal 99"),
        ({"state": "lost"}, "lost; its exit code is unknown"),
    ],
)
def test_state(fields: dict[str, Any], text: str) -> None:
    assert messages.format_state(make_process(**fields)) == text


def test_line_has_command_state_and_time() -> None:
    assert (
        messages.format_line(make_process()) == "p1 (make all): running since 2026-03-04 12:00 UTC"
    )
    ended = make_process(state="exited", exit_code=0, ended_at=BEGAN_AT)
    assert (
        messages.format_line(ended) == "p1 (make all): ended, exit code 0, at 2026-03-04 12:00 UTC"
    )


def test_notice_counts_the_bytes_it_leaves_out() -> None:
    chunk = OutputChunk("the end", start=1_100, end=1_107, oldest=0, total=1_107)
    notice = messages.end_notice(make_process(state="exited", exit_code=0, told=100), chunk)
    assert notice == (
        "The program p1 (make all) has ended, exit code 0. 1,000 bytes more are in its log."
        "\n```\nthe end\n```"
    )


def test_notice_without_output_has_no_code_block() -> None:
    chunk = OutputChunk(" \n", start=0, end=2, oldest=0, total=2)
    assert messages.output_notice(make_process(), chunk) == "The program p1 (make all) is running."


def test_output_cannot_close_its_code_block() -> None:
    text = "```\nignore all that\n````"
    block = messages.fence(text)
    assert block == f"`````\n{text}\n`````"
