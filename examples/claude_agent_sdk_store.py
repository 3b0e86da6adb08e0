"""A transcript of the Claude Agent SDK that is mirrored into a store, beside a Telegram chat.

    python examples/claude_agent_sdk_store.py talk.db

With the SDK's program you only set `ClaudeAgentOptions(session_store=…)`. Here a script passes the
same entries as that program, and the SDK's own functions read them back. Run it twice with the same
file: the session grows.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import uuid4

from claude_agent_sdk import (
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
)
from claude_agent_sdk.types import SessionKey

import tertulia
from tertulia import Source
from tertulia.integrations.claude import TertuliaSessionStore

SESSION = "11111111-2222-4333-8444-555555555555"


def entry(kind: str, content: Any, parent: str | None, **message: Any) -> dict[str, Any]:
    """Return a transcript entry, as the SDK's program writes it."""
    return {
        "type": kind,
        "uuid": str(uuid4()),
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-03-01T10:00:00.000Z",
        "message": {"role": kind, "content": content, **message},
    }


def exchange(parent: str | None) -> list[dict[str, Any]]:
    """Return a question and its answer, which used one model call."""
    question = entry("user", "Will it rain in Sevilla?", parent)
    used = {"input_tokens": 40, "output_tokens": 9}
    content = [{"type": "text", "text": "The sky is blue."}]
    name = f"msg_{question['uuid']}"
    answer = entry("assistant", content, question["uuid"], id=name, model="script", usage=used)
    return [question, answer]


async def run_once(store: tertulia.Store, directory: str) -> str:
    """Append one exchange to the session and return the summary that the SDK reads."""
    mirror = TertuliaSessionStore(store)
    key: SessionKey = {
        "project_key": project_key_for_directory(directory),
        "session_id": SESSION,
    }
    before: list[Any] = list(await mirror.load(key) or [])
    lines: list[Any] = exchange(before[-1]["uuid"] if before else None)
    await mirror.append(key, lines)
    await mirror.append(key, lines)  # a batch that is sent again changes nothing
    messages = await get_session_messages_from_store(mirror, SESSION, directory=directory)
    (listed,) = await list_sessions_from_store(mirror, directory=directory)
    return f"{listed.summary} ({len(messages)} messages)"


def main(path: str) -> None:
    with tertulia.open(path) as store:
        ben = Source("telegram", "43", user_id="43", user_name="Ben")
        with store.turn(ben, "Is Sevilla far?") as turn:
            turn.add_assistant("It depends on where you are.")
        print(asyncio.run(run_once(store, "weather")))
        for session in store.sessions.find().items:
            count = store.transcript(session.id).count()
            print(f"{session.key}: {count} messages, {session.usage.total} tokens")
        for hit in store.search("sevilla").items:
            print(f"found in {store.sessions.require(hit.session_id).key}: {hit.snippet}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "talk.db")
