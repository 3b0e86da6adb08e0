"""`tertulia ps`: processes as a table and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tests.cli.conftest import CommandLine, Demo, background_process
from tests.processes.process_fixtures import Conversation, open_conversation


def test_list_without_processes(cli: CommandLine) -> None:
    assert cli("ps").stdout == "There are no processes.\n"
    assert cli.json("ps") == []


def test_lists_a_process(cli: CommandLine, demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        store.processes.begin(background_process(store))
    lines = cli("ps").stdout.splitlines()
    assert lines[0].split() == ["id", "state", "began", "command"]
    assert lines[1].startswith("p1 ")
    assert lines[1].endswith("sleep 600")
    (process,) = cli.json("ps")
    assert (process["id"], process["state"], process["ended"]) == ("p1", "starting", None)
    assert process["since"].endswith("Z")


def run_ps(conversation: Conversation, *options: str) -> str:
    command = [sys.executable, "-m", "tertulia", "--store", conversation.store.path, "ps", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.check
def test_programs_are_listed_as_table_and_as_json(tmp_path: Path) -> None:
    with open_conversation(str(tmp_path / "talk.db"), tmp_path) as conversation:
        assert json.loads(run_ps(conversation, "--json")) == []
        ended, running = conversation.spawn("exit 3"), conversation.spawn("sleep 600")
        conversation.wait_for_end(ended)
        rows = {row["id"]: row for row in json.loads(run_ps(conversation, "--json"))}
        assert (rows[ended]["state"], rows[ended]["exit_code"]) == ("exited", 3)
        assert (rows[running]["state"], rows[running]["ended"]) == ("running", None)
        assert rows[running]["command"] == "sleep 600"
        assert running in run_ps(conversation)
