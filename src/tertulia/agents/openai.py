"""Agent for servers with the OpenAI Chat Completions API: OpenAI itself, and most others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tertulia.agents.agent_options import OPENAI_URL, OpenAIOptions
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
from tertulia.core.history.content import flatten_content, has_content
from tertulia.core.message import ToolCall, to_json
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.core.usage import Usage
from tertulia.errors import AgentError


class OpenAIAgent(ModelAgent[OpenAIOptions]):
    """Agent that calls a model through the OpenAI Chat Completions API."""

    format = "openai"
    path = "/chat/completions"
    official_url = OPENAI_URL

    # Some servers reject `stream_options`, some call the limit `max_completion_tokens`, and some
    # have a field for reasoning, which others reject.
    _requests_usage = True
    _max_tokens_field = "max_tokens"
    _uses_reasoning_field = False

    @property
    def provider(self) -> str | None:
        is_openai = self._options.provider is None and self._options.base_url == OPENAI_URL
        return "openai" if is_openai else self._options.provider

    def _own_headers(self, api_key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        system = self._system(request)
        sends_reasoning = self._options.sends_reasoning
        if not (self._uses_reasoning_field if sends_reasoning is None else sends_reasoning):
            messages = [_without_reasoning(message) for message in messages]
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": system}, *messages] if system else messages,
            "stream": True,
        }
        if self._requests_usage:
            body["stream_options"] = {"include_usage": True}
        if self._options.max_tokens is not None:
            body[self._max_tokens_field] = self._options.max_tokens
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        return body

    def _reader(self) -> ResponseReader:
        return _OpenAIReader(self._transport, self._enable_reasoning)

    def _enable_reasoning(self) -> None:
        """Send reasoning from now on, unless the options say otherwise."""
        self._uses_reasoning_field = True

    def _drop_option(self, problem: AgentError) -> bool:
        # Parsed from the message, since no server has a code for it. Only a field that was sent is
        # dropped or renamed.
        if problem.status not in (400, 422):
            return False
        if self._requests_usage and "stream_options" in problem.message:
            self._requests_usage = False
            return True
        new_field = "max_completion_tokens"
        if (
            self._options.max_tokens is not None
            and self._max_tokens_field != new_field
            and new_field in problem.message
        ):
            self._max_tokens_field = new_field
            return True
        return False


def _without_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    if "reasoning_content" not in message:
        return message
    return {name: value for name, value in message.items() if name != "reasoning_content"}


class _PartialCall(msgspec.Struct):
    """A tool call while it is received."""

    id: str = ""
    name: str = ""
    arguments: TextBuffer = msgspec.field(default_factory=TextBuffer)
    index: int | None = None


class _OpenAIReader(ResponseReader):
    """Reads one response; calls `on_reasoning` when it has the field `reasoning_content`."""

    def __init__(self, transport: Transport, on_reasoning: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_reasoning = on_reasoning
        self._calls: list[_PartialCall] = []
        self._reasoning = TextBuffer()
        self._refusal = TextBuffer()
        self._finish_reason: str | None = None
        self._is_done = False
        self._usage: Mapping[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        return self._is_done or self._finish_reason is not None

    def _read(self, event: SseEvent) -> str:
        if event.data.strip() == "[DONE]":
            self._is_done = True
            return ""
        chunk = self.decode(event.data)
        if chunk.get("error"):
            raise self._stream_error(chunk)
        if isinstance(chunk.get("model"), str):
            self.model = chunk["model"] or None
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self._read_choice(first) if isinstance(first, dict) else ""

    def _stream_error(self, chunk: dict[str, Any]) -> AgentError:
        error = chunk["error"]
        code = error.get("code") if isinstance(error, dict) else None
        # The status line was sent already, so some servers put the status here.
        status = code if type(code) is int and 400 <= code < 600 else 400
        return self.transport.error_of(status, chunk)

    def _read_choice(self, choice: dict[str, Any]) -> str:
        finish_reason = choice.get("finish_reason")
        if isinstance(finish_reason, str) and finish_reason:
            self._finish_reason = finish_reason
        # A server that does not stream sends the whole message in another field.
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return ""
        self._read_reasoning(delta)
        if isinstance(delta.get("refusal"), str):
            self._append(self._refusal, delta["refusal"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._read_call(call)
        return flatten_content(delta.get("content"))

    def _read_reasoning(self, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("reasoning_content"), str) and delta["reasoning_content"]:
            self._on_reasoning()
            piece = delta["reasoning_content"]
        elif isinstance(delta.get("reasoning"), str):
            piece = delta["reasoning"]
        else:
            return
        self._append(self._reasoning, piece)
        self._thought = piece

    def _read_call(self, chunk: dict[str, Any]) -> None:
        call_id = chunk.get("id") if isinstance(chunk.get("id"), str) else ""
        call = self._call_for(chunk.get("index"), call_id or "")
        function = chunk.get("function")
        function = function if isinstance(function, dict) else {}
        # A name is never split; some servers repeat it in every chunk.
        if isinstance(function.get("name"), str) and function["name"]:
            call.name = function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._append(call.arguments, arguments)
        elif arguments is not None:
            call.arguments.clear()
            self._append(call.arguments, to_json(arguments))

    def _call_for(self, index: Any, call_id: str) -> _PartialCall:
        """Return the call that a chunk belongs to, a new one if needed.

        Some servers send no index, some send index 0 for every call.
        """
        for call in reversed(self._calls):
            if index is not None and call.index != index:
                continue
            if not call_id or call.id == call_id or (index is not None and not call.id):
                call.id = call.id or call_id
                return call
            break
        self._calls.append(_PartialCall(id=call_id, index=index))
        return self._calls[-1]

    def closing_text(self) -> str:
        if self._refusal and not self.text:
            return str(self._refusal)
        if self._finish_reason == "content_filter" and not self._calls:
            return REFUSED_MIDWAY if has_content(self.text) else REFUSED
        return ""

    def reply(self) -> Reply:
        is_refusal = bool(self._refusal) or self._finish_reason == "content_filter"
        return Reply(
            text=self.text,
            reasoning=join_surrogates(str(self._reasoning)) or None,
            calls=tuple(
                ToolCall(call.id, call.name, join_surrogates(str(call.arguments)) or "{}")
                for call in self._calls
            ),
            is_truncated=self._finish_reason == "length",
            extra={"refused": True} if is_refusal else {},
        )

    def usage(self) -> Usage | None:
        counts = self._usage
        if counts is None:
            return None
        prompt = token_count(counts.get("prompt_tokens"))
        prompt_details = _details(counts, "prompt_tokens_details")
        cache_read = token_count(prompt_details.get("cached_tokens"))
        cache_read = cache_read or token_count(counts.get("prompt_cache_hit_tokens"))
        cache_write = token_count(prompt_details.get("cache_write_tokens"))
        output_details = _details(counts, "completion_tokens_details")
        cost = counts.get("cost")
        has_cost = isinstance(cost, int | float) and 0 <= cost < 1e6
        return Usage(
            max(0, prompt - cache_read - cache_write),
            token_count(counts.get("completion_tokens")),
            cache_read,
            cache_write,
            token_count(output_details.get("reasoning_tokens")),
            last_prompt=prompt,
            cost_usd=float(cost) if has_cost and cost is not None else None,
            cost_source="provider" if has_cost else None,
        )


def _details(counts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = counts.get(name)
    return details if isinstance(details, dict) else {}
