"""Agents of every SDK in one store with Telegram chats, over restarts: the examples, run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tests.records.store_inspection import ANA

pytestmark = pytest.mark.check

ROOT = Path(__file__).parent.parent.parent

# The example, its platform, and what it says when it runs for the second time.
EXAMPLES = {
    "openai_agents_sdk": ("openai-agents", "You have asked 2 times. The sky is blue."),
    "pydantic_ai_sdk": ("pydantic-ai", "You have asked 2 times. The sky is blue."),
    "agent_framework_sdk": ("agent-framework", "You have asked 2 times. The sky is blue."),
    "claude_agent_sdk_store": ("claude-agent", "Will it rain in Sevilla? (4 messages)"),
}


def program(*arguments: str, cwd: Path) -> str:
    """Run a program; no warning of ours is overlooked, and nothing can leave the machine."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_remember_and_are_listed_searched_and_counted_together(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with tertulia.open(where) as store, store.turn(ANA, "I dream of Sevilla") as turn:
        turn.add_assistant("So do I.", usage=tertulia.Usage(3, 2))
    platforms = {platform for platform, _ in EXAMPLES.values()} | {"telegram"}

    for name, (platform, second) in EXAMPLES.items():
        example = str(ROOT / f"examples/{name}.py")
        first = program(example, str(where), cwd=tmp_path)
        again = program(example, str(where), cwd=tmp_path)
        assert first.splitlines()[0] != second
        assert again.splitlines()[0] == second
        found_lines = [line for line in again.splitlines() if line.startswith("found in")]
        assert {line.split(":")[2] for line in found_lines} >= {platform, "telegram"}

    with tertulia.open(where) as store:
        listed = store.sessions.find().items
        assert {session.origin.platform for session in listed} == platforms
        assert store.sessions.count() == len(EXAMPLES) + 2  # Ana's chat, and Ben's of the examples
        hits = store.search("sevilla", limit=100).items
        searched = {store.sessions.require(hit.session_id).origin.platform for hit in hits}
        assert searched == platforms
        counted = {name for name, used in store.usage.sum("platform").items() if used.total}
        assert counted == platforms
        for session in listed:
            assert store.transcript(session.id).history()
        assert store.check() == []

    arguments = ("sessions", "list", "--store", str(where), "--json")
    listing = json.loads(program("-m", "tertulia", *arguments, cwd=tmp_path))
    assert {session_dict["origin"]["platform"] for session_dict in listing} == platforms
    (agent,) = (
        session_dict
        for session_dict in listing
        if session_dict["origin"]["platform"] == "openai-agents"
    )
    arguments = ("sessions", "show", agent["id"], "--store", str(where))
    assert "Will it rain in Sevilla?" in program("-m", "tertulia", *arguments, cwd=tmp_path)
