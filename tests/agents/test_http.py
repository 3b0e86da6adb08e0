"""An endpoint of one's own as an agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia import AgentFailed, AgentStopped, AgentTimeout, AgentUnavailable, ContextOverflow
from tertulia.agents import Event, Limits
from tertulia.testing.agent_contract import calling, echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.scene import KEY, Naps, at_endpoint, events_of, ndjson, talked
from tests.servers.models import JSON, ModelServer, Reply, refuses

STEP = {"type": "step", "text": "¡listo!"}
DELTAS = [{"type": "delta", "text": "¡lis"}, {"type": "delta", "text": "to!"}]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def talk(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def one(value: Any) -> Reply:
    return Reply([json.dumps(value).encode()], kind=JSON)


def sse(*events: Any) -> Reply:
    return Reply([f"data: {json.dumps(event)}\n\n".encode() for event in events])


@pytest.mark.parametrize(
    "reply",
    [
        one({"text": "¡listo!"}),
        one(STEP),
        one({"events": [*DELTAS, STEP]}),
        ndjson(*DELTAS, STEP),
        ndjson(*DELTAS, STEP).split(3),
        sse(*DELTAS, STEP),
        sse(*DELTAS, STEP).split(5),
        ndjson(STEP)._replace(pieces=[json.dumps(STEP).encode()]),
        one(STEP)._replace(kind="application/json; charset=utf-8"),
    ],
)
def test_it_may_answer_in_any_of_these_forms(
    server: ModelServer, talk: ScriptedGateway, reply: Reply
) -> None:
    server.script(reply)
    heard = talked(talk, at_endpoint(server))
    assert heard.answer == "¡listo!"
    assert heard.shown in ("", "¡listo!")


def test_it_is_asked_again_with_the_results(server: ModelServer, talk: ScriptedGateway) -> None:
    server.script(ndjson(*events_of(calling(("echo", '{"word": "hola"}')))), one(STEP))
    heard = talked(talk, at_endpoint(server))
    assert heard.answer == "¡listo!"
    first, second = server.seen
    assert first.path == "/agent"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body["tools"][0]["name"] == "echo"
    assert [message["role"] for message in first.body["history"]] == ["user"]
    assert [message["role"] for message in second.body["history"]] == ["user", "assistant", "tool"]
    assert second.body["history"][-1]["content"] == "hola"


def test_what_it_says_after_a_call_is_not_read(server: ModelServer, talk: ScriptedGateway) -> None:
    call = events_of(calling(("echo", '{"word": "hola"}')))
    server.script(ndjson(*call, *DELTAS, STEP), one({"text": "second"}))
    heard = talked(talk, at_endpoint(server))
    assert (heard.answer, heard.shown) == ("second", "")


@pytest.mark.parametrize(
    "reply",
    [
        one([1]),
        one({"words": "hello"}),
        one({"type": "dance"}),
        Reply([b"<html>"], kind="text/html"),
        Reply([b"hello\n"], kind="application/x-ndjson"),
        sse("hello"),
    ],
)
def test_nonsense_is_a_clear_failure(
    server: ModelServer, talk: ScriptedGateway, reply: Reply
) -> None:
    server.script(reply)
    heard = talked(talk, at_endpoint(server))
    assert type(heard.problem) is AgentFailed
    assert server.url in heard.problem.message
    assert len(server.seen) == 1


def test_it_is_tried_again_until_something_was_said(
    server: ModelServer, talk: ScriptedGateway
) -> None:
    naps = Naps()
    server.script(
        refuses(503, retry_after="4"), Reply(end="reset"), ndjson().ending("cut"), one(STEP)
    )
    assert talked(talk, at_endpoint(server, sleep=naps)).answer == "¡listo!"
    assert naps.taken == [4.0, 1.0, 2.0]
    server.script(ndjson(*DELTAS, STEP).ending("cut", after=1), one(STEP))
    heard = talked(talk, at_endpoint(server))
    assert isinstance(heard.problem, AgentUnavailable)
    assert heard.problem.partial == heard.shown == "¡lis"
    assert server.left == 1


def test_it_can_say_that_it_failed(server: ModelServer, talk: ScriptedGateway) -> None:
    told = {"type": "error", "message": f"too long for {KEY}", "kind": "overflow"}
    server.script(ndjson(told))
    heard = talked(talk, at_endpoint(server))
    assert isinstance(heard.problem, ContextOverflow)
    assert "too long" in heard.problem.message


def test_secrets_are_not_repeated(server: ModelServer, talk: ScriptedGateway) -> None:
    agent = at_endpoint(server)
    server.script(refuses(401, f"who is Bearer {KEY}?"))
    heard = talked(talk, agent)
    assert "who is ***?" in str(heard.problem)
    assert KEY not in repr(agent)


def test_limits_and_stop(server: ModelServer, talk: ScriptedGateway) -> None:
    server.script(ndjson(DELTAS[0]).ending("hang"))
    heard = talked(talk, at_endpoint(server, limits=Limits(between=0.2)))
    assert isinstance(heard.problem, AgentTimeout)
    assert heard.problem.partial == "¡lis"
    server.script(ndjson(DELTAS[0]).ending("hang"))

    async def stop(event: Event) -> None:
        talk.stop.set()

    heard = talked(talk, at_endpoint(server), watcher=stop)
    assert isinstance(heard.problem, AgentStopped)
    assert heard.problem.partial == "¡lis"
