"""`HttpAgent` with a real endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia import AgentFailed, AgentStopped, AgentTimeout, AgentUnavailable, ContextOverflow
from tertulia.agents import Event, Limits
from tertulia.testing.agent_contract import call_step, echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import (
    KEY,
    RecordedSleep,
    endpoint_agent,
    ndjson,
    protocol_events,
    run_turn,
)
from tests.servers.models import JSON, ModelServer, Reply, refuses

STEP = {"type": "step", "text": "¡listo!"}
DELTAS = [{"type": "delta", "text": "¡lis"}, {"type": "delta", "text": "to!"}]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def json_reply(value: Any) -> Reply:
    return Reply([json.dumps(value).encode()], kind=JSON)


def sse(*events: Any) -> Reply:
    return Reply([f"data: {json.dumps(event)}\n\n".encode() for event in events])


@pytest.mark.parametrize(
    "reply",
    [
        json_reply({"text": "¡listo!"}),
        json_reply(STEP),
        json_reply({"events": [*DELTAS, STEP]}),
        ndjson(*DELTAS, STEP),
        ndjson(*DELTAS, STEP).split(3),
        sse(*DELTAS, STEP),
        sse(*DELTAS, STEP).split(5),
        ndjson(STEP)._replace(pieces=[json.dumps(STEP).encode()]),
        json_reply(STEP)._replace(kind="application/json; charset=utf-8"),
    ],
)
def test_every_response_form_is_read(
    server: ModelServer, gateway: ScriptedGateway, reply: Reply
) -> None:
    server.script(reply)
    recorded = run_turn(gateway, endpoint_agent(server))
    assert recorded.answer == "¡listo!"
    assert recorded.shown in ("", "¡listo!")


def test_endpoint_is_called_again_with_the_results(
    server: ModelServer, gateway: ScriptedGateway
) -> None:
    server.script(
        ndjson(*protocol_events(call_step(("echo", '{"word": "hola"}')))), json_reply(STEP)
    )
    recorded = run_turn(gateway, endpoint_agent(server))
    assert recorded.answer == "¡listo!"
    first, second = server.seen
    assert first.path == "/agent"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.body["tools"][0]["name"] == "echo"
    assert [message["role"] for message in first.body["history"]] == ["user"]
    assert [message["role"] for message in second.body["history"]] == ["user", "assistant", "tool"]
    assert second.body["history"][-1]["content"] == "hola"


def test_events_after_a_call_are_ignored(server: ModelServer, gateway: ScriptedGateway) -> None:
    call = protocol_events(call_step(("echo", '{"word": "hola"}')))
    server.script(ndjson(*call, *DELTAS, STEP), json_reply({"text": "second"}))
    recorded = run_turn(gateway, endpoint_agent(server))
    assert (recorded.answer, recorded.shown) == ("second", "")


@pytest.mark.parametrize(
    "reply",
    [
        json_reply([1]),
        json_reply({"words": "hello"}),
        json_reply({"type": "dance"}),
        Reply([b"<html>"], kind="text/html"),
        Reply([b"hello\n"], kind="application/x-ndjson"),
        sse("hello"),
    ],
)
def test_invalid_response_fails(
    server: ModelServer, gateway: ScriptedGateway, reply: Reply
) -> None:
    server.script(reply)
    recorded = run_turn(gateway, endpoint_agent(server))
    assert type(recorded.problem) is AgentFailed
    assert server.url in recorded.problem.message
    assert len(server.seen) == 1


def test_retries_until_the_first_event(server: ModelServer, gateway: ScriptedGateway) -> None:
    recorded_sleep = RecordedSleep()
    server.script(
        refuses(503, retry_after="4"), Reply(end="reset"), ndjson().ending("cut"), json_reply(STEP)
    )
    assert run_turn(gateway, endpoint_agent(server, sleep=recorded_sleep)).answer == "¡listo!"
    assert recorded_sleep.delays == [4.0, 1.0, 2.0]
    server.script(ndjson(*DELTAS, STEP).ending("cut", after=1), json_reply(STEP))
    recorded = run_turn(gateway, endpoint_agent(server))
    assert isinstance(recorded.problem, AgentUnavailable)
    assert recorded.problem.partial == recorded.shown == "¡lis"
    assert server.left == 1


def test_reported_error_is_raised(server: ModelServer, gateway: ScriptedGateway) -> None:
    error_event = {"type": "error", "message": f"too long for {KEY}", "kind": "overflow"}
    server.script(ndjson(error_event))
    recorded = run_turn(gateway, endpoint_agent(server))
    assert isinstance(recorded.problem, ContextOverflow)
    assert "too long" in recorded.problem.message


def test_secrets_are_removed_from_errors(server: ModelServer, gateway: ScriptedGateway) -> None:
    agent = endpoint_agent(server)
    server.script(refuses(401, f"who is Bearer {KEY}?"))
    recorded = run_turn(gateway, agent)
    assert "who is ***?" in str(recorded.problem)
    assert KEY not in repr(agent)


def test_limits_and_stop(server: ModelServer, gateway: ScriptedGateway) -> None:
    server.script(ndjson(DELTAS[0]).ending("hang"))
    recorded = run_turn(gateway, endpoint_agent(server, limits=Limits(between=0.2)))
    assert isinstance(recorded.problem, AgentTimeout)
    assert recorded.problem.partial == "¡lis"
    server.script(ndjson(DELTAS[0]).ending("hang"))

    async def stop(event: Event) -> None:
        gateway.stop.set()

    recorded = run_turn(gateway, endpoint_agent(server), watcher=stop)
    assert isinstance(recorded.problem, AgentStopped)
    assert recorded.problem.partial == "¡lis"
