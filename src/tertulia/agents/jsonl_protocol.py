"""The JSON Lines protocol of `CommandAgent` and `HttpAgent`: one JSON object per line.

Tertulia sends:

    {"type": "request", "text", "system", "history", "tools", "session_id", "key", "platform"}
    {"type": "tool_results", "results": [{"call_id", "content"}], "steer": ["…"]}

The program or endpoint sends:

    {"type": "delta", "text"}             a piece of text, shown at once
    {"type": "step", "text", "tool_calls": [{"id", "name", "arguments"}], "usage", …}
    {"type": "note", "text"}              a message to the user, not part of the conversation
    {"type": "spent", "usage"}            a model call that produced no step
    {"type": "error", "message", "hint", "kind"}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from tertulia.agents.base import Delta, ModelUsage, Note, Request, Step, ToolResult
from tertulia.agents.tools import with_distinct_ids
from tertulia.core.text.excerpt import log_line
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
)

ErrorKind = Literal["failed", "unavailable", "timeout", "overflow"]
ProtocolEvent = Delta | Step | Note | ModelUsage

_ERRORS: dict[ErrorKind, type[AgentError]] = {
    "failed": AgentFailed,
    "unavailable": AgentUnavailable,
    "timeout": AgentTimeout,
    "overflow": ContextOverflow,
}
_EXCERPT_LENGTH = 200
_HINT = 'Each line must be one event, such as {"type": "step", "text": "hello"}.'


class ReportedError(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """An error that the program or endpoint reports."""

    message: str
    hint: str | None = None
    kind: ErrorKind = "failed"


_decoder = msgspec.json.Decoder(Delta | Step | Note | ModelUsage | ReportedError)


def encode_request(request: Request, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the `request` object for a request and its history."""
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


def encode_tool_results(results: Sequence[ToolResult], steer: Sequence[str]) -> dict[str, Any]:
    """Return the `tool_results` object for the results of a step and new user messages."""
    items = [{"call_id": result.call_id, "content": result.content} for result in results]
    return {"type": "tool_results", "results": items, "steer": list(steer)}


def decode_event(
    line: str | bytes, name: str, scrub: Callable[[str], str] | None = None
) -> ProtocolEvent:
    """Return the event of one line; `name` is the sender for error messages.

    Raise the error that the sender reports, or `AgentFailed` with an excerpt of the line if it is
    not a valid event. `scrub` removes secrets from texts that go into an error.
    """
    try:
        event: ProtocolEvent | ReportedError = _decoder.decode(line)
    except (msgspec.DecodeError, ConfigError, UnicodeError, RecursionError) as problem:
        text = line if isinstance(line, str) else line.decode("utf-8", "replace")
        text = log_line(text if scrub is None else scrub(text), _EXCERPT_LENGTH)
        raise AgentFailed(
            f"{name} sent a line that is not an event ({problem}): {text}", hint=_HINT
        ) from None
    if isinstance(event, ReportedError):
        message = event.message if scrub is None else scrub(event.message)
        raise _ERRORS[event.kind](log_line(message, _EXCERPT_LENGTH) or None, hint=event.hint)
    if isinstance(event, Step):
        if not event.tool_calls and not (event.text or "").strip():
            raise AgentFailed(
                f"{name} sent an empty answer.", hint="A step needs a text or tool calls."
            )
        return msgspec.structs.replace(event, tool_calls=with_distinct_ids(event.tool_calls))
    return event
