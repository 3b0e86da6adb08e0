"""`ParrotAgent`: its commands, calls, usage and streaming."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tertulia.agents import ParrotAgent, Request
from tertulia.agents.base import Delta, Step, running
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import RecordedEvents, ScriptedGateway
from tests.agents.agent_fixtures import run_turn


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def answer_to(gateway: ScriptedGateway, text: str) -> str:
    return run_turn(gateway, ParrotAgent(), text).answer or ""


def test_answer_names_message_platform_and_session(gateway: ScriptedGateway) -> None:
    answer = answer_to(gateway, "is it raining?")
    assert answer.startswith("You said: is it raining?")
    assert "on telegram" in answer
    assert "agent:main:telegram:dm:42" in answer
    assert "1 message, 1 of them from people, and offered 1 tool." in answer
    assert "The last ones" not in answer
    again = answer_to(gateway, "and now?")
    assert "3 messages, 2 of them from people" in again
    assert "- user: is it raining?" in again
    assert "- assistant: You said: is it raining?" in again
    assert again.endswith("\n\nSay “help” for what else I can show.")  # a paragraph of its own


def test_context_command(gateway: ScriptedGateway) -> None:
    gateway.system = "## You are here\n\n- in a test"
    assert answer_to(gateway, "Context") == gateway.system
    assert run_turn(gateway, ParrotAgent(), "context").shown == gateway.system


def test_history_tools_and_help_commands(gateway: ScriptedGateway) -> None:
    answer_to(gateway, "one")
    assert "- user: one" in answer_to(gateway, "history")
    assert "- echo: Says a word." in answer_to(gateway, "tools")
    assert "call NAME" in answer_to(gateway, "help")
    gateway.tools = ()
    assert answer_to(gateway, "tools") == "I was offered no tools."


def test_call_command_runs_tools(gateway: ScriptedGateway) -> None:
    answer = answer_to(gateway, 'call echo {"word": "a"}\ncall echo {"word": "b"}\n\ncall nobody')
    assert answer.splitlines()[:2] == ["echo gave: a", "echo gave: b"]
    assert "there is no tool 'nobody'" in answer.splitlines()[2]


def test_text_around_a_call_is_not_a_call(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, ParrotAgent(), "call echo {}\nand tell me")
    assert recorded.results == []


def test_usage_is_estimated_and_free(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, ParrotAgent(), "hello there")
    (usage,) = recorded.usages
    assert (usage.cost_usd, usage.cost_status, usage.model) == (0.0, "included", "parrot")
    assert "estimated" in (usage.cost_source or "")
    assert usage.input > 0 < usage.output


@pytest.mark.parametrize("text", ["", " ", "a", "one two\n\nthree  ", "\u2028x", "日本語 👋"])
def test_streamed_text_equals_the_answer(text: str) -> None:
    async def history(**_: Any) -> list[dict[str, Any]]:
        return [{"role": "user", "content": text}]

    async def exchange() -> RecordedEvents:
        recorded = RecordedEvents()
        request = Request(text="context", history=history, system=text)
        async with running(ParrotAgent(), request) as events:
            recorded.events = [event async for event in events]
        return recorded

    recorded = asyncio.run(exchange())
    expected = text if text.strip() else "I was given no context prompt."
    assert recorded.shown == recorded.answer == expected


def test_deltas_that_nobody_sees_are_left_out() -> None:
    async def history(**options: Any) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "hello"}]

    async def collect(*, streams: bool) -> list[type]:
        request = Request(text="hello", history=history, streams=streams)
        async with running(ParrotAgent(), request) as events:
            return [type(event) async for event in events]

    assert Delta in asyncio.run(collect(streams=True))
    assert asyncio.run(collect(streams=False)) == [Step]
