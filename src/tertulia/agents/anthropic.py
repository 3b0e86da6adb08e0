"""Agent for servers with the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tertulia.agents.agent_options import ANTHROPIC_URL, AnthropicOptions
from tertulia.agents.base import Request
from tertulia.agents.model_agent import (
    REFUSED,
    REFUSED_MIDWAY,
    ModelAgent,
    Reply,
    ResponseReader,
    join_surrogates,
    token_count,
)
from tertulia.agents.sse import SseEvent
from tertulia.agents.transport import Transport
from tertulia.core.history.content import has_content
from tertulia.core.message import ToolCall, to_json
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.core.usage import Usage
from tertulia.errors import AgentError, ContextOverflow

VERSION = "2023-06-01"

_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_THINKING_TYPES = ("thinking", "redacted_thinking")
# The field of a block that each kind of delta extends, and the field with the piece.
_DELTA_FIELDS = {
    "input_json_delta": ("json", "partial_json"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
# The HTTP status of each error type, for errors in the middle of a stream.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicAgent(ModelAgent[AnthropicOptions]):
    """Agent that calls a model through the Anthropic Messages API."""

    format = "anthropic"
    path = "/v1/messages"
    official_url = ANTHROPIC_URL

    def _own_headers(self, api_key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})

    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "max_tokens": self._options.max_tokens,
            "messages": _with_cache_mark(messages) if self._options.caches else messages,
            "stream": True,
        }
        if system := self._system(request):
            mark = _CACHE_MARK if self._options.caches else {}
            body["system"] = [{"type": "text", "text": system, **mark}]
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ]
        elif names := _called_tool_names(messages):
            # The API accepts earlier tool calls only if the tools are described.
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
        return body

    def _reader(self) -> ResponseReader:
        return _AnthropicReader(self._transport)


def _with_cache_mark(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the last part marked as cacheable; the argument is unchanged."""
    if not messages or not isinstance(messages[-1].get("content"), list):
        return messages
    *earlier, last = messages
    *parts, last_part = last["content"]
    if last_part.get("type") in _THINKING_TYPES:
        return messages
    return [*earlier, {**last, "content": [*parts, {**last_part, **_CACHE_MARK}]}]


def _called_tool_names(messages: list[dict[str, Any]]) -> list[str]:
    parts = (part for message in messages for part in message["content"])
    return sorted({part["name"] for part in parts if part.get("type") == "tool_use"})


class _AnthropicReader(ResponseReader):
    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._blocks: dict[Any, dict[str, Any]] = {}
        self._fields: dict[tuple[Any, str], TextBuffer] = {}
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._is_done = False

    @property
    def is_complete(self) -> bool:
        return self._is_done or self._stop_reason is not None

    def _read(self, event: SseEvent) -> str:
        data = self.decode(event.data)
        kind = data.get("type")
        if kind == "error":
            raise self._stream_error(data)
        if kind == "content_block_start":
            return self._begin_block(data)
        if kind == "content_block_delta":
            return self._extend_block(data)
        if kind == "message_start":
            self._read_message_start(_dict(data, "message"))
        elif kind == "message_delta":
            self._read_message_end(_dict(data, "delta"), data)
        elif kind == "message_stop":
            self._is_done = True
        elif kind == "message":
            return self._read_whole_message(data)
        return ""

    def _stream_error(self, data: dict[str, Any]) -> AgentError:
        kind = _dict(data, "error").get("type")
        status = _STATUSES.get(kind, 400) if isinstance(kind, str) else 400
        return self.transport.error_of(status, data)

    def _read_whole_message(self, message: dict[str, Any]) -> str:
        """Read the message of a server that does not stream; return its text."""
        self._read_message_start(message)
        self._read_message_end(message, message)
        self._is_done = True
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [
            self._begin_block({"index": index, "content_block": block})
            for index, block in enumerate(blocks)
        ]
        return "".join(texts)

    def _read_message_start(self, message: dict[str, Any]) -> None:
        if isinstance(message.get("model"), str):
            self.model = message["model"] or None
        self._usage.update(_dict(message, "usage"))

    def _read_message_end(self, delta: dict[str, Any], data: dict[str, Any]) -> None:
        if isinstance(delta.get("stop_reason"), str):
            self._stop_reason = delta["stop_reason"]
        # Counts are totals of the message so far; a count that is missing keeps its last value.
        counts = {name: value for name, value in _dict(data, "usage").items() if value is not None}
        self._usage.update(counts)

    def _begin_block(self, data: dict[str, Any]) -> str:
        block = dict(_dict(data, "content_block"))
        self._blocks[data.get("index")] = block
        return _text(block, "text") if block.get("type") == "text" else ""

    def _extend_block(self, data: dict[str, Any]) -> str:
        block = self._blocks.setdefault(data.get("index"), {"type": "text"})
        delta = _dict(data, "delta")
        kind = delta.get("type")
        if kind == "text_delta":
            return _text(delta, "text")
        if isinstance(kind, str) and kind in _DELTA_FIELDS:
            field, piece_field = _DELTA_FIELDS[kind]
            key = data.get("index"), field
            if key not in self._fields:
                self._fields[key] = TextBuffer()
                self._append(self._fields[key], _text(block, field))
            self._append(self._fields[key], _text(delta, piece_field))
            if kind == "thinking_delta":
                self._thought = _text(delta, piece_field)
        return ""

    def _finished_blocks(self) -> list[dict[str, Any]]:
        for (index, field), buffer in self._fields.items():
            self._blocks[index][field] = str(buffer)
        return list(self._blocks.values())

    def closing_text(self) -> str:
        if self._stop_reason != "refusal":
            return ""
        return REFUSED_MIDWAY if has_content(self.text) else REFUSED

    def reply(self) -> Reply:
        blocks = self._finished_blocks()
        thinking = [block for block in blocks if block.get("type") in _THINKING_TYPES]
        is_refusal = self._stop_reason == "refusal"
        uses = [block for block in blocks if block.get("type") == "tool_use" and not is_refusal]
        calls = tuple(_tool_call(block) for block in uses)
        is_overflow = self._stop_reason == "model_context_window_exceeded"
        if is_overflow and not calls and not has_content(self.text):
            raise ContextOverflow(
                "The conversation fills the context window: the model has no room to answer.",
                hint="Compact it and try again.",
            )
        reasoning = "".join(_text(block, "thinking") for block in thinking)
        extra: dict[str, Any] = {"thinking_blocks": thinking} if thinking else {}
        return Reply(
            text=self.text,
            reasoning=reasoning or None,
            calls=calls,
            is_truncated=is_overflow or self._stop_reason == "max_tokens",
            extra={**extra, "refused": True} if is_refusal else extra,
        )

    def usage(self) -> Usage | None:
        counts = self._usage
        if "input_tokens" not in counts and "output_tokens" not in counts:
            return None
        uncached = token_count(counts.get("input_tokens"))
        cache_read = token_count(counts.get("cache_read_input_tokens"))
        cache_write = token_count(counts.get("cache_creation_input_tokens"))
        details = _dict(counts, "output_tokens_details")
        return Usage(
            uncached,
            token_count(counts.get("output_tokens")),
            cache_read,
            cache_write,
            token_count(details.get("thinking_tokens")),
            last_prompt=uncached + cache_read + cache_write,
        )


def _tool_call(block: dict[str, Any]) -> ToolCall:
    arguments = join_surrogates(_text(block, "json")) or to_json(block.get("input") or {})
    return ToolCall(_text(block, "id"), _text(block, "name"), arguments)


def _dict(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
