"""Every promise of an agent as a test (`agents/base.py` numbers them).

An agent is tested with a subclass that returns an agent which follows a script:

    class TestMyAgent(AgentContract):
        @contextmanager
        def agent(self, *script: ScriptStep) -> Iterator[Agent]:
            yield MyAgent(...)

A script lists the steps of the model (or program, or endpoint) behind the agent. The user message
asks for the same steps in words that the parrot agent understands, so that it can be tested too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tertulia.agents.base import NO_PARAMETERS, Agent, Delta, Event, Step, Tool, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.source import Source
from tertulia.errors import AgentStopped
from tertulia.testing.scripted_gateway import RecordedEvents, ScriptedGateway

# Long enough for any machine; a test that reaches it has failed.
_TIMEOUT = 60.0

WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


class ScriptStep(NamedTuple):
    """One step of a script: text, or tool calls with their arguments as the model writes them."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def call_step(*calls: tuple[str, str]) -> ScriptStep:
    """Return a step that calls tools, each given by name and arguments."""
    return ScriptStep("", tuple(ToolCall(f"call_{at}", *call) for at, call in enumerate(calls)))


def request_text(saying: ScriptStep) -> str:
    """Return the user message that asks the parrot agent for a step."""
    return "\n".join(f"call {call.name} {call.arguments}" for call in saying.calls) or "hello"


ANSWER = ScriptStep("Well then, ¡adiós! 再见 👋")


