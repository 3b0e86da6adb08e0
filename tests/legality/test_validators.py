"""The validators refuse what providers refuse; one that takes everything would prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.legality.validators import faults

Message = dict[str, Any]

ASK: Message = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLS: Message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
ANSWER: Message = {"role": "assistant", "content": "Sunny."}


def call(**other: Any) -> Message:
    return {**CALLS, "tool_calls": [{**CALL, **other}]}


@pytest.mark.parametrize(
    "messages",
    [
        [ASK, CALLS, RESULT, ANSWER],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}],
        [ASK, {**CALLS, "content": ""}, {**RESULT, "content": ""}],
    ],
)
def test_legal_chat(messages: list[Message]) -> None:
    assert faults("openai", messages) == []


@pytest.mark.parametrize(
    "messages",
    [
        [ASK, CALLS],
        [ASK, CALLS, ASK, RESULT],
        [ASK, CALLS, RESULT, RESULT],
        [ASK, RESULT],
        [ASK, CALLS, RESULT, CALLS, RESULT],
        [ASK, {**CALLS, "tool_calls": []}],
        [ASK, call(id=""), {**RESULT, "tool_call_id": ""}],
        [ASK, call(id="x" * 41), {**RESULT, "tool_call_id": "x" * 41}],
        [ASK, call(type="custom"), RESULT],
        [ASK, call(function={"name": "fs.read", "arguments": "{}"}), RESULT],
        [ASK, call(function={"name": "look", "arguments": {}}), RESULT],
        [ASK, call(function={"name": "look", "arguments": "{"}), RESULT],
        [{"role": "user", "content": "a\x00b"}],
        [ASK, {"role": "assistant", "content": " "}],
        [ASK, {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "h"}}]}],
        [ASK, CALLS, {**RESULT, "content": [{"type": "image_url", "image_url": {"url": "h"}}]}],
        [ASK, CALLS, {**RESULT, "content": None}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "https://x"}]}],
        [{"role": "user", "content": "hi", "name": "Ana María"}],
        [{"role": "user", "content": "\ud83d"}],
        [{"role": "user", "content": "hi", "media": []}],
        [{"role": "narrator", "content": "hi"}],
    ],
)
def test_illegal_chat(messages: list[Message]) -> None:
    assert faults("openai", messages) != []


ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
ITEM_RESULT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}


def test_legal_responses() -> None:
    assert faults("responses", [ASK, ITEM_CALL, ITEM_RESULT, ANSWER]) == []


@pytest.mark.parametrize(
    "items",
    [
        [ASK, ITEM_CALL],
        [ASK, ITEM_RESULT],
        [ASK, ITEM_CALL, ITEM_RESULT, ITEM_RESULT],
        [ASK, ITEM_CALL, ANSWER, ITEM_RESULT],
        [ASK, ITEM_CALL, {**ITEM_RESULT, "output": None}],
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    ],
)
def test_illegal_responses(items: list[Message]) -> None:
    assert faults("responses", items) != []


TEXT = {"type": "text", "text": "hi"}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT]}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}


def person(*content: Message) -> Message:
    return {"role": "user", "content": list(content)}


def model(*content: Message) -> Message:
    return {"role": "assistant", "content": list(content)}


@pytest.mark.parametrize(
    "messages",
    [
        [person(TEXT), model(THOUGHT, TEXT, USE), person(TOOL_RESULT, TEXT), model(TEXT)],
        [person(TEXT), model(USE), person({"type": "tool_result", "tool_use_id": "t1"})],
    ],
)
def test_legal_anthropic(messages: list[Message]) -> None:
    assert faults("anthropic", messages) == []


@pytest.mark.parametrize(
    "messages",
    [
        [model(TEXT)],
        [person(TEXT), person(TEXT)],
        [person(TEXT), model(USE)],
        [person(TEXT), model(USE), person(TEXT)],
        [person(TEXT), model(USE), person(TEXT, TOOL_RESULT)],
        [person(TEXT), model(USE), person(TOOL_RESULT, TOOL_RESULT)],
        [person(TEXT), model(TEXT), person(TOOL_RESULT)],
        [person(TEXT), model(USE), person(TOOL_RESULT), model(USE), person(TOOL_RESULT)],
        [person(TEXT), model({**USE, "id": "a b"}), person({**TOOL_RESULT, "tool_use_id": "a b"})],
        [person(TEXT), model({**USE, "input": []}), person(TOOL_RESULT)],
        [person(TEXT), model({**USE, "name": "fs.read"}), person(TOOL_RESULT)],
        [person(TEXT), model(THOUGHT)],
        [person(TEXT), model({**THOUGHT, "signature": ""}, TEXT)],
        [person(TEXT), model({"type": "text", "text": "hi "})],
        [person({"type": "text", "text": "\n"})],
        [person({"type": "image", "source": {"type": "url", "url": "http://x"}})],
        [person(THOUGHT)],
        [person()],
    ],
)
def test_illegal_anthropic(messages: list[Message]) -> None:
    assert faults("anthropic", messages) != []


def test_text_format() -> None:
    assert faults("text", [ASK, ANSWER, {"role": "tool", "content": ""}]) == []
    assert faults("text", [CALLS]) != []
    assert faults("text", [{"role": "user", "content": ""}]) != []
