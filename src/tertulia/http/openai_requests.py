"""What an OpenAI client asks for, read into one form: what is said, by which of its two APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tertulia.agents.base import NO_PARAMETERS, Tool, ToolResult
from tertulia.core.message import text_of, to_json
from tertulia.errors import ConfigError
from tertulia.gateway.request_reply import caller_tool

_SYSTEM = ("system", "developer")
_LISTEN = "Give a list of messages, each with a role and a content."


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of messages comes down to.

    `text` is what the person says now; None where tools have been run, and `results` or `past` hold
    what came of it.
    """

    text: str | None
    media: tuple[Any, ...] = ()
    past: tuple[dict[str, Any], ...] = ()
    results: tuple[ToolResult, ...] = ()
    instructions: str = ""


def spoken(messages: Sequence[Any], *, is_kept: bool) -> ChatRequest:
    """Read messages of the chat API. Of a conversation that is kept, only what is new is taken."""
    rest: list[dict[str, Any]] = []
    told: list[str] = []
    for one in messages:
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise ConfigError("A message has no role.", hint=_LISTEN, field="messages")
        if one["role"] in _SYSTEM:
            told.append(text_of(one))
        else:
            rest.append(one)
    instructions = "\n\n".join(filter(None, told))
    last = rest[-1]["role"] if rest else None
    if last == "tool":
        if not is_kept:
            return ChatRequest(text=None, past=tuple(rest), instructions=instructions)
        return ChatRequest(text=None, results=_results(rest), instructions=instructions)
    place = next((at for at in reversed(range(len(rest))) if rest[at]["role"] == "user"), None)
    if place is None or (last != "user" and not is_kept):
        raise ConfigError(
            "The last message is not what a person says.",
            hint="End with a message of the role user, or with the results of tools.",
            field="messages",
        )
    said = rest[place]
    text, media = text_of(said), _media(said)
    if not text and not media:
        raise ConfigError("The message is empty.", hint="Say something.", field="messages")
    past = () if is_kept else tuple(rest[:place])
    return ChatRequest(text=text, media=media, past=past, instructions=instructions)


def tools(given: Sequence[Any] | None) -> tuple[Tool, ...]:
    """The client's tools, in the form of either API."""
    return tuple(map(_tool, given or ()))


def messages_of(given: str | Sequence[Any]) -> list[dict[str, Any]]:
    """The input of the responses API as messages of the chat API."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[dict[str, Any]] = []
    for one in given:
        if not isinstance(one, dict):
            raise ConfigError("An input item is no object.", hint=_LISTEN, field="input")
        _add_item(found, one)
    return found


def _add_item(found: list[dict[str, Any]], item: dict[str, Any]) -> None:
    match item.get("type", "message"):
        case "message":
            found.append({"role": item.get("role"), "content": _content(item.get("content"))})
        case "function_call":
            call = {
                "id": str(item.get("call_id")),
                "type": "function",
                "function": {
                    "name": str(item.get("name")),
                    "arguments": str(item.get("arguments")),
                },
            }
            if found and found[-1].get("tool_calls"):
                found[-1]["tool_calls"].append(call)
            else:
                found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        case "function_call_output":
            content = _content(item.get("output"))
            found.append(
                {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": content}
            )
        case "reasoning" | "item_reference":
            pass  # the server has what it refers to
        case other:
            raise ConfigError(
                f"An input item is of the type {str(other)[:40]!r}.",
                hint="Allowed: message, function_call and function_call_output.",
                field="input",
            )


def _content(given: Any) -> Any:
    """Content parts under the names of the chat API."""
    if not isinstance(given, list):
        return given
    return [_part(part) if isinstance(part, dict) else part for part in given]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text")}
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    return part


def _results(rest: Sequence[dict[str, Any]]) -> tuple[ToolResult, ...]:
    """The results at the end, in their order."""
    found: dict[str, ToolResult] = {}
    for one in reversed(rest):
        if one["role"] != "tool":
            break
        call_id, content = one.get("tool_call_id"), one.get("content")
        if not isinstance(call_id, str) or not call_id:
            raise ConfigError(
                "A result names no call.", hint="Give its tool_call_id.", field="messages"
            )
        shown = content if isinstance(content, str | list) else to_json(content)
        found[call_id] = ToolResult(call_id, shown)
    return tuple(reversed(found.values()))


def _media(said: Mapping[str, Any]) -> tuple[Any, ...]:
    content = said.get("content")
    parts = content if isinstance(content, list) else ()
    return tuple(p for p in parts if isinstance(p, dict) and p.get("type") not in (None, "text"))


def _tool(given: Any) -> Tool:
    inner = given.get("function", given) if isinstance(given, dict) else None
    if not isinstance(inner, dict) or given.get("type") != "function":
        raise ConfigError(
            "A tool is no function.", hint='Give {"type": "function", …}.', field="tools"
        )
    name, description = inner.get("name"), inner.get("description")
    parameters = inner.get("parameters")
    if parameters is None:
        parameters = dict(NO_PARAMETERS)
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise ConfigError(
            "A tool has no name, or parameters that are no JSON schema.",
            hint="Give a name, and an object as parameters.",
            field="tools",
        )
    return caller_tool(name, description if isinstance(description, str) else "", parameters)
