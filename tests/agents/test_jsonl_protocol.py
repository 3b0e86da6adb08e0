"""The JSON Lines protocol: what is sent, what is decoded, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import AgentError, AgentFailed, AgentTimeout, AgentUnavailable, ContextOverflow, Usage
from tertulia.agents import Delta, ModelUsage, Note, Request, Step, ToolResult
from tertulia.agents.jsonl_protocol import decode_event, encode_request, encode_tool_results
from tertulia.testing.agent_contract import echo


async def no_history(**_: Any) -> list[dict[str, Any]]:
    return []


def test_request_has_all_its_fields() -> None:
    request = Request(
        text="hello",
        history=no_history,
        system="Be kind.",
        tools=(echo(),),
        session_id="s1",
        key="agent:main",
        platform="telegram",
    )
    history = [{"role": "user", "content": "hello"}]
    body = encode_request(request, history)
    (tool,) = body.pop("tools")
    assert tool["name"] == "echo"
    assert "call" not in tool
    assert body == {
        "type": "request",
        "text": "hello",
        "system": "Be kind.",
        "history": history,
        "session_id": "s1",
        "key": "agent:main",
        "platform": "telegram",
    }


def test_tool_results_keep_their_order() -> None:
    body = encode_tool_results([ToolResult("b", "two"), ToolResult("a", "one")], ("hurry",))
    assert body == {
        "type": "tool_results",
        "results": [{"call_id": "b", "content": "two"}, {"call_id": "a", "content": "one"}],
        "steer": ["hurry"],
    }


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ('{"type": "delta", "text": "ho"}', Delta("ho")),
        (b'{"type": "note", "text": "wait"}', Note("wait")),
        ('{"type": "spent", "usage": {"input": 3}}', ModelUsage(Usage(3))),
        ('{"type": "step", "text": "done", "unknown": 1}', Step("done")),
    ],
)
def test_events_are_decoded(line: str | bytes, event: Any) -> None:
    assert decode_event(line, "it") == event


def test_calls_of_a_step_get_distinct_ids() -> None:
    call = '{"id": "", "name": "echo", "arguments": {}}'
    step = decode_event(f'{{"type": "step", "tool_calls": [{call}, {call}]}}', "it")
    assert isinstance(step, Step)
    assert len({call.id for call in step.tool_calls}) == 2


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("failed", AgentFailed),
        ("unavailable", AgentUnavailable),
        ("timeout", AgentTimeout),
        ("overflow", ContextOverflow),
    ],
)
def test_reported_error_has_the_class_of_its_kind(kind: str, error: type[AgentError]) -> None:
    line = f'{{"type": "error", "message": "no luck", "kind": "{kind}"}}'
    with pytest.raises(error, match="no luck"):
        decode_event(line, "it")


@pytest.mark.parametrize("line", ["", "hello", "[]", '{"type": "dance"}', '{"type": "delta"}'])
def test_invalid_line_names_the_sender(line: str) -> None:
    with pytest.raises(AgentFailed, match="the endpoint sent"):
        decode_event(line, "the endpoint")


def test_secrets_are_removed_from_errors() -> None:
    def scrub(text: str) -> str:
        return text.replace("sk-1", "***")

    for line in ("sk-1?", '{"type": "error", "message": "sk-1?"}'):
        with pytest.raises(AgentFailed) as caught:
            decode_event(line, "it", scrub)
        assert "***?" in str(caught.value)
        assert "sk-1" not in str(caught.value)
