"""The agent for the OpenAI Chat Completions API: requests, responses and usage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia import ContextOverflow, Usage
from tertulia.agents import OpenAIAgent, OpenAIOptions
from tertulia.agents.base import Thought
from tertulia.agents.model_agent import ESTIMATED
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import KEY, OPENAI, run_turn
from tests.servers.models import Call, ModelServer, Reply, openai, refuses

HELLO = Call("c1", "echo", '{"word": "hola"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


class TestResponses:
    def test_surrogate_halves_in_separate_chunks_are_joined(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        halves = ["a \ud83d", "\ude00", " \ud83d", "b", "\ude00"]
        server.script(
            openai.events(*(openai.chunk({"content": half}) for half in halves), "[DONE]")
        )
        recorded = run_turn(gateway, OPENAI.agent(server))
        assert recorded.answer == recorded.shown == "a 😀 \ufffdb\ufffd"

    def test_refusal_text_of_the_model_is_the_answer(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(openai.says("", refusal="I cannot help with that."))
        recorded = run_turn(gateway, OPENAI.agent(server))
        assert recorded.answer == recorded.shown == "I cannot help with that."
        assert recorded.steps[0].extra["refused"] is True

    def test_overflow_error_in_a_stream(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        error = {"error": {"message": "too long", "code": "context_length_exceeded"}}
        server.script(openai.events(error))
        assert isinstance(run_turn(gateway, OPENAI.agent(server)).problem, ContextOverflow)

    def test_calls_in_nonstandard_forms(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        """No index; the same index for every call; arguments as an object; a repeated name."""
        function = {"name": "echo", "arguments": {"word": "a"}}
        first_half = {"name": "echo", "arguments": '{"word": '}
        second_half = {"name": "echo", "arguments": '"c"}'}
        server.script(
            openai.events(
                openai.chunk({"tool_calls": [{"id": "x", "function": function}]}),
                openai.chunk({"tool_calls": [{"id": "y", "function": function}]}, "tool_calls"),
            ),
            openai.events(
                openai.chunk({"tool_calls": [{"index": 0, "id": "v", "function": function}]}),
                openai.chunk({"tool_calls": [{"index": 0, "id": "w", "function": first_half}]}),
                openai.chunk({"tool_calls": [{"index": 0, "function": second_half}]}, "tool_calls"),
            ),
            openai.says("done"),
        )
        recorded = run_turn(gateway, OPENAI.agent(server))
        assert recorded.answer == "done"
        assert [result.content for result in recorded.results] == ["a", "a", "a", "c"]

    def test_transient_error_in_a_stream_is_retried(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(openai.events({"error": {"code": 502, "message": "x"}}), openai.says("yes"))
        assert run_turn(gateway, OPENAI.agent(server)).answer == "yes"

    def test_unknown_chunks_are_ignored(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        strange_chunks: list[dict[str, Any]] = [
            {"object": "celebration"},
            {"choices": None},
            {"choices": [None]},
            {"choices": [{"delta": None}]},
            {"choices": [{"delta": {"content": None, "hologram": 1, "tool_calls": [None]}}]},
            {"choices": [], "usage": None},
        ]
        pieces = openai.says("hello there").pieces
        server.script(Reply([*pieces[:2], *openai.events(*strange_chunks).pieces, *pieces[2:]]))
        assert run_turn(gateway, OPENAI.agent(server)).answer == "hello there"


class TestUsage:
    def test_cached_and_reasoning_tokens_and_cost_are_reported(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        counts = {
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 20},
        }
        server.script(
            openai.says("yes", usage=counts), openai.says("yes", usage={**counts, "cost": 2})
        )
        recorded = run_turn(gateway, OPENAI.agent(server))
        expected = Usage(40, 30, 60, 0, 20, model="test-1", base_url=server.url, last_prompt=100)
        assert recorded.usages == [expected]
        paid = run_turn(gateway, OPENAI.agent(server, provider="router")).usages[0]
        assert (paid.cost_usd, paid.cost_source, paid.provider) == (2.0, "provider", "router")

    def test_unreported_usage_is_estimated(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(openai.says("one two three", usage={}))
        (usage,) = run_turn(gateway, OPENAI.agent(server)).usages
        assert usage.cost_source == ESTIMATED
        assert usage.input > usage.output >= 3

    @pytest.mark.parametrize("count", [-1, "many", None, 1.5, 2**60, True])
    def test_invalid_token_counts_are_zero(
        self, server: ModelServer, gateway: ScriptedGateway, count: Any
    ) -> None:
        server.script(openai.says("yes", usage={"prompt_tokens": count, "completion_tokens": 2}))
        (usage,) = run_turn(gateway, OPENAI.agent(server)).usages
        assert (usage.input, usage.output) == (0, 2)


class TestRequests:
    def test_body_and_headers(self, server: ModelServer, gateway: ScriptedGateway) -> None:
        server.script(openai.says("hi", HELLO), openai.says("done"))
        agent = OPENAI.agent(
            server, instructions="Be kind.", options={"temperature": 0.5}, max_tokens=99
        )
        assert run_turn(gateway, agent).answer == "done"
        first, second = server.seen
        assert first.path == "/chat/completions"
        assert first.headers["authorization"] == f"Bearer {KEY}"
        assert first.body["model"] == "test-1"
        assert first.body["temperature"] == 0.5
        assert first.body["max_tokens"] == 99
        assert first.body["stream_options"] == {"include_usage": True}
        system, person = first.body["messages"]
        assert system["content"].startswith("Be kind.\n\n## Current Session Context")
        assert person == {"role": "user", "content": "hello"}
        assert first.body["tools"][0]["function"]["name"] == "echo"
        assert [message["role"] for message in second.body["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]

    def test_unsupported_options_are_dropped(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(
            refuses(400, "Unrecognized request argument: stream_options"),
            refuses(400, "Use 'max_completion_tokens' instead."),
            openai.says("yes"),
        )
        assert run_turn(gateway, OPENAI.agent(server, max_tokens=9)).answer == "yes"
        body = server.seen[-1].body
        assert "stream_options" not in body
        assert "max_tokens" not in body
        assert body["max_completion_tokens"] == 9

    def test_reasoning_is_sent_back_to_servers_that_use_the_field(
        self, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(openai.says("", HELLO, reasoning="hm"), openai.says("done"))
        recorded = run_turn(gateway, OPENAI.agent(server))
        assert recorded.answer == "done"
        assert recorded.steps[0].reasoning == "hm"
        assert "".join(e.text for e in recorded.events if isinstance(e, Thought)) == "hm"
        assert server.seen[-1].body["messages"][2]["reasoning_content"] == "hm"
        server.script(openai.says("bye"))
        assert run_turn(gateway, OPENAI.agent(server), "thanks").answer == "bye"
        assert "reasoning_content" not in str(server.seen[-1].body)

    def test_provider_is_known_by_its_address(self) -> None:
        assert OpenAIAgent(OpenAIOptions(model="m")).provider == "openai"
        local = OpenAIOptions(model="m", base_url="http://localhost")
        assert OpenAIAgent(local).provider is None
