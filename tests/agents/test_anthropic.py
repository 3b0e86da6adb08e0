"""The agent for the Anthropic Messages API: requests, responses and usage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia import ContextOverflow, Usage
from tertulia.agents.base import Thought
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import ANTHROPIC, KEY, run_turn
from tests.servers.models import Call, ModelServer, Reply, anthropic, start

HELLO = Call("c1", "echo", '{"word": "hola"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


class TestResponses:
    def test_full_context_window_is_an_overflow(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(anthropic.says("", stop="model_context_window_exceeded"))
        assert isinstance(run_turn(gateway, ANTHROPIC.agent(server)).problem, ContextOverflow)

    def test_transient_error_in_a_stream_is_retried(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
        server.script(anthropic.events(start(), overloaded), anthropic.says("at last"))
        recorded = run_turn(gateway, ANTHROPIC.agent(server))
        assert recorded.answer == "at last"
        assert [usage.input for usage in recorded.usages] == [10, 10]

    def test_unknown_events_are_ignored(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        pieces = anthropic.says("hello there", HELLO).pieces
        strange = anthropic.events(
            {"type": "content_block_start", "index": 7, "content_block": {"type": "hologram"}},
            {"type": "content_block_delta", "index": 7, "delta": {"type": "photons", "n": 1}},
            {"type": "content_block_delta", "index": 0, "delta": None},
            {"type": "celebration"},
            {"type": None},
        ).pieces
        server.script(
            Reply([*pieces[:4], *strange, b"retry: 5\nid: 9\n: hm\n\n", *pieces[4:]]),
            anthropic.says("done"),
        )
        recorded = run_turn(gateway, ANTHROPIC.agent(server))
        assert recorded.answer == "done"
        assert recorded.steps[0].text == "hello there"


class TestUsage:
    def test_cached_tokens_are_reported(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        counts = {
            "input_tokens": 10,
            "cache_read_input_tokens": 70,
            "cache_creation_input_tokens": 20,
            "output_tokens": 1,
        }
        server.script(anthropic.says("yes", usage=counts))
        assert run_turn(gateway, ANTHROPIC.agent(server)).usages == [
            Usage(
                10,
                5,
                70,
                20,
                model="test-1",
                provider="anthropic",
                base_url=server.url,
                last_prompt=100,
            )
        ]


class TestRequests:
    def test_body_and_headers(self, server: ModelServer, gateway: ScriptedGateway) -> None:
        server.script(anthropic.says("hi", HELLO, thinking="hm"), anthropic.says("done"))
        agent = ANTHROPIC.agent(server, instructions="Be kind.", options={"temperature": 0.5})
        recorded = run_turn(gateway, agent)
        assert recorded.answer == "done"
        assert recorded.steps[0].reasoning == "hm"
        assert "".join(e.text for e in recorded.events if isinstance(e, Thought)) == "hm"
        first, second = server.seen
        assert first.path == "/v1/messages"
        assert first.headers["x-api-key"] == KEY
        assert first.headers["anthropic-version"] == "2023-06-01"
        assert first.body["max_tokens"] == 8192
        assert first.body["system"][0]["text"].startswith("Be kind.")
        assert first.body["system"][0]["cache_control"] == {"type": "ephemeral"}
        assert first.body["tools"][0]["input_schema"]["required"] == ["word"]
        thought, text, use = second.body["messages"][1]["content"]
        assert thought == {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
        assert (text["text"], use["input"]) == ("hi", {"word": "hola"})
        (result,) = second.body["messages"][2]["content"]
        assert result["type"] == "tool_result"
        assert result["cache_control"] == {"type": "ephemeral"}

    def test_thinking_is_sent_back_only_to_the_model_that_signed_it(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(anthropic.says("a", thinking="hm"), *[anthropic.says("b")] * 2)
        assert run_turn(gateway, ANTHROPIC.agent(server)).answer == "a"
        assert run_turn(gateway, ANTHROPIC.agent(server, model="test-2"), "x").answer == "b"
        assert run_turn(gateway, ANTHROPIC.agent(server), "y").answer == "b"
        assert ["hm" in str(call.body["messages"]) for call in server.seen] == [False, False, True]

    def test_earlier_calls_are_described_when_no_tools_are_offered(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(anthropic.says("", HELLO), anthropic.says("done"), anthropic.says("bye"))
        assert run_turn(gateway, ANTHROPIC.agent(server)).answer == "done"
        gateway.tools = ()
        assert run_turn(gateway, ANTHROPIC.agent(server), "thanks").answer == "bye"
        assert [tool["name"] for tool in server.seen[-1].body["tools"]] == ["echo"]
        assert server.seen[-1].body["tool_choice"] == {"type": "none"}
