"""Both model wires, whatever the server on the other end does: an answer, or a typed error."""

from __future__ import annotations

import logging
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia import (
    AgentError,
    AgentFailed,
    AgentStopped,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
    Usage,
)
from tertulia.agents import Delta, Event, Limits, ModelUsage, OpenAIAgent, Retry, Tool
from tertulia.agents.base import NO_PARAMETERS
from tertulia.agents.model_agent import (
    CUT,
    ESTIMATED,
    REFUSED,
    REFUSED_ON_THE_WAY,
)
from tertulia.agents.transport import (
    Transport,
    retry_after,
)
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.scene import ANTHROPIC, KEY, OPENAI, Naps, Wired, talked
from tests.servers.models import JSON, Call, ModelServer, Reply, anthropic, openai, refuses, start

HELLO = Call("c1", "echo", '{"word": "hola"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def talk(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda wired: wired.name)
def wired(request: pytest.FixtureRequest) -> Wired:
    found = request.param
    assert isinstance(found, Wired)
    return found


class TestAnswers:
    def test_an_answer_comes_word_by_word(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.says("It is sunny in Ávila"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "It is sunny in Ávila"
        assert [event.text for event in heard.events if isinstance(event, Delta)] == [
            "It",
            " is",
            " sunny",
            " in",
            " Ávila",
        ]

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
    def test_bytes_may_be_cut_anywhere(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, size: int
    ) -> None:
        text = "año 日本語 👩‍👩‍👧 \u2028 fin"
        server.script(
            wired.says("", Call("c1", "echo", '{"word": "日本"}')).split(size),
            wired.says(text).split(size),
        )
        heard = talked(talk, wired.agent(server))
        assert heard.answer == text
        assert [result.content for result in heard.results] == ["日本"]

    def test_parallel_calls(self, wired: Wired, server: ModelServer, talk: ScriptedGateway) -> None:
        calls = [Call(f"c{n}", "echo", f'{{"word": "{n}"}}') for n in range(4)]
        server.script(wired.says("I look", *calls), wired.says("done"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "done"
        assert heard.steps[0].text == "I look"
        assert [result.content for result in heard.results] == ["0", "1", "2", "3"]
        assert [result.call_id for result in heard.results] == ["c0", "c1", "c2", "c3"]

    def test_calls_without_ids_of_their_own(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        twice = [Call("", "echo", '{"word": "a"}'), Call("", "echo", '{"word": "b"}')]
        server.script(wired.says("", *twice), wired.says("done"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "done"
        assert len({result.call_id for result in heard.results}) == 2
        assert [result.content for result in heard.results] == ["a", "b"]

    def test_an_answer_that_is_not_streamed(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.whole("", HELLO), wired.whole("¡Hola!"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == heard.shown == "¡Hola!"
        assert [result.content for result in heard.results] == ["hola"]
        assert [usage.input for usage in heard.usages] == [10, 10]

    def test_the_longest_answer_is_said_to_be_cut(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        reason = {"finish": "length"} if wired is OPENAI else {"stop": "max_tokens"}
        server.script(wired.says("Once upon a", **reason))
        heard = talked(talk, wired.agent(server))
        assert (heard.answer, heard.notes) == ("Once upon a", [CUT])

    def test_the_steps_have_a_limit(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(*[wired.says("", HELLO)] * 3)
        heard = talked(talk, wired.agent(server, max_steps=3))
        assert "I stopped after 3 steps" in (heard.answer or "")
        assert heard.shown == heard.answer
        assert len(server.seen) == len(heard.results) == 3

    def test_a_turn_that_was_cut_off_goes_on(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        """Nothing is kept by the agent: a second run begins where the history ends."""
        server.script(wired.says("", HELLO), refuses(400, "prompt is too long: 9 > 8"))
        heard = talked(talk, wired.agent(server))
        assert isinstance(heard.problem, ContextOverflow)
        assert [result.content for result in heard.results] == ["hola"]
        server.script(wired.says("on we go"))
        assert talked(talk, wired.agent(server), "and now?").answer == "on we go"
        assert "hola" in str(server.seen[-1].body["messages"])

    def test_a_server_that_does_not_hang_up(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.says("all of it").ending("hang"))
        heard = talked(talk, wired.agent(server, limits=Limits(between=0.2)))
        assert heard.answer == "all of it"
        assert len(heard.usages) == 1

    def test_a_connection_that_breaks_after_the_end(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.says("all of it").ending("cut"))
        assert talked(talk, wired.agent(server)).answer == "all of it"

    def test_characters_that_were_cut_in_two(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        halves = ["a \ud83d", "\ude00", " \ud83d", "b", "\ude00"]
        server.script(
            openai.events(*(openai.chunk({"content": half}) for half in halves), "[DONE]")
        )
        heard = talked(talk, OPENAI.agent(server))
        assert heard.answer == heard.shown == "a 😀 \ufffdb\ufffd"

    def test_what_is_no_text_is_sent_as_text(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        talk.system = "half \ud83d"
        server.script(wired.says("yes"))
        assert talked(talk, wired.agent(server), "x \ude00").answer == "yes"
        assert "half \ufffd" in str(server.seen[0].body)


class TestRefusals:
    def test_a_refusal_is_an_answer_that_says_so(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        reason = {"finish": "content_filter"} if wired is OPENAI else {"stop": "refusal"}
        server.script(wired.says("", **reason), wired.says("First you", **reason))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == heard.shown == REFUSED
        assert heard.steps[0].extra == {"refused": True}
        heard = talked(talk, wired.agent(server))
        assert heard.answer == heard.shown == f"First you{REFUSED_ON_THE_WAY}"

    def test_a_refusal_in_the_models_own_words(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(openai.says("", refusal="I cannot help with that."))
        heard = talked(talk, OPENAI.agent(server))
        assert heard.answer == heard.shown == "I cannot help with that."
        assert heard.steps[0].extra == {"refused": True}

    def test_an_empty_answer_is_asked_for_once_more(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.says(""), wired.says("here I am"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "here I am"
        assert len(heard.usages) == 2

    def test_two_empty_answers_are_a_failure(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(wired.says(""), wired.says(" \n"))
        heard = talked(talk, wired.agent(server))
        assert isinstance(heard.problem, AgentFailed)
        assert "empty answer" in heard.problem.message
        assert len(heard.usages) == 2


class TestOverflow:
    @pytest.mark.parametrize(
        ("status", "message", "code"),
        [
            (400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
            (400, "Your input exceeds the context window of this model.", None),
            (400, "prompt is too long: 208310 tokens > 200000 maximum", None),
            (400, "input length and `max_tokens` exceed context limit: 5 + 4 > 8", None),
            (400, "the request exceeds the available context size", "exceed_context_size_error"),
            (400, "The input token count (7) exceeds the maximum number of tokens allowed", None),
            (422, "Please reduce the length of the messages or completion.", None),
            (413, "Request exceeds the maximum size", "request_too_large"),
        ],
    )
    def test_it_is_known_by_its_name(
        self,
        wired: Wired,
        server: ModelServer,
        talk: ScriptedGateway,
        status: int,
        message: str,
        code: str | None,
    ) -> None:
        server.script(refuses(status, message, code=code))
        heard = talked(talk, wired.agent(server))
        assert isinstance(heard.problem, ContextOverflow)
        assert heard.events == []
        assert len(server.seen) == 1

    @pytest.mark.parametrize(
        "message", ["max_tokens is too large", "tools.0: bad schema", "Unsupported value"]
    )
    def test_other_complaints_are_not(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, message: str
    ) -> None:
        server.script(refuses(400, message))
        heard = talked(talk, wired.agent(server))
        assert type(heard.problem) is AgentFailed
        assert message in heard.problem.message
        assert heard.problem.hint
        assert len(server.seen) == 1

    def test_in_the_middle_of_a_stream(self, server: ModelServer, talk: ScriptedGateway) -> None:
        error = {"error": {"message": "too long", "code": "context_length_exceeded"}}
        server.script(openai.events(error))
        assert isinstance(talked(talk, OPENAI.agent(server)).problem, ContextOverflow)

    def test_no_room_to_answer(self, server: ModelServer, talk: ScriptedGateway) -> None:
        server.script(anthropic.says("", stop="model_context_window_exceeded"))
        assert isinstance(talked(talk, ANTHROPIC.agent(server)).problem, ContextOverflow)


class TestRetries:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
    def test_what_passes_is_tried_again(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, status: int
    ) -> None:
        naps = Naps()
        server.script(refuses(status), refuses(status), wired.says("at last"))
        heard = talked(talk, wired.agent(server, sleep=naps))
        assert heard.answer == "at last"
        assert naps.taken == [0.5, 1.0]
        assert len(heard.usages) == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 307])
    def test_what_does_not_pass_is_not(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, status: int
    ) -> None:
        server.script(refuses(status))
        heard = talked(talk, wired.agent(server))
        assert type(heard.problem) is AgentFailed
        assert heard.problem.status == status
        assert heard.problem.hint
        assert not heard.problem.retryable
        assert len(server.seen) == 1

    def test_money_does_not_come_back_by_waiting(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(refuses(429, "You exceeded your quota", code="insufficient_quota"))
        heard = talked(talk, wired.agent(server))
        assert type(heard.problem) is AgentFailed
        assert "money" in (heard.problem.hint or "")

    def test_a_server_may_say_that_it_is_no_use(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(refuses(500, **{"x-should-retry": "false"}))
        assert type(talked(talk, wired.agent(server)).problem) is AgentFailed

    def test_retry_after_is_obeyed(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        naps = Naps()
        server.script(
            refuses(429, retry_after="7"),
            refuses(429, **{"retry-after-ms": "2500"}),
            refuses(429, retry_after="0"),
            wired.says("at last"),
        )
        heard = talked(talk, wired.agent(server, sleep=naps))
        assert heard.answer == "at last"
        assert naps.taken == [7.0, 2.5, 2.0]  # where nothing is asked, its own waiting time

    def test_a_long_wait_is_left_to_others(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(refuses(429, retry_after="3600"))
        heard = talked(talk, wired.agent(server))
        assert isinstance(heard.problem, AgentUnavailable)
        assert heard.problem.retryable
        assert heard.problem.retry_after == 3600
        assert len(server.seen) == 1

    def test_it_gives_up(self, wired: Wired, server: ModelServer, talk: ScriptedGateway) -> None:
        server.script(*[refuses(500)] * 9)
        heard = talked(talk, wired.agent(server, retry=Retry(tries=3)))
        assert isinstance(heard.problem, AgentUnavailable)
        assert len(server.seen) == 3

    @pytest.mark.parametrize("end", ["reset", "cut"])
    def test_a_connection_that_breaks_before_the_first_byte(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, end: Any
    ) -> None:
        server.script(Reply(end=end), wired.says("at last"))
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "at last"
        assert len(server.seen) == 2

    @pytest.mark.parametrize("end", ["reset", "cut", "well"])
    def test_a_stream_that_breaks_before_anything_was_shown(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, end: Any
    ) -> None:
        """The call that was half written is not run, so asking again is safe. It is paid for."""
        server.script(
            wired.says("", HELLO).ending(end, after=3), wired.says("", HELLO), wired.says("end")
        )
        heard = talked(talk, wired.agent(server))
        assert heard.answer == "end"
        assert len(heard.results) == 1
        assert isinstance(heard.events[0], ModelUsage)

    @pytest.mark.parametrize("end", ["reset", "cut", "well"])
    def test_a_stream_that_breaks_after_something_was_shown(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, end: Any
    ) -> None:
        whole = wired.says("one two three four")
        pieces = [at for at, piece in enumerate(whole.pieces) if b"three" in piece]
        server.script(whole.ending(end, after=pieces[0]), wired.says("never asked"))
        heard = talked(talk, wired.agent(server))
        assert isinstance(heard.problem, AgentUnavailable)
        assert heard.problem.partial == heard.shown == "one two"
        assert len(server.seen) == 1
        assert len(heard.usages) == 1

    def test_a_server_that_is_not_there(self, wired: Wired, talk: ScriptedGateway) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # taken, and not listened on
            naps = Naps()
            url = f"http://127.0.0.1:{held.getsockname()[1]}"
            agent = wired.make("test-1", base_url=url, sleep=naps, chance=lambda: 1.0)
            heard = talked(talk, agent)
        assert isinstance(heard.problem, AgentUnavailable)
        assert "cannot be reached" in heard.problem.message
        assert naps.taken == [0.25, 0.5, 1.0]

    def test_an_error_in_the_stream(self, server: ModelServer, talk: ScriptedGateway) -> None:
        overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
        server.script(anthropic.events(start(), overloaded), anthropic.says("at last"))
        heard = talked(talk, ANTHROPIC.agent(server))
        assert heard.answer == "at last"
        assert [usage.input for usage in heard.usages] == [10, 10]
        server.script(openai.events({"error": {"code": 502, "message": "x"}}), openai.says("yes"))
        assert talked(talk, OPENAI.agent(server)).answer == "yes"


class TestLimits:
    def test_a_slow_first_byte(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        naps = Naps()
        server.script(Reply(end="hang"))
        heard = talked(talk, wired.agent(server, limits=Limits(first_byte=0.2), sleep=naps))
        assert isinstance(heard.problem, AgentTimeout)
        assert "did not begin" in heard.problem.message
        assert naps.taken == []

    def test_a_stream_that_falls_silent(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        whole = wired.says("one two three")
        server.script(whole.ending("hang", after=len(whole.pieces) - 3))
        heard = talked(talk, wired.agent(server, limits=Limits(between=0.2)))
        assert isinstance(heard.problem, AgentTimeout)
        assert "in the middle" in heard.problem.message
        assert heard.problem.partial == heard.shown
        assert heard.shown.startswith("one")

    def test_an_endless_stream_ends_by_its_size(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        whole = wired.says("la la la")
        words = [at for at, piece in enumerate(whole.pieces) if b"la" in piece]
        server.script(whole.ending("endless", after=words[0] + 1))
        heard = talked(talk, wired.agent(server, limits=Limits(size=20_000)))
        assert isinstance(heard.problem, AgentFailed)
        assert "20000 bytes" in heard.problem.message
        assert heard.problem.partial == heard.shown
        assert len(heard.usages) == 1

    def test_an_endless_stream_ends_by_its_time(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        """A comment now and then keeps a connection alive, but not for ever."""
        server.script(Reply([b": still here\n\n"], end="endless"))
        heard = talked(talk, wired.agent(server, limits=Limits(total=0.2)))
        assert isinstance(heard.problem, AgentTimeout)
        assert "had not finished" in heard.problem.message

    def test_a_line_without_end(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(Reply([b"data: ", b"x" * 1000], end="endless"))
        heard = talked(talk, wired.agent(server, limits=Limits(size=200_000)))
        assert isinstance(heard.problem, AgentFailed)

    def test_a_refusal_without_end(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(Reply([b"no" * 1000], 400, "text/plain", end="endless"))
        heard = talked(talk, wired.agent(server))
        assert type(heard.problem) is AgentFailed
        assert len(str(heard.problem)) < 1000


class TestStop:
    def test_in_the_middle_of_an_answer(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        whole = wired.says("one two three")
        server.script(whole.ending("hang", after=len(whole.pieces) - 3))

        async def stop(event: Event) -> None:
            talk.stop.set()

        heard = talked(talk, wired.agent(server), watcher=stop)
        assert isinstance(heard.problem, AgentStopped)
        assert heard.problem.partial == heard.shown == "one"
        assert len(heard.usages) == 1  # what was read until then is paid for

    def test_before_the_first_byte(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        async def stop(arguments: dict[str, Any]) -> str:
            return "go on"

        talk.tools = (Tool("stop", "Stops.", NO_PARAMETERS, stop),)
        server.script(wired.says("", Call("c", "stop")), Reply(end="hang"))

        async def stop_when_asked_again(event: Event) -> None:
            import asyncio

            async def wait() -> None:
                await asyncio.to_thread(server.arrived.acquire)
                await asyncio.to_thread(server.arrived.acquire)
                talk.stop.set()

            if not waiting:
                waiting.append(asyncio.ensure_future(wait()))

        waiting: list[Any] = []
        heard = talked(talk, wired.agent(server), watcher=stop_when_asked_again)
        assert isinstance(heard.problem, AgentStopped)
        assert len(server.seen) == 2

    def test_while_it_waits_to_try_again(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        async def sleep(seconds: float) -> None:
            import asyncio

            talk.stop.set()
            await asyncio.Event().wait()

        server.script(refuses(500))
        heard = talked(talk, wired.agent(server, sleep=sleep))
        assert isinstance(heard.problem, AgentStopped)
        assert len(server.seen) == 1


class TestNonsense:
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
    def test_it_is_a_clear_failure(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, reply: Reply
    ) -> None:
        server.script(reply)
        heard = talked(talk, wired.agent(server))
        assert type(heard.problem) is AgentFailed
        assert server.url in heard.problem.message
        assert heard.problem.hint
        assert len(server.seen) == 1

    @pytest.mark.parametrize("reply", [Reply(), Reply([b": hello\n\n"]), Reply([b"{}"], kind=JSON)])
    def test_nothing_is_no_answer(
        self, wired: Wired, server: ModelServer, talk: ScriptedGateway, reply: Reply
    ) -> None:
        server.script(*[reply] * 4)
        assert isinstance(talked(talk, wired.agent(server)).problem, AgentUnavailable)

    def test_unknown_events_are_passed_over(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        known = anthropic.says("hello there", HELLO).pieces
        strange = anthropic.events(
            {"type": "content_block_start", "index": 7, "content_block": {"type": "hologram"}},
            {"type": "content_block_delta", "index": 7, "delta": {"type": "photons", "n": 1}},
            {"type": "content_block_delta", "index": 0, "delta": None},
            {"type": "celebration"},
            {"type": None},
        ).pieces
        server.script(
            Reply([*known[:4], *strange, b"retry: 5\nid: 9\n: hm\n\n", *known[4:]]),
            anthropic.says("done"),
        )
        heard = talked(talk, ANTHROPIC.agent(server))
        assert heard.answer == "done"
        assert heard.steps[0].text == "hello there"
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
        assert talked(talk, OPENAI.agent(server)).answer == "hello there"


class TestUsage:
    def test_openai(self, server: ModelServer, talk: ScriptedGateway) -> None:
        told = {
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 20},
        }
        server.script(openai.says("yes", usage=told), openai.says("yes", usage={**told, "cost": 2}))
        heard = talked(talk, OPENAI.agent(server))
        expected = Usage(40, 30, 60, 0, 20, model="test-1", base_url=server.url, last_prompt=100)
        assert heard.usages == [expected]
        paid = talked(talk, OPENAI.agent(server, provider="router")).usages[0]
        assert (paid.cost_usd, paid.cost_source, paid.provider) == (2.0, "provider", "router")

    def test_anthropic(self, server: ModelServer, talk: ScriptedGateway) -> None:
        told = {
            "input_tokens": 10,
            "cache_read_input_tokens": 70,
            "cache_creation_input_tokens": 20,
            "output_tokens": 1,
        }
        server.script(anthropic.says("yes", usage=told))
        assert talked(talk, ANTHROPIC.agent(server)).usages == [
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

    def test_what_nobody_reported_is_estimated(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(openai.says("one two three", usage={}))
        (usage,) = talked(talk, OPENAI.agent(server)).usages
        assert usage.cost_source == ESTIMATED
        assert usage.input > usage.output >= 3

    @pytest.mark.parametrize("count", [-1, "many", None, 1.5, 2**60, True])
    def test_counts_that_are_none(
        self, server: ModelServer, talk: ScriptedGateway, count: Any
    ) -> None:
        server.script(openai.says("yes", usage={"prompt_tokens": count, "completion_tokens": 2}))
        (usage,) = talked(talk, OPENAI.agent(server)).usages
        assert (usage.input, usage.output) == (0, 2)


class TestRequests:
    """What is sent."""

    def test_openai(self, server: ModelServer, talk: ScriptedGateway) -> None:
        server.script(openai.says("hi", HELLO), openai.says("done"))
        agent = OPENAI.agent(
            server, instructions="Be kind.", options={"temperature": 0.5}, max_tokens=99
        )
        assert talked(talk, agent).answer == "done"
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

    def test_anthropic(self, server: ModelServer, talk: ScriptedGateway) -> None:
        server.script(anthropic.says("hi", HELLO, thinking="hm"), anthropic.says("done"))
        agent = ANTHROPIC.agent(server, instructions="Be kind.", options={"temperature": 0.5})
        heard = talked(talk, agent)
        assert heard.answer == "done"
        assert heard.steps[0].reasoning == "hm"
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

    def test_anthropic_without_tools_after_calls(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(anthropic.says("", HELLO), anthropic.says("done"), anthropic.says("bye"))
        assert talked(talk, ANTHROPIC.agent(server)).answer == "done"
        talk.tools = ()
        assert talked(talk, ANTHROPIC.agent(server), "thanks").answer == "bye"
        assert [tool["name"] for tool in server.seen[-1].body["tools"]] == ["echo"]
        assert server.seen[-1].body["tool_choice"] == {"type": "none"}

    def test_what_a_server_does_not_know_is_given_up(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(
            refuses(400, "Unrecognized request argument: stream_options"),
            refuses(400, "Use 'max_completion_tokens' instead."),
            openai.says("yes"),
        )
        assert talked(talk, OPENAI.agent(server, max_tokens=9)).answer == "yes"
        body = server.seen[-1].body
        assert "stream_options" not in body
        assert "max_tokens" not in body
        assert body["max_completion_tokens"] == 9

    def test_thoughts_go_back_to_those_who_want_them(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        server.script(openai.says("", HELLO, reasoning="hm"), openai.says("done"))
        heard = talked(talk, OPENAI.agent(server))
        assert heard.answer == "done"
        assert heard.steps[0].reasoning == "hm"
        assert server.seen[-1].body["messages"][2]["reasoning_content"] == "hm"
        server.script(openai.says("bye"))
        assert talked(talk, OPENAI.agent(server), "thanks").answer == "bye"
        assert "reasoning_content" not in str(server.seen[-1].body)

    def test_calls_of_servers_with_habits_of_their_own(
        self, server: ModelServer, talk: ScriptedGateway
    ) -> None:
        """No index; the same index for every call; arguments as an object; a repeated name."""
        function = {"name": "echo", "arguments": {"word": "a"}}
        spoken = {"name": "echo", "arguments": '{"word": '}
        rest = {"name": "echo", "arguments": '"c"}'}
        server.script(
            openai.events(
                openai.chunk({"tool_calls": [{"id": "x", "function": function}]}),
                openai.chunk({"tool_calls": [{"id": "y", "function": function}]}, "tool_calls"),
            ),
            openai.events(
                openai.chunk({"tool_calls": [{"index": 0, "id": "v", "function": function}]}),
                openai.chunk({"tool_calls": [{"index": 0, "id": "w", "function": spoken}]}),
                openai.chunk({"tool_calls": [{"index": 0, "function": rest}]}, "tool_calls"),
            ),
            openai.says("done"),
        )
        heard = talked(talk, OPENAI.agent(server))
        assert heard.answer == "done"
        assert [result.content for result in heard.results] == ["a", "a", "a", "c"]


class TestSecrets:
    @pytest.mark.parametrize("status", [401, 500, 400])
    def test_a_key_that_a_server_repeats_is_not_shown(
        self,
        wired: Wired,
        server: ModelServer,
        talk: ScriptedGateway,
        status: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        server.script(*[refuses(status, f"Incorrect key: {KEY}.")] * 4)
        agent = wired.agent(server)
        heard = talked(talk, agent)
        assert heard.problem is not None
        assert "Incorrect key: ***." in heard.problem.message
        shown = [str(heard.problem), repr(heard.problem), repr(heard.problem.data), repr(agent)]
        shown += [repr(pickle.loads(pickle.dumps(heard.problem))), str(heard.problem.__context__)]
        assert KEY not in "".join(shown)
        assert KEY not in caplog.text

    @pytest.mark.parametrize("key", [f"{KEY}\u2014", f"{KEY}\nx", "\x00" + KEY])
    def test_a_key_that_cannot_be_sent_is_not_shown(self, wired: Wired, key: str) -> None:
        with pytest.raises(ConfigError) as caught:
            wired.make("test-1", api_key=key)
        assert KEY not in str(caught.value)

    @pytest.mark.parametrize("url", [f"http://me:{KEY}@localhost", "localhost:80", "ftp://x", ""])
    def test_an_address_that_is_not_allowed(self, wired: Wired, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            wired.make("test-1", base_url=url)
        assert KEY not in str(caught.value)

    def test_options_cannot_replace_what_the_agent_writes(self, wired: Wired) -> None:
        with pytest.raises(ConfigError, match="messages"):
            wired.make("test-1", options={"messages": []})


class TestTheWire:
    def test_every_failure_of_the_network_is_translated(self) -> None:
        wire = Transport("http://localhost", headers={})
        kinds: list[Any] = [
            httpx2.InvalidURL,
            *_below(httpx2.HTTPError),
            *_below(httpx2.StreamError),
        ]
        assert len(kinds) > 15
        for kind in kinds:
            found = wire.translate(kind.__new__(kind))
            assert isinstance(found, AgentError)
            assert found.hint

    @pytest.mark.parametrize(
        ("given", "seconds"),
        [
            ({}, None),
            ({"retry-after": "3"}, 3.0),
            ({"retry-after": "1.5"}, 1.5),
            ({"retry-after-ms": "20", "retry-after": "9"}, 0.02),
            ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
            ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "-4"}, None),
            ({"retry-after": "nan"}, None),
        ],
    )
    def test_how_long_to_wait(self, given: dict[str, str], seconds: float | None) -> None:
        assert retry_after(given, now=10.0) == seconds

    def test_waits_grow_and_have_an_end(self) -> None:
        retry = Retry(tries=9, first=1, longest=5)
        problem = AgentUnavailable("x")
        waits = [retry.decide(problem, tried, 0.0) for tried in range(1, 10)]
        assert waits == [1, 2, 4, 5, 5, 5, 5, 5, None]
        assert [retry.decide(problem, 1, chance) for chance in (0.0, 0.5, 1.0)] == [1, 0.75, 0.5]
        assert retry.decide(AgentFailed("x"), 1, 0.0) is None
        assert retry.decide(AgentTimeout("x"), 1, 0.0) is None

    def test_openai_itself_is_known(self) -> None:
        assert OpenAIAgent("m").provider == "openai"
        assert OpenAIAgent("m", base_url="http://localhost").provider is None


def _below(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(found for one in kind.__subclasses__() for found in _below(one))]
