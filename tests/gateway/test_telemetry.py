"""Spans of turns: what they are called, how they are nested, and that no text is in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tertulia.agents.base import Event, Request, Step, Tool, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import AgentUnavailable
from tertulia.gateway import telemetry
from tests.gateway.running_gateway import ANA, Scripted, running_gateway

SECRET = "nobody else may read this"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


async def look(arguments: dict[str, object]) -> str:
    return SECRET


LOOK = Tool("look", "Looks.", {"type": "object"}, look)


class ModelScript(Scripted):
    """An agent that calls a model and a tool, as the agents for providers do."""

    model = "m-1"


async def script(request: Request) -> AsyncGenerator[Event, None]:
    await request.history()
    if "fail" in request.text:
        raise AgentUnavailable(SECRET)
    yield Step(SECRET, (ToolCall("c1", "look", {"at": SECRET}),), usage=Usage(7, 2, model="m-1b"))
    (tool,) = [tool for tool in request.tools if tool.name == "look"]
    yield ToolResult("c1", await tool.call({"at": SECRET}))
    await request.history()
    yield Step(SECRET, usage=Usage(1, 1, cache_read=9, provider="p", model="m-1b"))


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def test_a_turn_has_spans_without_content(where: str, exporter: InMemorySpanExporter) -> None:
    async def play() -> str:
        async with running_gateway(where, ModelScript(script), tools=[LOOK]) as node:
            await node.say(SECRET)
            return (await node.session()).id

    session_id = asyncio.run(play())
    (run,) = named(exporter, "invoke_agent scripted")
    calls = named(exporter, "chat m-1")
    (tool,) = named(exporter, "execute_tool look")
    assert len(calls) == 2
    assert run.context is not None
    for span in (*calls, tool):
        assert span.parent is not None
        assert span.parent.span_id == run.context.span_id
    assert calls[1].attributes is not None
    assert dict(calls[1].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "scripted",
        "gen_ai.provider.name": "p",
        "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-1b",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 9,
        "session.id": session_id,
        "tertulia.platform": "telegram",
        "user.id": calls[1].attributes["user.id"],
    }
    written = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert SECRET not in written
    assert f'"{ANA.user_id}"' not in written
    assert str(calls[1].attributes["user.id"]).startswith("user_")


def test_a_failure_is_recorded_by_its_code(where: str, exporter: InMemorySpanExporter) -> None:
    async def play() -> None:
        async with running_gateway(where, ModelScript(script), tools=[LOOK]) as node:
            await node.say("fail")

    asyncio.run(play())
    for name in ("invoke_agent scripted", "chat m-1"):
        (span,) = named(exporter, name)
        assert span.attributes is not None
        assert span.attributes["error.type"] == "agent_unavailable"
        assert not span.status.is_ok
        assert SECRET not in span.to_json()


def test_without_an_sdk_there_is_no_tracer() -> None:
    assert telemetry.is_installed()
    assert telemetry.get_tracer() is None


@pytest.fixture
def _no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    telemetry.is_installed.cache_clear()
    yield
    telemetry.is_installed.cache_clear()


@pytest.mark.usefixtures("_no_opentelemetry")
def test_without_opentelemetry_nothing_changes(where: str) -> None:
    assert not telemetry.is_installed()
    assert telemetry.get_tracer() is None

    async def play() -> None:
        async with running_gateway(where, ModelScript(script), tools=[LOOK]) as node:
            assert await node.say("hello") == [SECRET]

    asyncio.run(play())
