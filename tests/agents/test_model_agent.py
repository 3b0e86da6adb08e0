"""Model agents of both providers: every response is an answer or a typed error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia import AgentFailed, AgentStopped, AgentUnavailable, ConfigError, ContextOverflow
from tertulia.agents import Delta, Event, Limits, Tool
from tertulia.agents.base import NO_PARAMETERS
from tertulia.agents.model_agent import REFUSED, REFUSED_MIDWAY, TRUNCATED
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import ANTHROPIC, OPENAI, Provider, run_turn
from tests.servers.models import JSON, Call, ModelServer, Reply, refuses

HELLO = Call("c1", "echo", '{"word": "hola"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    provider = request.param
    assert isinstance(provider, Provider)
    return provider


class TestOptions:
    def test_options_cannot_replace_fields_of_the_agent(self, provider: Provider) -> None:
        with pytest.raises(ConfigError, match="messages"):
            provider.make(provider.options(model="test-1", options={"messages": []}))


class TestAnswers:
    def test_answer_is_streamed(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.says("It is sunny in Ávila"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "It is sunny in Ávila"
        assert [event.text for event in recorded.events if isinstance(event, Delta)] == [
            "It",
            " is",
            " sunny",
            " in",
            " Ávila",
        ]

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
    def test_chunks_may_be_cut_anywhere(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, size: int
    ) -> None:
        text = "año 日本語 👩‍👩‍👧 \u2028 fin"
        server.script(
            provider.says("", Call("c1", "echo", '{"word": "日本"}')).split(size),
            provider.says(text).split(size),
        )
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == text
        assert [result.content for result in recorded.results] == ["日本"]

    def test_parallel_calls(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        calls = [Call(f"c{n}", "echo", f'{{"word": "{n}"}}') for n in range(4)]
        server.script(provider.says("I look", *calls), provider.says("done"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "done"
        assert recorded.steps[0].text == "I look"
        assert [result.content for result in recorded.results] == ["0", "1", "2", "3"]
        assert [result.call_id for result in recorded.results] == ["c0", "c1", "c2", "c3"]

    def test_calls_without_ids_get_distinct_ids(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        twice = [Call("", "echo", '{"word": "a"}'), Call("", "echo", '{"word": "b"}')]
        server.script(provider.says("", *twice), provider.says("done"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "done"
        assert len({result.call_id for result in recorded.results}) == 2
        assert [result.content for result in recorded.results] == ["a", "b"]

    def test_response_that_is_not_streamed(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.whole("", HELLO), provider.whole("¡Hola!"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == recorded.shown == "¡Hola!"
        assert [result.content for result in recorded.results] == ["hola"]
        assert [usage.input for usage in recorded.usages] == [10, 10]

    def test_truncated_answer_has_a_note(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        reason = {"finish": "length"} if provider is OPENAI else {"stop": "max_tokens"}
        server.script(provider.says("Once upon a", **reason))
        recorded = run_turn(gateway, provider.agent(server))
        assert (recorded.answer, recorded.notes) == ("Once upon a", [TRUNCATED])

    def test_steps_are_limited(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(*[provider.says("", HELLO)] * 3)
        recorded = run_turn(gateway, provider.agent(server, max_steps=3))
        assert "I stopped after 3 steps" in (recorded.answer or "")
        assert recorded.shown == recorded.answer
        assert len(server.seen) == len(recorded.results) == 3

    def test_turn_continues_after_overflow(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        """The agent has no state: a second run begins where the history ends."""
        server.script(provider.says("", HELLO), refuses(400, "prompt is too long: 9 > 8"))
        recorded = run_turn(gateway, provider.agent(server))
        assert isinstance(recorded.problem, ContextOverflow)
        assert [result.content for result in recorded.results] == ["hola"]
        server.script(provider.says("on we go"))
        assert run_turn(gateway, provider.agent(server), "and now?").answer == "on we go"
        assert "hola" in str(server.seen[-1].body["messages"])

    def test_complete_answer_survives_a_connection_left_open(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.says("all of it").ending("hang"))
        recorded = run_turn(gateway, provider.agent(server, limits=Limits(between=0.2)))
        assert recorded.answer == "all of it"
        assert len(recorded.usages) == 1

    def test_complete_answer_survives_a_broken_connection(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.says("all of it").ending("cut"))
        assert run_turn(gateway, provider.agent(server)).answer == "all of it"

    def test_invalid_characters_are_replaced_in_requests(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        gateway.system = "half \ud83d"
        server.script(provider.says("yes"))
        assert run_turn(gateway, provider.agent(server), "x \ude00").answer == "yes"
        assert "half \ufffd" in str(server.seen[0].body)


class TestRefusals:
    def test_refusal_is_an_answer_that_says_so(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        reason = {"finish": "content_filter"} if provider is OPENAI else {"stop": "refusal"}
        server.script(provider.says("", **reason), provider.says("First you", **reason))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == recorded.shown == REFUSED
        assert recorded.steps[0].extra["refused"] is True
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == recorded.shown == f"First you{REFUSED_MIDWAY}"

    def test_empty_answer_is_retried_once(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.says(""), provider.says("here I am"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "here I am"
        assert len(recorded.usages) == 2

    def test_two_empty_answers_fail(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(provider.says(""), provider.says(" \n"))
        recorded = run_turn(gateway, provider.agent(server))
        assert isinstance(recorded.problem, AgentFailed)
        assert "empty answer" in recorded.problem.message
        assert len(recorded.usages) == 2


class TestStop:
    def test_stop_in_the_middle_of_an_answer(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        whole = provider.says("one two three")
        server.script(whole.ending("hang", after=len(whole.pieces) - 3))

        async def stop(event: Event) -> None:
            gateway.stop.set()

        recorded = run_turn(gateway, provider.agent(server), watcher=stop)
        assert isinstance(recorded.problem, AgentStopped)
        assert recorded.problem.partial == recorded.shown == "one"
        assert len(recorded.usages) == 1  # the usage until then is counted

    def test_stop_before_the_first_byte(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        async def stop(arguments: dict[str, Any]) -> str:
            return "go on"

        gateway.tools = (Tool("stop", "Stops.", NO_PARAMETERS, stop),)
        server.script(provider.says("", Call("c", "stop")), Reply(end="hang"))

        async def stop_when_asked_again(event: Event) -> None:
            import asyncio

            async def wait() -> None:
                await asyncio.to_thread(server.arrived.acquire)
                await asyncio.to_thread(server.arrived.acquire)
                gateway.stop.set()

            if not waiting:
                waiting.append(asyncio.ensure_future(wait()))

        waiting: list[Any] = []
        recorded = run_turn(gateway, provider.agent(server), watcher=stop_when_asked_again)
        assert isinstance(recorded.problem, AgentStopped)
        assert len(server.seen) == 2

    def test_stop_before_a_retry(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        async def sleep(seconds: float) -> None:
            import asyncio

            gateway.stop.set()
            await asyncio.Event().wait()

        server.script(refuses(500))
        recorded = run_turn(gateway, provider.agent(server, sleep=sleep))
        assert isinstance(recorded.problem, AgentStopped)
        assert len(server.seen) == 1


class TestInvalidResponses:
    @pytest.mark.parametrize(
        "reply",
        [
            Reply([b"data: {not json}\n\n"]),
            Reply([b"data: [1, 2]\n\n"]),
            Reply([b"<html>It works!</html>"], kind="text/html"),
            Reply([b"\xff\xfe\xfa"], kind=JSON),
            Reply([b"[" * 100_000], kind=JSON),
        ],
    )
    def test_invalid_response_fails_with_a_hint(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, reply: Reply
    ) -> None:
        server.script(reply)
        recorded = run_turn(gateway, provider.agent(server))
        assert type(recorded.problem) is AgentFailed
        assert server.url in recorded.problem.message
        assert recorded.problem.hint
        assert len(server.seen) == 1

    @pytest.mark.parametrize("reply", [Reply(), Reply([b": hello\n\n"]), Reply([b"{}"], kind=JSON)])
    def test_empty_response_is_unavailable(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, reply: Reply
    ) -> None:
        server.script(*[reply] * 4)
        assert isinstance(run_turn(gateway, provider.agent(server)).problem, AgentUnavailable)
