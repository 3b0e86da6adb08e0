"""Conversion of SDK content into our message content: text, or parts that each have a type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tertulia.core.history.content import describe_part

Content = str | list[dict[str, Any]] | None


def join_parts(parts: Sequence[dict[str, Any]]) -> Content:
    """Return parts as one text if all of them are text; None if there are none."""
    if not parts:
        return None
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def text_part(text: str) -> dict[str, Any]:
    """Return a text part in the OpenAI format."""
    return {"type": "text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    """Return an image part in the OpenAI format."""
    return {"type": "image_url", "image_url": {"url": url}}


def placeholder_part(part: Any) -> dict[str, Any]:
    """Return a text part that names the type of a part our messages cannot hold.

    Nothing is lost: the SDK payload beside the message holds the whole part.
    """
    if isinstance(part, str):
        return text_part(part)
    kind = part.get("type") if isinstance(part, Mapping) else None
    return text_part(describe_part({"type": kind}) if isinstance(kind, str) else "[part]")


def to_text(value: Any) -> str:
    """Return a tool result as the model reads it: text unchanged, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a tool call in the OpenAI format; values of any type are accepted."""
    function = {"name": str(name or ""), "arguments": to_text(arguments or "{}")}
    return {"id": str(call_id or "call"), "type": "function", "function": function}


def assistant_message(content: Content, calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return an assistant message, with its tool calls if there are any."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    return message


def tool_message(call_id: Any, content: Content, name: Any = None) -> dict[str, Any]:
    """Return the result of a tool call; values of any type are accepted."""
    message = {"role": "tool", "tool_call_id": str(call_id or "call"), "content": content or ""}
    return {**message, "name": name} if isinstance(name, str) and name else message
