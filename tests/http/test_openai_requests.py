"""Requests of OpenAI's clients, converted into `ChatRequest`."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.agents.base import NO_PARAMETERS, ToolResult
from tertulia.errors import ConfigError
from tertulia.http.openai_requests import parse_messages, parse_tools, to_chat_messages

USER = {"role": "user", "content": "hola"}
ANSWER = {"role": "assistant", "content": "hello"}
RESULTS = [
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "tool", "tool_call_id": "b", "content": {"n": 2}},
]


def test_earlier_messages_are_past_unless_they_are_stored() -> None:
    messages = [USER, ANSWER, {"role": "user", "content": "and now?"}]
    unstored = parse_messages(messages, is_stored=False)
    assert (unstored.text, unstored.past) == ("and now?", (USER, ANSWER))
    stored = parse_messages(messages, is_stored=True)
    assert (stored.text, stored.past) == ("and now?", ())


def test_system_messages_become_instructions() -> None:
    system = {"role": "system", "content": "Be short."}
    messages = [system, USER, {"role": "developer", "content": "Rhyme."}]
    chat = parse_messages(messages, is_stored=False)
    assert chat.instructions == "Be short.\n\nRhyme."
    assert chat.text == "hola"


def test_results_at_the_end_keep_their_order() -> None:
    messages = [USER, ANSWER, *RESULTS]
    stored = parse_messages(messages, is_stored=True)
    assert stored.text is None
    assert stored.results == (ToolResult("a", "1"), ToolResult("b", '{"n":2}'))
    unstored = parse_messages(messages, is_stored=False)
    assert (unstored.text, unstored.past, unstored.results) == (None, tuple(messages), ())


def test_media_of_the_newest_message_is_separate_from_its_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    content = [{"type": "text", "text": "look"}, image]
    chat = parse_messages([{"role": "user", "content": content}], is_stored=False)
    assert (chat.text, chat.media) == ("look", (image,))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        ["hola"],
        [{"content": "hola"}],
        [ANSWER],
        [USER, ANSWER],
        [{"role": "user", "content": ""}],
        [{"role": "tool", "content": "no id"}],
    ],
)
def test_invalid_messages_are_refused(messages: list[Any]) -> None:
    is_stored = (
        bool(messages) and isinstance(messages[-1], dict) and "tool" in messages[-1].values()
    )
    with pytest.raises(ConfigError) as caught:
        parse_messages(messages, is_stored=is_stored)
    assert caught.value.field == "messages"


def test_response_items_become_chat_messages() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hola"}]},
        call,
        {**call, "call_id": "d"},
        {"type": "reasoning", "id": "r"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]
    user, assistant, tool = to_chat_messages(items)
    assert user == {"role": "user", "content": [{"type": "text", "text": "hola"}]}
    assert [call["id"] for call in assistant["tool_calls"]] == ["c", "d"]
    assert tool == {"role": "tool", "tool_call_id": "c", "content": "sunny"}
    assert to_chat_messages("hola") == [USER]


@pytest.mark.parametrize("item", ["text", {"type": "web_search_call"}])
def test_unknown_response_item_is_refused(item: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        to_chat_messages([item])
    assert caught.value.field == "input"


def test_tools_are_read_in_either_form() -> None:
    function = {"name": "weather", "description": "The weather."}
    nested, flat = parse_tools(
        [{"type": "function", "function": function}, {"type": "function", **function}]
    )
    assert (nested.name, nested.description) == (flat.name, flat.description)
    assert nested.parameters == flat.parameters == NO_PARAMETERS
    assert parse_tools(None) == ()


@pytest.mark.parametrize(
    "tool",
    [
        "weather",
        {"type": "web_search"},
        {"type": "function"},
        {"type": "function", "name": "x", "parameters": []},
    ],
)
def test_invalid_tool_is_refused(tool: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tools([tool])
    assert caught.value.field == "tools"


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "hologram", "hologram": "x"}],
        [{"type": "text", "text": "hola"}, {"type": "hologram"}],
        [{"text": "hola"}],
        [{"type": "text"}],
        ["hola"],
        {"text": "hola"},
        7,
    ],
)
def test_unknown_content_is_refused(content: Any) -> None:
    with pytest.raises(ConfigError, match="unknown type") as caught:
        parse_messages([{"role": "user", "content": content}], is_stored=False)
    assert caught.value.field == "messages"


def test_file_of_the_responses_api_is_known() -> None:
    item = {"role": "user", "content": [{"type": "input_file", "file_id": "f1"}]}
    chat = parse_messages(to_chat_messages([item]), is_stored=False)
    assert chat.media == ({"type": "file", "file": {"file_id": "f1"}},)
