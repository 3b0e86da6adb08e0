"""Content of other forms as ours: text, or parts that each name their type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tertulia.core.history.content import describe_part

Content = str | list[dict[str, Any]] | None


def joined(parts: Sequence[dict[str, Any]]) -> Content:
    """Parts as one text where they are nothing but text."""
    if not parts:
        return None
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def unknown(part: Any) -> dict[str, Any]:
    """What has no place in a message leaves a trace in words; the payload has it whole."""
    if isinstance(part, str):
        return text(part)
    kind = part.get("type") if isinstance(part, Mapping) else None
    return text(describe_part({"type": kind}) if isinstance(kind, str) else "[part]")


def written(value: Any) -> str:
    """A result as the model was shown it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the OpenAI form, whatever its parts are."""
    function = {"name": str(name or ""), "arguments": written(arguments or "{}")}
    return {"id": str(call_id or "call"), "type": "function", "function": function}


def assistant(content: Content, calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    return message


def result(call_id: Any, content: Content, name: Any = None) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": str(call_id or "call"), "content": content or ""}
    return {**message, "name": name} if isinstance(name, str) and name else message
