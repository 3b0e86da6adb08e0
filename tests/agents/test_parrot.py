"""The parrot shows what it was given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tertulia.agents import ParrotAgent, Request
from tertulia.agents.base import running
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import (
    RecordedEvents,
    ScriptedGateway,
)
from tests.agents.scene import talked


@pytest.fixture
def talk(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def said(talk: ScriptedGateway, text: str) -> str:
    return talked(talk, ParrotAgent(), text).answer or ""


def test_it_says_where_it_heard_what(talk: ScriptedGateway) -> None:
    answer = said(talk, "is it raining?")
    assert answer.startswith("You said: is it raining?")
    assert "on telegram" in answer
    assert "agent:main:telegram:dm:42" in answer
    assert "1 message, 1 of them from people, and offered 1 tool." in answer
    assert "The last ones" not in answer
    again = said(talk, "and now?")
    assert "3 messages, 2 of them from people" in again
    assert "- user: is it raining?" in again
    assert "- assistant: You said: is it raining?" in again


def test_it_shows_the_context(talk: ScriptedGateway) -> None:
    talk.system = "## You are here\n\n- in a test"
    assert said(talk, "Context") == talk.system
    assert talked(talk, ParrotAgent(), "context").shown == talk.system


def test_it_shows_history_tools_and_help(talk: ScriptedGateway) -> None:
    said(talk, "one")
    assert "- user: one" in said(talk, "history")
    assert "- echo: Says a word." in said(talk, "tools")
    assert "call NAME" in said(talk, "help")
    talk.tools = ()
    assert said(talk, "tools") == "I was offered no tools."


def test_it_calls_what_it_is_told_to(talk: ScriptedGateway) -> None:
    answer = said(talk, 'call echo {"word": "a"}\ncall echo {"word": "b"}\n\ncall nobody')
    assert answer.splitlines()[:2] == ["echo gave: a", "echo gave: b"]
    assert "there is no tool 'nobody'" in answer.splitlines()[2]


def test_a_sentence_about_a_call_is_none(talk: ScriptedGateway) -> None:
    heard = talked(talk, ParrotAgent(), "call echo {}\nand tell me")
    assert heard.results == []


def test_it_costs_nothing_and_says_so(talk: ScriptedGateway) -> None:
    heard = talked(talk, ParrotAgent(), "hello there")
    (usage,) = heard.usages
    assert (usage.cost_usd, usage.cost_status, usage.model) == (0.0, "included", "parrot")
    assert "estimated" in (usage.cost_source or "")
    assert usage.input > 0 < usage.output


@pytest.mark.parametrize("text", ["", " ", "a", "one two\n\nthree  ", "\u2028x", "日本語 👋"])
def test_what_it_streams_is_what_it_says(text: str) -> None:
    async def history(**_: Any) -> list[dict[str, Any]]:
        return [{"role": "user", "content": text}]

    async def exchange() -> RecordedEvents:
        heard = RecordedEvents()
        request = Request(text="context", history=history, system=text)
        async with running(ParrotAgent(), request) as events:
            heard.events = [event async for event in events]
        return heard

    heard = asyncio.run(exchange())
    expected = text if text.strip() else "I was given no context prompt."
    assert heard.shown == heard.answer == expected
