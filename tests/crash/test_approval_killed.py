"""A node is killed with -9 around an approval: the approved call runs once, on another node."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.approval_process import STEPS
from tests.crash.gateway_process import PATIENCE, lines
from tests.crash.test_gateway_killed import check
from tests.servers.postgres import Server

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

_ROOT = Path(__file__).parents[2]


def run_node(where: str, folder: Path, step: str, texts: list[str]) -> int:
    command = [sys.executable, "-m", "tests.crash.approval_process", where, str(folder), step]
    node = subprocess.run(
        [*command, json.dumps({"42": texts})], cwd=_ROOT, stderr=subprocess.PIPE, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert node.returncode in (0, -9), node.stderr
    return node.returncode


def code_of(where: str) -> str:
    with check(where) as store:
        (approval,) = store.approvals.find()
    return approval.code


def play(where: str, folder: Path, step: str) -> None:
    """Ask on one node, kill it, approve on the next, which may be killed too."""
    texts = ["look"]
    assert run_node(where, folder, "stepped" if step == "stepped" else "asked", texts) == -9
    if step != "stepped":  # it died before it could ask: then the call is only interrupted
        texts.append(f"/approve {code_of(where)} once")
        code = run_node(where, folder, "none" if step == "asked" else step, texts)
        assert code == (0 if step == "asked" else -9)
    assert run_node(where, folder, "none", texts) == 0
    effects = lines(folder / "effects")
    assert effects == ([] if step in ("stepped", "used") else [["look"]])
    with check(where) as store:
        (session,) = store.sessions.find().items
        messages = store.transcript(session.id).load()
        assert store.approvals.find() == []
    was_lost = step in ("stepped", "used", "effect")
    assert bool(re.search("interrupted", messages[-1]["content"])) == was_lost, messages


@pytest.mark.parametrize("step", STEPS)
def test_approved_call_runs_once_after_a_kill(where: str, tmp_path: Path, step: str) -> None:
    play(where, tmp_path, step)


@pytest.mark.slow
def test_fifty_kills_on_postgresql(postgres: Server, tmp_path: Path) -> None:
    for round_number in range(50):
        address = postgres.database(postgres.template)
        folder = tmp_path / str(round_number)
        folder.mkdir()
        play(address, folder, STEPS[round_number % len(STEPS)])
        postgres.drop(address)
