"""The page of the prompt shows what the agent was given: the same messages, byte for byte."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import tertulia
from tertulia import Source, ToolCall
from tertulia.agents import ParrotAgent
from tertulia.agents.base import Event, Request
from tertulia.console.prompt_page import history_json
from tests.console.hostile_store import TEXTS
from tests.console.served_console import served_console
from tests.http.served_gateway import eventually

ANA = Source("telegram", "42", user_id="42", user_name="Ana")


class RecordingParrot(ParrotAgent):
    """A parrot that notes the history it is given for each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.histories: list[list[dict[str, Any]]] = []

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.histories.append(await request.history())
        async for event in super().run(request):
            yield event


def messages_in(page: str) -> list[dict[str, Any]]:
    """Return the messages that a page shows as what the model gets."""
    texts = re.findall(r'<pre class="log json"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return [json.loads(html.unescape(text)) for text in texts]


def test_what_was_shown_then_is_what_the_agent_was_given(tmp_path: Path) -> None:
    agent = RecordingParrot()
    path = tmp_path / "talk.db"
    with served_console(path, agent=agent) as console, console.client() as client:
        for text in ("One", "Two <b>", "Drei 🌿"):
            sent = client.post("/console/do/say", data={"chat": "console", "text": text})
            assert sent.status_code == 303
            with console.gateway.store() as store:
                eventually(partial(is_answered, store, text))
        with console.gateway.store() as store:
            session = store.sessions.find().items[0].id
            entries = store.transcript(session).entries()
        questions = [entry.seq for entry in entries if entry.role == "user"]
        assert len(questions) == len(agent.histories) == 3
        for seq, messages in zip(questions, agent.histories, strict=True):
            address = f"/console/sessions/{session}/prompt"
            assert messages_in(client.get(address, params={"upto": str(seq)}).text) == messages


def is_answered(store: tertulia.Store, text: str) -> bool:
    for session in store.sessions.find().items:
        entries = store.transcript(session.id).entries()
        if entries[-1].role == "assistant" and text in str(entries[-1].body["content"]):
            return True
    return False


def test_what_is_shown_is_what_the_agent_is_given(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with tertulia.open(path) as store:
        for number, text in enumerate((*TEXTS[:3], "W" * 3_000, "short", "é 🌿 \u2028")):
            with store.turn(ANA, text, message_id=f"{number}") as turn:
                turn.add_assistant(None, tool_calls=[ToolCall("c", "look", {"x": number})])
                if number != 2:  # a call without a result is repaired
                    turn.add_tool_result("c", text * 2)
                    turn.add_assistant(text)
        session = turn.session.id
        transcript = store.transcript(session)
        transcript.compact(keep_turns=3)
        histories = {
            tokens: transcript.history(max_tokens=tokens, timestamps="local")
            for tokens in (None, 200, 1_000, 4_000)
        }
    with served_console(path) as console, console.client() as client:
        for tokens, messages in histories.items():
            query = {} if tokens is None else {"max_tokens": str(tokens)}
            page = client.get(f"/console/sessions/{session}/prompt", params=query).text
            assert messages_in(page) == messages
            for fate in ("shown", "summed up"):
                assert fate in page


def test_json_of_a_message_loses_nothing() -> None:
    message: dict[str, Any] = {"role": "user", "content": "\ud800\u202e\x00 <b> \u2028"}
    assert json.loads(history_json(message)) == message
    assert not set("\ud800\u202e\x00\u2028") & set(history_json(message))
