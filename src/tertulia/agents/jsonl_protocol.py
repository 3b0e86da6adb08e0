"""What a program or an endpoint of one's own is told, and what it says: JSON, one object a line.

told    {"type": "request", "text", "system", "history", "tools", "session_id", "key", "platform"}
        {"type": "tool_results", "results": [{"call_id", "content"}], "steer": ["…"]}
says    {"type": "delta", "text"}             shown at once
        {"type": "step", "text", "tool_calls": [{"id", "name", "arguments"}], "usage", …}
        {"type": "note", "text"}              to the person, no part of the conversation
        {"type": "spent", "usage"}            a model call that led to no step
        {"type": "error", "message", "hint", "kind"}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from tertulia.agents.base import Delta, ModelUsage, Note, Request, Step, ToolResult
from tertulia.agents.tools import distinct
from tertulia.core.text.excerpt import excerpt
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
)

Kind = Literal["failed", "unavailable", "timeout", "overflow"]
Said = Delta | Step | Note | ModelUsage

_KINDS: dict[Kind, type[AgentError]] = {
    "failed": AgentFailed,
    "unavailable": AgentUnavailable,
    "timeout": AgentTimeout,
    "overflow": ContextOverflow,
}
_SHOWN = 200
_HINT = 'Each line must be one event, such as {"type": "step", "text": "hello"}.'


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The other side says that it failed."""

    message: str
    hint: str | None = None
    kind: Kind = "failed"


_decoder = msgspec.json.Decoder(Delta | Step | Note | ModelUsage | Failure)


def asked(request: Request, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The request as it is told."""
    return {
        "type": "request",
        "text": request.text,
        "system": request.system,
        "history": history,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.tools
        ],
        "session_id": request.session_id,
        "key": request.key,
        "platform": request.platform,
    }


def answered(results: Sequence[ToolResult], steer: Sequence[str]) -> dict[str, Any]:
    """What the tools of a step gave, and what the person has said meanwhile, as it is told."""
    found = [{"call_id": result.call_id, "content": result.content} for result in results]
    return {"type": "tool_results", "results": found, "steer": list(steer)}


def read(line: str | bytes, name: str, scrub: Callable[[str], str] | None = None) -> Said:
    """One event; raises what the other side says, or that it makes no sense, with the line."""
    try:
        said: Said | Failure = _decoder.decode(line)
    except (msgspec.DecodeError, ConfigError, UnicodeError, RecursionError) as problem:
        text = line if isinstance(line, str) else line.decode("utf-8", "replace")
        shown = excerpt(text if scrub is None else scrub(text), _SHOWN)
        raise AgentFailed(
            f"{name} wrote something that is no event ({problem}): {shown}", hint=_HINT
        ) from None
    if isinstance(said, Failure):
        told = said.message if scrub is None else scrub(said.message)
        raise _KINDS[said.kind](excerpt(told, _SHOWN) or None, hint=said.hint)
    if isinstance(said, Step):
        if not said.tool_calls and not (said.text or "").strip():
            raise AgentFailed(f"{name} gave an empty answer.", hint="A step needs text or calls.")
        return msgspec.structs.replace(said, tool_calls=distinct(said.tool_calls))
    return said
