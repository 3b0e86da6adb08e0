"""The agent in a turn: its failures are reported plainly, and its history stays legal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tertulia.agents.base import Delta, Event, Note, Request, Step, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.tool_result import MAX_SHOWN, limit_result
from tertulia.core.usage import Usage
from tertulia.errors import AgentError, AgentFailed, AgentTimeout, AgentUnavailable, ContextOverflow
from tests.gateway.running_gateway import Scripted, running_gateway

CALL = ToolCall("c1", "look", {})


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (AgentTimeout("SECRET"), "the model took too long"),
        (AgentUnavailable("SECRET"), "cannot be reached right now"),
        (AgentFailed("SECRET"), "something went wrong on the model's side"),
        (AgentError("SECRET"), "something went wrong on the model's side"),
        (ContextOverflow("SECRET"), "too long for the model"),
        (ValueError("SECRET"), "something went wrong on the model's side"),
        (AssertionError("SECRET"), "something went wrong on the model's side"),
    ],
)
@pytest.mark.parametrize("after", ["nothing", "a delta", "a call", "a result"])
def test_agent_failure_is_reported_plainly(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
    words: str,
    after: str,
) -> None:
    where = str(tmp_path / "talk.db")
    fails = [problem, problem]

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        if fails:
            if after == "a delta":
                yield Delta("Well")
            if after in ("a call", "a result"):
                yield Step(None, (CALL,), usage=Usage(7, 1))
            if after == "a result":
                yield ToolResult("c1", "blue")
            raise fails.pop()
        yield Step("It works again.")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            (told,) = await node.say("hello")
            assert words in told
            assert "SECRET" not in told
            fails.clear()
            (item,) = (await node.store.inbox.find()).items
            assert item.state == "done"
            assert await node.say("and now?") == ["It works again."]
            await node.say("/undo")
            assert await node.say("/retry") == ["It works again."]
            if not isinstance(problem, AgentError):
                assert "Traceback" in caplog.text
                assert "SECRET" in caplog.text

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())


def test_blank_note_of_an_agent_is_not_delivered(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Note(" ")
        yield Step("Here I am.")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            assert await node.say("hello") == ["Here I am."]

    asyncio.run(play())


def test_whole_text_of_a_long_result_is_stored_and_not_shown_to_the_model(where: str) -> None:
    whole = "head " + "x" * 60_000 + " tail"

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(None, (CALL,))
        yield ToolResult("c1", *limit_result(whole))
        (result,) = [item for item in await request.history() if item["role"] == "tool"]
        assert set(result) == {"role", "tool_call_id", "content"}
        assert len(result["content"]) <= MAX_SHOWN
        yield Step("It is long.")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            assert await node.say("read it") == ["It is long."]
            (session,) = (await node.store.sessions.find()).items
            (result,) = [
                message
                for message in await node.store.transcript(session.id).load()
                if message["role"] == "tool"
            ]
            assert result["whole"] == whole
            assert result["content"].startswith("head ")

    asyncio.run(play())


def test_agent_without_an_answer_counts_as_failed(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(None, (CALL,))
        yield ToolResult("c1", "blue")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            (told,) = await node.say("hello")
            assert "something went wrong" in told

    asyncio.run(play())


def test_failure_after_the_answer_is_ignored(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step("Hello.")
        raise AgentFailed("too late")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            assert await node.say("hello") == ["Hello."]

    asyncio.run(play())


@pytest.mark.parametrize("turns", [2, 8])
def test_too_long_history_is_compacted_and_tried_once_more(where: str, turns: int) -> None:
    async def play() -> None:
        limit = 100_000
        asked = 0

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            nonlocal asked
            asked += 1
            shown = sum(len(str(message["content"])) for message in await request.history())
            if shown > limit:
                raise ContextOverflow("too much")
            yield Step("re " + request.text)

        async with running_gateway(where, Scripted(script)) as node:
            for _ in range(turns):
                await node.say("word " * 800)
            limit = turns * 6000
            before, asked = asked, 0
            assert before == turns
            assert await node.say("and now?") == ["re and now?"]
            assert asked == 2
            told = await node.store.transcript((await node.session()).id).history()
            assert "Summary" in str(told[0]["content"])
            limit = 10
            (told_so,) = await node.say("again")
            assert "too long for the model" in told_so
            assert "/new" in told_so

    asyncio.run(play())


def test_key_of_a_note_tells_it_from_an_answer(tmp_path: Path) -> None:
    """A note is in no transcript, so a page that reads the transcript shows it apart."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Note("The answer was cut off.")
        yield Note("I cannot see pictures.", "pictures")
        yield Step("Once upon a")

    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), Scripted(script)) as node:
            for _ in range(2):
                await node.say("hello")
            deliveries = (await node.store.outbox.find()).items
            kinds = [each.delivery.partition(":")[0] for each in deliveries if ":" in each.delivery]
            assert kinds == ["note", "note", "note"]
            assert len(deliveries) == 5

    asyncio.run(play())
