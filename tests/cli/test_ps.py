"""`tertulia ps` lists the programs in the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.processes.process_fixtures import Conversation, open_conversation


def run_ps(conversation: Conversation, *options: str) -> str:
    command = [sys.executable, "-m", "tertulia", "--store", conversation.store.path, "ps", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
