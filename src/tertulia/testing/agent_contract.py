"""Every promise of an agent as a test (`agents/base.py` numbers them).

An agent proves itself by a subclass that says how to come by one which does what a script says:

    class TestMyAgent(AgentContract):
        @contextmanager
        def agent(self, *script: Saying) -> Iterator[Agent]:
            yield MyAgent(...)

A script is what the model (the program, the endpoint) behind the agent gives, step by step. The
person says the same in words that the parrot understands, so that it can prove itself too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tertulia.agents.base import NO_PARAMETERS, Agent, Delta, Event, Step, Tool, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.source import Source
from tertulia.errors import AgentStopped
from tertulia.testing.scripted_gateway import (
    RecordedEvents,
    ScriptedGateway,
)

# Long enough for any machine; a test that needs it has failed.
_PATIENCE = 60.0

WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


class Saying(NamedTuple):
    """One step of a script: words, or calls whose arguments are the text a model writes."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


def calling(*calls: tuple[str, str]) -> Saying:
    """A step that calls tools, each given by name and arguments."""
    return Saying("", tuple(ToolCall(f"call_{at}", *call) for at, call in enumerate(calls)))


def asked_for(saying: Saying) -> str:
    """What a person says for it."""
    return "\n".join(f"call {call.name} {call.arguments}" for call in saying.calls) or "hello"


ANSWER = Saying("Well then, ¡adiós! 再见 👋")


