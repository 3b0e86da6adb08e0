"""Any server that speaks OpenAI's chat completions: OpenAI itself, and most others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

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
from tertulia.core.history.content import (
    flat,
    speaks,
)
from tertulia.core.message import ToolCall, to_json
from tertulia.core.usage import Usage
from tertulia.errors import AgentError

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIAgent(ModelAgent):
    """A model behind the chat completions API.

    `options` are sent with every call as they are, such as `{"temperature": 0.2}`. `history_tokens`
    is the budget of the history. `sends_reasoning` says whether what the model thought is sent back
    to it; None: to a server that calls it `reasoning_content` itself, since others refuse that.
    """

    format = "openai"
    path = "/chat/completions"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = OPENAI_URL,
        name: str = "openai",
        provider: str | None = None,
        instructions: str = "",
        max_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        history_tokens: int | None = None,
        sends_reasoning: bool | None = None,
        max_steps: int = 30,
        tool_seconds: float = 300.0,
        limits: Limits | None = None,
        retry: Retry | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        given = dict(headers or {})
        sent = {"Authorization": f"Bearer {api_key}"} if api_key else {}
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
            provider="openai" if provider is None and base_url == OPENAI_URL else provider,
            instructions=instructions,
            options=options or {},
            history_tokens=history_tokens,
            max_steps=max_steps,
            tool_seconds=tool_seconds,
        )
        self._max_tokens = max_tokens
        self._sends_reasoning = sends_reasoning
        # What a server may not know, and how the longest answer is called by it.
        self._asks_for_usage = True
        self._limit_name = "max_tokens"

    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        system = self._system(request)
        shown = messages if self._sends_reasoning else [_without_thoughts(one) for one in messages]
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": system}, *shown] if system else shown,
            "stream": True,
        }
        if self._asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        if self._max_tokens is not None:
            body[self._limit_name] = self._max_tokens
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

    def _reader(self) -> Reader:
        return _Reader(self._wire, self._learn_of_reasoning)

    def _learn_of_reasoning(self) -> None:
        if self._sends_reasoning is None:
            self._sends_reasoning = True

    def _adapts(self, problem: AgentError) -> bool:
        # Read from the words, since no server has a code for it; only what was sent is given up.
        if problem.data.get("status") not in (400, 422):
            return False
        if self._asks_for_usage and "stream_options" in problem.message:
            self._asks_for_usage = False
            return True
        wanted = "max_completion_tokens"
        if (
            self._max_tokens is not None
            and self._limit_name != wanted
            and wanted in problem.message
        ):
            self._limit_name = wanted
            return True
        return False


def _without_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    if "reasoning_content" not in message:
        return message
    return {name: value for name, value in message.items() if name != "reasoning_content"}


class _Call(msgspec.Struct):
    """A tool call while it comes in."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    index: int | None = None


class _Reader(Reader):
    def __init__(self, wire: Transport, learn_of_reasoning: Callable[[], None]) -> None:
        super().__init__(wire)
        self._learn_of_reasoning = learn_of_reasoning
        self._calls: list[_Call] = []
        self._reasoning = ""
        self._refusal = ""
        self._finish: str | None = None
        self._is_done = False
        self._usage: Mapping[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        return self._is_done or self._finish is not None

    def _take(self, event: SseEvent) -> str:
        if event.data.strip() == "[DONE]":
            self._is_done = True
            return ""
        chunk = self.decoded(event.data)
        if chunk.get("error"):
            raise self._broken(chunk)
        if isinstance(chunk.get("model"), str):
            self.model = chunk["model"] or None
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self._take_choice(first) if isinstance(first, dict) else ""

    def _broken(self, chunk: dict[str, Any]) -> AgentError:
        error = chunk["error"]
        code = error.get("code") if isinstance(error, dict) else None
        # Some put the status there that they could not send any more.
        return self.wire.refused(code if type(code) is int and 400 <= code < 600 else 400, chunk)

    def _take_choice(self, choice: dict[str, Any]) -> str:
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        # A server that does not stream sends the whole message under another name.
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return ""
        self._take_reasoning(delta)
        if isinstance(delta.get("refusal"), str):
            self._refusal += delta["refusal"]
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._take_call(call)
        return flat(delta.get("content"))

    def _take_reasoning(self, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("reasoning_content"), str) and delta["reasoning_content"]:
            self._learn_of_reasoning()
            self._reasoning += delta["reasoning_content"]
        elif isinstance(delta.get("reasoning"), str):
            self._reasoning += delta["reasoning"]

    def _take_call(self, given: dict[str, Any]) -> None:
        call_id = given.get("id") if isinstance(given.get("id"), str) else ""
        call = self._call_for(given.get("index"), call_id or "")
        function = given.get("function")
        function = function if isinstance(function, dict) else {}
        # A name comes whole; some servers repeat it in every chunk.
        if isinstance(function.get("name"), str) and function["name"]:
            call.name = function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments += arguments
        elif arguments is not None:
            call.arguments = to_json(arguments)

    def _call_for(self, index: Any, call_id: str) -> _Call:
        """The call that a chunk goes on with. Some servers give no index, some 0 to every call."""
        for call in reversed(self._calls):
            if index is not None and call.index != index:
                continue
            if not call_id or call.id == call_id or (index is not None and not call.id):
                call.id = call.id or call_id
                return call
            break
        self._calls.append(_Call(id=call_id, index=index))
        return self._calls[-1]

    def closing(self) -> str:
        if self._refusal and not self.text:
            return self._refusal
        if self._finish == "content_filter" and not self._calls:
            return REFUSED_ON_THE_WAY if speaks(self.text) else REFUSED
        return ""

    def reply(self) -> Reply:
        is_refusal = bool(self._refusal) or self._finish == "content_filter"
        return Reply(
            text=self.text,
            reasoning=paired(self._reasoning) or None,
            calls=tuple(
                ToolCall(one.id, one.name, paired(one.arguments) or "{}") for one in self._calls
            ),
            is_cut=self._finish == "length",
            extra={"refused": True} if is_refusal else {},
        )

    def usage(self) -> Usage | None:
        given = self._usage
        if given is None:
            return None
        prompt, output = count(given.get("prompt_tokens")), count(given.get("completion_tokens"))
        of_prompt = _details(given, "prompt_tokens_details")
        read = count(of_prompt.get("cached_tokens")) or count(given.get("prompt_cache_hit_tokens"))
        write = count(of_prompt.get("cache_write_tokens"))
        thought = count(_details(given, "completion_tokens_details").get("reasoning_tokens"))
        cost = given.get("cost")
        is_told = isinstance(cost, int | float) and 0 <= cost < 1e6
        return Usage(
            max(0, prompt - read - write),
            output,
            read,
            write,
            thought,
            last_prompt=prompt,
            cost_usd=float(cost) if is_told and cost is not None else None,
            cost_source="provider" if is_told else None,
        )


def _details(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}