class AgentContract:
    """The promises of `agents/base.py`."""

    # True if every step reports its usage; False for programs that do not know it.
    reports_usage = True

    def agent(self, *script: ScriptStep) -> AbstractContextManager[Agent]:
        """Return an agent that follows a script once."""
        raise NotImplementedError

    @pytest.fixture
    def gateway(self, tmp_path: Path) -> Iterator[ScriptedGateway]:
        gateway = ScriptedGateway(tmp_path)
        yield gateway
        roles = [message["role"] for message in gateway.stored]
        assert roles[:1] == ["user"]

    def run(self, gateway: ScriptedGateway, *script: ScriptStep, **options: Any) -> RecordedEvents:
        """Run one turn with a script."""

        async def exchange() -> RecordedEvents:
            with self.agent(*script) as agent:
                try:
                    async with asyncio.timeout(_TIMEOUT):
                        return await gateway.say(agent, request_text(script[0]), **options)
                finally:
                    await agent.close()

        return asyncio.run(exchange())

    # -- 1, 4, 6: the answer

    def test_run_ends_with_a_stored_answer(self, gateway: ScriptedGateway) -> None:
        recorded = self.run(gateway, ANSWER)
        assert recorded.answer
        assert isinstance(recorded.events[-1], Step)
        assert gateway.stored[-1]["role"] == "assistant"
        assert gateway.stored[-1]["content"] == recorded.answer

    def test_streamed_text_equals_the_stored_answer(self, gateway: ScriptedGateway) -> None:
        gateway.tools = (echo(),)
        recorded = self.run(gateway, call_step(("echo", '{"word": "hola"}')), ANSWER)
        streamed = ""
        for event in recorded.events:
            if isinstance(event, Delta):
                streamed += event.text
            elif isinstance(event, Step):
                assert streamed in ("", event.text)
                streamed = ""
        assert streamed == ""

    def test_usage_is_reported(self, gateway: ScriptedGateway) -> None:
        gateway.tools = (echo(),)
        recorded = self.run(gateway, call_step(("echo", '{"word": "hola"}')), ANSWER)
        assert recorded.answer
        if self.reports_usage:
            assert all(step.usage is not None for step in recorded.steps)
            assert all(usage.input > 0 and usage.model for usage in recorded.usages)

    # -- 2, 3: tools

    def test_no_tool_runs_before_its_call_is_stored(self, gateway: ScriptedGateway) -> None:
        stored_calls: list[list[str]] = []

        async def look(arguments: dict[str, Any]) -> str:
            steps = [message.get("tool_calls", ()) for message in gateway.stored]
            stored_calls.append([call["id"] for calls in steps for call in calls])
            return "seen"

        gateway.tools = (Tool("look", "Looks.", NO_PARAMETERS, look),)
        recorded = self.run(gateway, call_step(("look", "{}")), ANSWER)
        assert recorded.answer
        assert stored_calls == [[call.id for call in recorded.steps[0].tool_calls]]
        assert len(stored_calls[0]) == 1

    def test_tools_run_together_and_results_keep_the_order_of_calls(
        self, gateway: ScriptedGateway
    ) -> None:
        second_has_run = asyncio.Event()

        async def first(arguments: dict[str, Any]) -> str:
            await second_has_run.wait()
            return "first"

        async def second(arguments: dict[str, Any]) -> str:
            second_has_run.set()
            return "second"

        gateway.tools = (
            Tool("first", "Waits.", NO_PARAMETERS, first),
            Tool("second", "Goes.", NO_PARAMETERS, second),
        )
        recorded = self.run(gateway, call_step(("first", "{}"), ("second", "{}")), ANSWER)
        assert recorded.answer
        assert [result.content for result in recorded.results] == ["first", "second"]
        calls = [call.id for call in recorded.steps[0].tool_calls]
        assert [result.call_id for result in recorded.results] == calls
        roles = [message["role"] for message in gateway.stored]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]

    @pytest.mark.parametrize(
        ("call", "expected"),
        [
            (("echo", '{"word": "hola"}'), "hola"),
            (("nobody", "{}"), "there is no tool 'nobody'. Available: broken, echo"),
            (("broken", "{}"), "broken failed: ZeroDivisionError"),
            (("echo", '{"word": "ho'), "not valid JSON"),
            (("echo", '["hola"]'), "not a JSON object"),
            (("echo", "{}"), "word is missing"),
            (("echo", '{"word": 7}'), "word must be string, not 7"),
            (("echo", '{"word": "a", "volume": 11}'), "volume is unknown; allowed: word"),
        ],
    )
    def test_every_outcome_of_a_call_becomes_its_result(
        self, gateway: ScriptedGateway, call: tuple[str, str], expected: str
    ) -> None:
        async def broken(arguments: dict[str, Any]) -> str:
            raise ZeroDivisionError("division by zero")

        gateway.tools = (echo(), Tool("broken", "Breaks.", NO_PARAMETERS, broken))
        recorded = self.run(gateway, call_step(call), ANSWER)
        assert recorded.answer
        (result,) = recorded.results
        assert expected in str(result.content)
        assert gateway.stored[-2]["content"] == result.content

    # -- 5: stop

    def test_stop_before_the_run_begins(self, gateway: ScriptedGateway) -> None:
        gateway.stop.set()
        recorded = self.run(gateway, ANSWER)
        assert isinstance(recorded.problem, AgentStopped)
        assert recorded.events == []

    def test_stop_ends_a_tool_and_keeps_what_was_finished(self, gateway: ScriptedGateway) -> None:
        done: list[str] = []

        async def quick(arguments: dict[str, Any]) -> str:
            return "finished"

        async def slow(arguments: dict[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                done.append("cancelled")
            return "never"

        async def stop_at_the_first_result(event: Event) -> None:
            if isinstance(event, ToolResult):
                gateway.stop.set()

        gateway.tools = (
            Tool("quick", "Ends.", NO_PARAMETERS, quick),
            Tool("slow", "Does not.", NO_PARAMETERS, slow),
        )
        script = call_step(("quick", "{}"), ("slow", "{}")), ANSWER
        recorded = self.run(gateway, *script, watcher=stop_at_the_first_result)
        assert isinstance(recorded.problem, AgentStopped)
        assert [result.content for result in recorded.results] == ["finished"]
        assert done == ["cancelled"]

    # -- 7: messages that arrive during the run

    def test_agent_asks_for_messages_sent_during_the_run(self, gateway: ScriptedGateway) -> None:
        async def wait(arguments: dict[str, Any]) -> str:
            gateway.meanwhile.append("make it two")
            return "waited"

        gateway.tools = (Tool("wait", "Waits.", NO_PARAMETERS, wait),)
        recorded = self.run(gateway, call_step(("wait", "{}")), ANSWER)
        assert recorded.answer
        assert gateway.steered == ["make it two"]
        contents = [message["content"] for message in gateway.stored]
        assert contents[-3:] == ["waited", "make it two", recorded.answer]

    # -- 9: parallel runs, and cleaning up

    def test_an_abandoned_run_releases_its_resources(self, gateway: ScriptedGateway) -> None:
        """`ScriptedGateway` checks that no task is left behind."""
        cancelled: list[bool] = []

        async def slow(arguments: dict[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(True)
            return "never"

        async def quick(arguments: dict[str, Any]) -> str:
            return "quick"

        async def leave(event: Event) -> None:
            if isinstance(event, ToolResult):
                raise _ReaderLeft

        gateway.tools = (
            Tool("quick", "Ends.", NO_PARAMETERS, quick),
            Tool("slow", "Does not.", NO_PARAMETERS, slow),
        )
        with pytest.raises(_ReaderLeft):
            self.run(gateway, call_step(("quick", "{}"), ("slow", "{}")), ANSWER, watcher=leave)
        assert cancelled == [True]
        gateway.stored = [{"role": "user"}]

    def test_many_runs_at_once(self, tmp_path: Path) -> None:
        count = 5
        saying = call_step(("echo", '{"word": "hola"}'))

        async def run_one(agent: Agent, number: int) -> RecordedEvents:
            folder = tmp_path / str(number)
            folder.mkdir()
            source = Source("telegram", str(number), user_id=str(number))
            gateway = ScriptedGateway(folder, tools=(echo(),), source=source)
            return await gateway.say(agent, request_text(saying), is_alone=False)

        async def run_all() -> list[RecordedEvents]:
            with self.agent(*[saying] * count, *[ANSWER] * count) as agent:
                try:
                    return await asyncio.gather(
                        *(run_one(agent, number) for number in range(count))
                    )
                finally:
                    await agent.close()

        all_recorded = asyncio.run(run_all())
        # Calls take the script steps in any order, so only the end of each run is checked.
        assert len(all_recorded) == count
        assert all(events.problem is None and events.answer is not None for events in all_recorded)

    def test_name_is_declared(self) -> None:
        with self.agent(ANSWER) as agent:
            assert agent.name
            assert type(agent).__name__ in repr(agent)


class _ReaderLeft(Exception):
    """Raised by a watcher that stops reading the run."""


def echo() -> Tool:
    """Return a tool that answers with its argument."""

    async def call(arguments: dict[str, Any]) -> str:
        return str(arguments["word"])

    return Tool("echo", "Says a word.", WORD, call)