class AgentContract:
    """What `agents/base.py` promises."""

    # Whether every step comes with what it used: not for programs that do not know it.
    reports_usage = True

    def agent(self, *script: Saying) -> AbstractContextManager[Agent]:
        """An agent that does what a script says, once."""
        raise NotImplementedError

    @pytest.fixture
    def talk(self, tmp_path: Path) -> Iterator[ScriptedGateway]:
        talk = ScriptedGateway(tmp_path)
        yield talk
        roles = [message["role"] for message in talk.stored]
        assert roles[:1] == ["user"]

    def run(self, talk: ScriptedGateway, *script: Saying, **options: Any) -> RecordedEvents:
        """One exchange by a script."""

        async def exchange() -> RecordedEvents:
            with self.agent(*script) as agent:
                try:
                    async with asyncio.timeout(_PATIENCE):
                        return await talk.say(agent, asked_for(script[0]), **options)
                finally:
                    await agent.close()

        return asyncio.run(exchange())

    # -- 1, 4, 6: the answer

    def test_it_ends_with_an_answer_that_is_stored(self, talk: ScriptedGateway) -> None:
        heard = self.run(talk, ANSWER)
        assert heard.answer
        assert isinstance(heard.events[-1], Step)
        assert talk.stored[-1]["role"] == "assistant"
        assert talk.stored[-1]["content"] == heard.answer

    def test_what_was_shown_is_what_is_stored(self, talk: ScriptedGateway) -> None:
        talk.tools = (echo(),)
        heard = self.run(talk, calling(("echo", '{"word": "hola"}')), ANSWER)
        shown = ""
        for event in heard.events:
            if isinstance(event, Delta):
                shown += event.text
            elif isinstance(event, Step):
                assert shown in ("", event.text)
                shown = ""
        assert shown == ""

    def test_what_was_spent_is_told(self, talk: ScriptedGateway) -> None:
        talk.tools = (echo(),)
        heard = self.run(talk, calling(("echo", '{"word": "hola"}')), ANSWER)
        assert heard.answer
        if self.reports_usage:
            assert all(step.usage is not None for step in heard.steps)
            assert all(usage.input > 0 and usage.model for usage in heard.usages)

    # -- 2, 3: tools

    def test_no_tool_runs_before_its_call_is_stored(self, talk: ScriptedGateway) -> None:
        seen: list[list[str]] = []

        async def look(arguments: dict[str, Any]) -> str:
            steps = [message.get("tool_calls", ()) for message in talk.stored]
            seen.append([call["id"] for calls in steps for call in calls])
            return "seen"

        talk.tools = (Tool("look", "Looks.", NO_PARAMETERS, look),)
        heard = self.run(talk, calling(("look", "{}")), ANSWER)
        assert heard.answer
        assert seen == [[call.id for call in heard.steps[0].tool_calls]]
        assert len(seen[0]) == 1

    def test_tools_run_together_and_results_keep_the_order_of_calls(
        self, talk: ScriptedGateway
    ) -> None:
        second_has_run = asyncio.Event()

        async def first(arguments: dict[str, Any]) -> str:
            await second_has_run.wait()
            return "first"

        async def second(arguments: dict[str, Any]) -> str:
            second_has_run.set()
            return "second"

        talk.tools = (
            Tool("first", "Waits.", NO_PARAMETERS, first),
            Tool("second", "Goes.", NO_PARAMETERS, second),
        )
        heard = self.run(talk, calling(("first", "{}"), ("second", "{}")), ANSWER)
        assert heard.answer
        assert [result.content for result in heard.results] == ["first", "second"]
        calls = [call.id for call in heard.steps[0].tool_calls]
        assert [result.call_id for result in heard.results] == calls
        roles = [message["role"] for message in talk.stored]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]

    @pytest.mark.parametrize(
        ("call", "told"),
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
    def test_whatever_happens_to_a_call_is_its_result(
        self, talk: ScriptedGateway, call: tuple[str, str], told: str
    ) -> None:
        async def broken(arguments: dict[str, Any]) -> str:
            raise ZeroDivisionError("division by zero")

        talk.tools = (echo(), Tool("broken", "Breaks.", NO_PARAMETERS, broken))
        heard = self.run(talk, calling(call), ANSWER)
        assert heard.answer
        (result,) = heard.results
        assert told in str(result.content)
        assert talk.stored[-2]["content"] == result.content

    # -- 5: stop

    def test_stop_before_it_begins(self, talk: ScriptedGateway) -> None:
        talk.stop.set()
        heard = self.run(talk, ANSWER)
        assert isinstance(heard.problem, AgentStopped)
        assert heard.events == []

    def test_stop_ends_a_tool_and_keeps_what_was_finished(self, talk: ScriptedGateway) -> None:
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
                talk.stop.set()

        talk.tools = (
            Tool("quick", "Ends.", NO_PARAMETERS, quick),
            Tool("slow", "Does not.", NO_PARAMETERS, slow),
        )
        script = calling(("quick", "{}"), ("slow", "{}")), ANSWER
        heard = self.run(talk, *script, watcher=stop_at_the_first_result)
        assert isinstance(heard.problem, AgentStopped)
        assert [result.content for result in heard.results] == ["finished"]
        assert done == ["cancelled"]

    # -- 7: what the person says meanwhile

    def test_it_asks_for_what_was_said_meanwhile(self, talk: ScriptedGateway) -> None:
        async def wait(arguments: dict[str, Any]) -> str:
            talk.meanwhile.append("make it two")
            return "waited"

        talk.tools = (Tool("wait", "Waits.", NO_PARAMETERS, wait),)
        heard = self.run(talk, calling(("wait", "{}")), ANSWER)
        assert heard.answer
        assert talk.steered == ["make it two"]
        contents = [message["content"] for message in talk.stored]
        assert contents[-3:] == ["waited", "make it two", heard.answer]

    # -- 9: many at once, and letting go

    def test_a_run_that_is_left_lets_go(self, talk: ScriptedGateway) -> None:
        """`ScriptedGateway` looks for tasks that were left behind."""
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
                raise _Left

        talk.tools = (
            Tool("quick", "Ends.", NO_PARAMETERS, quick),
            Tool("slow", "Does not.", NO_PARAMETERS, slow),
        )
        with pytest.raises(_Left):
            self.run(talk, calling(("quick", "{}"), ("slow", "{}")), ANSWER, watcher=leave)
        assert cancelled == [True]
        talk.stored = [{"role": "user"}]

    def test_many_runs_at_once(self, tmp_path: Path) -> None:
        count = 5
        saying = calling(("echo", '{"word": "hola"}'))

        async def one(agent: Agent, number: int) -> RecordedEvents:
            place = tmp_path / str(number)
            place.mkdir()
            source = Source("telegram", str(number), user_id=str(number))
            talk = ScriptedGateway(place, tools=(echo(),), source=source)
            return await talk.say(agent, asked_for(saying), is_alone=False)

        async def all_of_them() -> list[RecordedEvents]:
            with self.agent(*[saying] * count, *[ANSWER] * count) as agent:
                try:
                    return await asyncio.gather(*(one(agent, number) for number in range(count)))
                finally:
                    await agent.close()

        heard = asyncio.run(all_of_them())
        # Which script an agent of a provider gets to is the order of its calls; each run ends.
        assert len(heard) == count
        assert all(one.problem is None and one.answer is not None for one in heard)

    def test_it_says_who_it_is(self) -> None:
        with self.agent(ANSWER) as agent:
            assert agent.name
            assert type(agent).__name__ in repr(agent)


class _Left(Exception):
    """Whoever read the run has lost interest."""


def echo(heard: Callable[[str], None] | None = None) -> Tool:
    """A tool that says what it was given."""

    async def call(arguments: dict[str, Any]) -> str:
        word = str(arguments["word"])
        if heard is not None:
            heard(word)
        return word

    return Tool("echo", "Says a word.", WORD, call)
