"""Any server that speaks Anthropic's messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from tertulia.agents.base import Request
from tertulia.agents.model_agent import (
    REFUSED,
    REFUSED_ON_THE_WAY,
    ModelAgent,
    Reader,
    Reply,
    count,
    paired,
)
from tertulia.agents.sse import SseEvent
from tertulia.agents.transport import (
    Limits,
    Retry,
    Sleep,
    Transport,
)
from tertulia.core.history.content import speaks
from tertulia.core.message import ToolCall, to_json
from tertulia.core.usage import Usage
from tertulia.errors import AgentError, ContextOverflow

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

_CACHED = {"cache_control": {"type": "ephemeral"}}
_THOUGHTS = ("thinking", "redacted_thinking")
# The statuses of errors that come in the middle of a stream, by their type.
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


class AnthropicAgent(ModelAgent):
    """A model behind the messages API.

    `options` are sent with every call as they are, such as a budget for thinking. With `caches` the
    prompt is marked so that its unchanged beginning is read from the provider's cache.
    """

    format = "anthropic"
    path = "/v1/messages"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = ANTHROPIC_URL,
        name: str = "anthropic",
        provider: str | None = "anthropic",
        instructions: str = "",
        max_tokens: int = 8192,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        history_tokens: int | None = None,
        caches: bool = True,
        max_steps: int = 30,
        tool_seconds: float = 300.0,
        limits: Limits | None = None,
        retry: Retry | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        given = dict(headers or {})
        sent = {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})
        wire = Transport(
            base_url,
            headers={**sent, **given},
            secrets=(api_key or "", *given.values()),
            limits=limits,
            retry=retry,
            sleep=sleep,
            chance=chance,
        )
        super().__init__(
            wire,
            name=name,
            model=model,
            provider=provider,
            instructions=instructions,
            options=options or {},
            history_tokens=history_tokens,
            max_steps=max_steps,
            tool_seconds=tool_seconds,
        )
        self._max_tokens = max_tokens
        self._caches = caches

    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "max_tokens": self._max_tokens,
            "messages": _marked(messages) if self._caches else messages,
            "stream": True,
        }
        if system := self._system(request):
            mark = _CACHED if self._caches else {}
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
        elif called := _called(messages):
            # The API takes calls in the past only where such tools are described.
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in called]
            body["tool_choice"] = {"type": "none"}
        return body

    def _reader(self) -> Reader:
        return _Reader(self._wire)


def _marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the end of what may be cached marked; those given stay as they are."""
    if not messages or not isinstance(messages[-1].get("content"), list):
        return messages
    *before, last = messages
    *parts, end = last["content"]
    if end.get("type") in _THOUGHTS:
        return messages
    return [*before, {**last, "content": [*parts, {**end, **_CACHED}]}]


def _called(messages: list[dict[str, Any]]) -> list[str]:
    parts = (part for message in messages for part in message["content"])
    return sorted({part["name"] for part in parts if part.get("type") == "tool_use"})


class _Reader(Reader):
    def __init__(self, wire: Transport) -> None:
        super().__init__(wire)
        self._blocks: dict[Any, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._end: str | None = None
        self._is_done = False

    @property
    def is_complete(self) -> bool:
        return self._is_done or self._end is not None

    def _take(self, event: SseEvent) -> str:
        told = self.decoded(event.data)
        kind = told.get("type")
        if kind == "error":
            raise self._broken(told)
        if kind == "content_block_start":
            return self._begin(told)
        if kind == "content_block_delta":
            return self._go_on(told)
        if kind == "message_start":
            self._take_message(_dict(told, "message"))
        elif kind == "message_delta":
            self._take_end(_dict(told, "delta"), told)
        elif kind == "message_stop":
            self._is_done = True
        elif kind == "message":
            return self._take_whole(told)
        return ""

    def _broken(self, told: dict[str, Any]) -> AgentError:
        kind = _dict(told, "error").get("type")
        return self.wire.refused(_STATUSES.get(kind, 400) if isinstance(kind, str) else 400, told)

    def _take_whole(self, message: dict[str, Any]) -> str:
        """The message of a server that does not stream."""
        self._take_message(message)
        self._take_end(message, message)
        self._is_done = True
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        begun = [self._begin({"index": at, "content_block": one}) for at, one in enumerate(blocks)]
        return "".join(begun)

    def _take_message(self, message: dict[str, Any]) -> None:
        if isinstance(message.get("model"), str):
            self.model = message["model"] or None
        self._usage.update(_dict(message, "usage"))

    def _take_end(self, end: dict[str, Any], told: dict[str, Any]) -> None:
        if isinstance(end.get("stop_reason"), str):
            self._end = end["stop_reason"]
        # Counts are of the whole message so far; one that is left out stands as it was.
        found = {name: value for name, value in _dict(told, "usage").items() if value is not None}
        self._usage.update(found)

    def _begin(self, told: dict[str, Any]) -> str:
        block = dict(_dict(told, "content_block"))
        self._blocks[told.get("index")] = block
        return _text(block, "text") if block.get("type") == "text" else ""

    def _go_on(self, told: dict[str, Any]) -> str:
        block = self._blocks.setdefault(told.get("index"), {"type": "text"})
        delta = _dict(told, "delta")
        kind = delta.get("type")
        if kind == "text_delta":
            return _text(delta, "text")
        if kind == "input_json_delta":
            block["json"] = _text(block, "json") + _text(delta, "partial_json")
        elif kind == "thinking_delta":
            block["thinking"] = _text(block, "thinking") + _text(delta, "thinking")
        elif kind == "signature_delta":
            block["signature"] = _text(block, "signature") + _text(delta, "signature")
        return ""

    def closing(self) -> str:
        if self._end != "refusal":
            return ""
        return REFUSED_ON_THE_WAY if speaks(self.text) else REFUSED

    def reply(self) -> Reply:
        blocks = self._blocks.values()
        thoughts = [block for block in blocks if block.get("type") in _THOUGHTS]
        is_refusal = self._end == "refusal"
        uses = [] if is_refusal else [one for one in blocks if one.get("type") == "tool_use"]
        calls = tuple(_call(one) for one in uses)
        if self._end == "model_context_window_exceeded" and not calls and not speaks(self.text):
            raise ContextOverflow(
                "The conversation leaves the model no room to answer.",
                hint="Compact it and try again.",
            )
        reasoning = "".join(_text(block, "thinking") for block in thoughts)
        extra: dict[str, Any] = {"thinking_blocks": thoughts} if thoughts else {}
        return Reply(
            text=self.text,
            reasoning=reasoning or None,
            calls=calls,
            is_cut=self._end in ("max_tokens", "model_context_window_exceeded"),
            extra={**extra, "refused": True} if is_refusal else extra,
        )

    def usage(self) -> Usage | None:
        given = self._usage
        if "input_tokens" not in given and "output_tokens" not in given:
            return None
        plain = count(given.get("input_tokens"))
        read = count(given.get("cache_read_input_tokens"))
        write = count(given.get("cache_creation_input_tokens"))
        details = _dict(given, "output_tokens_details")
        return Usage(
            plain,
            count(given.get("output_tokens")),
            read,
            write,
            count(details.get("thinking_tokens")),
            last_prompt=plain + read + write,
        )


def _call(block: dict[str, Any]) -> ToolCall:
    written = paired(_text(block, "json")) or to_json(block.get("input") or {})
    return ToolCall(_text(block, "id"), _text(block, "name"), written)


def _dict(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _text(holder: Mapping[str, Any], name: str) -> str:
    found = holder.get(name)
    return found if isinstance(found, str) else ""
