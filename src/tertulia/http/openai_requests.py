"""Requests of OpenAI's two APIs, converted into one form: `ChatRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tertulia.agents.base import NO_PARAMETERS, Tool, ToolResult
from tertulia.core.message import text_of, to_json
from tertulia.errors import ConfigError
from tertulia.gateway.request_reply import caller_tool

_SYSTEM_ROLES = ("system", "developer")
_PARTS = ("text", "image_url", "input_audio", "file", "refusal")
_MESSAGES_HINT = "Give a list of messages, each with a role and a content."


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a list of messages.

    `text` is the newest message of the user. It is None if the client has run tools: then `results`
    has their results, or `past` ends with them if the conversation is not stored.
    """

    text: str | None
    media: tuple[Any, ...] = ()
    past: tuple[dict[str, Any], ...] = ()
    results: tuple[ToolResult, ...] = ()
    instructions: str = ""


def parse_messages(messages: Sequence[Any], *, is_stored: bool) -> ChatRequest:
    """Return the content of messages of the chat API; raise `ConfigError` if they are invalid.

    `is_stored`: the store has the earlier messages of this conversation, so only the newest ones
    are read.
    """
    rest: list[dict[str, Any]] = []
    system_texts: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ConfigError("A message has no role.", hint=_MESSAGES_HINT, field="messages")
        _check_parts(message)
        if message["role"] in _SYSTEM_ROLES:
            system_texts.append(text_of(message))
        else:
            rest.append(message)
    instructions = "\n\n".join(filter(None, system_texts))
    last_role = rest[-1]["role"] if rest else None
    if last_role == "tool":
        if not is_stored:
            return ChatRequest(text=None, past=tuple(rest), instructions=instructions)
        return ChatRequest(text=None, results=_last_results(rest), instructions=instructions)
    index = next((at for at in reversed(range(len(rest))) if rest[at]["role"] == "user"), None)
    if index is None or (last_role != "user" and not is_stored):
        raise ConfigError(
            "The last message is not a message of the user.",
            hint="End with a message of the role user, or with the results of tools.",
            field="messages",
        )
    user_message = rest[index]
    text, media = text_of(user_message), _media_parts(user_message)
    if not text and not media:
        raise ConfigError(
            "The last message is empty.", hint="Give it a text or media.", field="messages"
        )
    past = () if is_stored else tuple(rest[:index])
    return ChatRequest(text=text, media=media, past=past, instructions=instructions)


def _check_parts(message: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for content in a form that could be neither stored nor shown."""
    content = message.get("content")
    if content is None or isinstance(content, str) or message["role"] == "tool":
        return
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in _PARTS or (kind == "text" and not isinstance(part.get("text"), str)):
            raise ConfigError(
                f"A message has content of the unknown type {str(kind)[:40]!r}.",
                hint=f"Allowed: a text, or a list of parts: {', '.join(_PARTS)}.",
                field="messages",
            )


def parse_tools(tools: Sequence[Any] | None) -> tuple[Tool, ...]:
    """Return the client's tools, given in the form of either API; raise `ConfigError`."""
    return tuple(map(_parse_tool, tools or ()))


def to_chat_messages(items: str | Sequence[Any]) -> list[dict[str, Any]]:
    """Return the input of the responses API as messages of the chat API; raise `ConfigError`."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    for item in items:
        if not isinstance(item, dict):
            raise ConfigError("An input item is not an object.", hint=_MESSAGES_HINT, field="input")
        _append_item(messages, item)
    return messages


def _append_item(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    match item.get("type", "message"):
        case "message":
            messages.append(
                {"role": item.get("role"), "content": _chat_content(item.get("content"))}
            )
        case "function_call":
            call = {
                "id": str(item.get("call_id")),
                "type": "function",
                "function": {
                    "name": str(item.get("name")),
                    "arguments": str(item.get("arguments")),
                },
            }
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        case "function_call_output":
            content = _chat_content(item.get("output"))
            messages.append(
                {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": content}
            )
        case "reasoning" | "item_reference":
            pass  # the store has the items that these refer to
        case other:
            raise ConfigError(
                f"An input item has the unknown type {str(other)[:40]!r}.",
                hint="Allowed: message, function_call and function_call_output.",
                field="input",
            )


def _chat_content(content: Any) -> Any:
    """Return content with its parts named as in the chat API."""
    if not isinstance(content, list):
        return content
    return [_chat_part(part) if isinstance(part, dict) else part for part in content]


def _chat_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text")}
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    if part.get("type") == "input_file":
        return {"type": "file", "file": {key: part[key] for key in part if key != "type"}}
    return part


def _last_results(messages: Sequence[dict[str, Any]]) -> tuple[ToolResult, ...]:
    """Return the tool results that the messages end with, in their order."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        call_id, content = message.get("tool_call_id"), message.get("content")
        if not isinstance(call_id, str) or not call_id:
            raise ConfigError(
                "A tool result has no call id.", hint="Give its tool_call_id.", field="messages"
            )
        plain = content if isinstance(content, str | list) else to_json(content)
        results[call_id] = ToolResult(call_id, plain)
    return tuple(reversed(results.values()))


def _media_parts(message: Mapping[str, Any]) -> tuple[Any, ...]:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return tuple(p for p in parts if isinstance(p, dict) and p.get("type") not in (None, "text"))


def _parse_tool(tool: Any) -> Tool:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        raise ConfigError(
            "A tool is not a function.", hint='Give {"type": "function", …}.', field="tools"
        )
    name, description = function.get("name"), function.get("description")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = dict(NO_PARAMETERS)
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise ConfigError(
            "A tool has no name, or its parameters are not a JSON schema.",
            hint="Give a name, and an object as parameters.",
            field="tools",
        )
    return caller_tool(name, description if isinstance(description, str) else "", parameters)
