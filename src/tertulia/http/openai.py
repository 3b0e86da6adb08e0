"""The API that OpenAI's clients speak, over the conversations of this gateway."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, Error
from tertulia.gateway.request_reply import (
    AgentReply,
    AgentRequest,
)
from tertulia.http import (
    conversation_id,
    openai_requests,
)
from tertulia.http.auth import API
from tertulia.http.errors import (
    error_detail,
    json_response,
)
from tertulia.http.event_stream import (
    PING,
    EventStream,
    StreamedTurn,
    event,
)
from tertulia.http.routing import (
    ApiCall,
    Operation,
)

_DONE = b"data: [DONE]\n\n"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A request for `/v1/chat/completions`. What is not named here is left to the agent."""

    messages: Annotated[list[Any], Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[Any] | None = None
    user: str | None = None
    conversation: str | None = None


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for `/v1/responses`."""

    input: str | Annotated[list[Any], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = False
    tools: list[Any] | None = None
    user: str | None = None
    conversation: str | dict[str, Any] | None = None
    previous_response_id: str | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "tertulia"


class Models(msgspec.Struct, frozen=True):
    data: tuple[Model, ...]
    object: str = "list"


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    object: str = "chat.completion"


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    model: str
    status: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None
    conversation: dict[str, str]
    previous_response_id: str | None = None
    instructions: str | None = None
    error: dict[str, Any] | None = None
    incomplete_details: None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    temperature: None = None
    top_p: None = None
    tool_choice: str = "auto"
    tools: list[Any] = []
    object: str = "response"


class _Asked(msgspec.Struct, frozen=True):
    ask: AgentRequest
    conversation: str
    is_named: bool
    model: str

    @property
    def headers(self) -> dict[str, str]:
        name = self.conversation
        # A header holds no more than this; the body of a response tells any name.
        return {conversation_id.HEADER: name} if name.isascii() else {}


async def list_models(call: ApiCall) -> Models:
    return Models((Model(id=call.api.agent_name),))


def _read(call: ApiCall, named: conversation_id.ConversationName, message: tuple[str, bool], *,
          messages: Sequence[Any], given: Completion | ResponseRequest,
          instructions: str | None = None) -> _Asked:  # fmt: skip
    spoken = openai_requests.spoken(messages, is_kept=named.is_kept)
    name, is_named = message
    ask = AgentRequest(
        source=call.caller.source(API, named.id),
        text=spoken.text,
        message_id=name,
        media=spoken.media,
        past=spoken.past,
        results=spoken.results,
        tools=openai_requests.tools(given.tools),
        instructions="\n\n".join(filter(None, (instructions, spoken.instructions))),
    )
    return _Asked(ask, named.id, is_named, given.model or call.api.agent_name)


def _run(call: ApiCall, what: _Asked) -> StreamedTurn:
    ping = call.api.settings.ping_seconds
    return StreamedTurn(call.api.direct, what.ask, is_named=what.is_named, ping=ping)


# -- chat completions


async def complete_chat(call: ApiCall) -> Response:
    given: Completion = call.body
    message = conversation_id.message_id(call.request)
    named = conversation_id.named(call.request, message[0], given.conversation, given.user)
    what = _read(call, named, message, messages=given.messages, given=given)
    await call.api.remember(call.caller)
    if not given.stream:
        answer = await call.api.direct.start(what.ask)
        return json_response(_completion(answer, what.model), headers=what.headers)
    run = _run(call, what)
    await run.begin()
    has_usage = given.stream_options is not None and given.stream_options.include_usage
    return EventStream(
        _chunks(run, what.model, has_usage),
        seconds=call.api.settings.stream_seconds,
        headers=what.headers,
    )


def _completion(answer: AgentReply, model: str) -> ChatCompletion:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.tool_calls:
        message["tool_calls"] = [call.to_dict() for call in answer.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
    return ChatCompletion(
        id=_completion_id(),
        created=int(time.time()),
        model=model,
        choices=[choice],
        usage=_chat_usage(answer.usage),
    )


async def _chunks(run: StreamedTurn, model: str, has_usage: bool) -> AsyncGenerator[bytes, None]:
    head = {
        "id": _completion_id(),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(run.texts()) as texts:
            async for text in texts:
                yield PING if text is None else chunk({"content": text})
        answer = await run.answer()
        if answer.tool_calls:
            calls = [{"index": at, **one.to_dict()} for at, one in enumerate(answer.tool_calls)]
            yield chunk({"tool_calls": calls})
        yield chunk({}, _finish(answer))
        if has_usage:
            yield event({**head, "choices": [], "usage": _chat_usage(answer.usage)})
        yield _DONE
    except Error as problem:
        yield event({"error": error_detail(problem)})


def _completion_id() -> str:
    return f"chatcmpl-{os.urandom(12).hex()}"


def _finish(answer: AgentReply) -> str:
    return "tool_calls" if answer.tool_calls else "stop"


def _chat_usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


# -- responses


async def create_response(call: ApiCall) -> Response:
    given: ResponseRequest = call.body
    message = conversation_id.message_id(call.request)
    before = given.previous_response_id
    named = conversation_id.named(
        call.request,
        message[0],
        _conversation_id(given.conversation),
        conversation_id.of_response(before) if before else None,
        given.user,
    )
    what = _read(
        call, named, message, messages=openai_requests.messages_of(given.input), given=given,
        instructions=given.instructions,
    )  # fmt: skip
    await call.api.remember(call.caller)
    blank = ResponseBody(
        id=conversation_id.response_id(named.id),
        created_at=int(time.time()),
        model=what.model,
        status="in_progress",
        output=[],
        usage=None,
        conversation={"id": named.id},
        previous_response_id=before,
        instructions=given.instructions,
        tools=given.tools or [],
    )
    if not given.stream:
        answer = await call.api.direct.start(what.ask)
        return json_response(_completed(blank, answer, _items(answer)), headers=what.headers)
    run = _run(call, what)
    await run.begin()
    return EventStream(
        _response_events(run, blank),
        seconds=call.api.settings.stream_seconds,
        headers=what.headers,
    )


def _conversation_id(given: str | dict[str, Any] | None) -> Any:
    if not isinstance(given, dict):
        return given
    if "id" not in given:
        raise ConfigError(
            "The conversation has no id.", hint='Give {"id": …}.', field="conversation"
        )
    return conversation_id.checked("conversation", given["id"])


def _completed(
    blank: ResponseBody, answer: AgentReply, output: list[dict[str, Any]]
) -> ResponseBody:
    return msgspec.structs.replace(
        blank, status="completed", output=output, usage=_response_usage(answer.usage)
    )


def _items(answer: AgentReply) -> list[dict[str, Any]]:
    found = [_text_item(_item_id("msg"), answer.text)] if answer.text else []
    return found + [_call_item(_item_id("fc"), call) for call in answer.tool_calls]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _text_item(item_id: str, text: str, status: str = "completed") -> dict[str, Any]:
    content = [_text_part(text)] if status == "completed" else []
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _call_item(item_id: str, call: ToolCall, status: str = "completed") -> dict[str, Any]:
    function = call.to_dict()["function"]
    is_whole = status == "completed"
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": function["name"],
        "arguments": function["arguments"] if is_whole else "",
    }


class _Numbered:
    """Events of a response, each with its number."""

    def __init__(self) -> None:
        self._number = -1

    def __call__(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **fields}, name=kind)


async def _response_events(run: StreamedTurn, blank: ResponseBody) -> AsyncGenerator[bytes, None]:
    say = _Numbered()
    yield say("response.created", response=blank)
    yield say("response.in_progress", response=blank)
    output: list[dict[str, Any]] = []
    text = _TextEvents(say)
    try:
        async with aclosing(run.texts()) as texts:
            async for piece in texts:
                for one in [PING] if piece is None else text.add(piece):
                    yield one
        answer = await run.answer()
        for one in text.end(output):
            yield one
        for call in answer.tool_calls:
            for one in _call_events(say, call, output):
                yield one
        yield say("response.completed", response=_completed(blank, answer, output))
    except Error as problem:
        fault = error_detail(problem)
        told = {"code": fault.code, "message": fault.message}
        failed = msgspec.structs.replace(blank, status="failed", error=told)
        yield say("response.failed", response=failed)


class _TextEvents:
    """The events of one text that is being written."""

    def __init__(self, say: _Numbered) -> None:
        self._say = say
        self._id = _item_id("msg")
        self._text = ""

    def add(self, piece: str) -> list[bytes]:
        found = [] if self._text else self._begun()
        self._text += piece
        found.append(
            self._say("response.output_text.delta", **self._place, delta=piece, logprobs=[])
        )
        return found

    def end(self, output: list[dict[str, Any]]) -> list[bytes]:
        if not self._text:
            return []
        item = _text_item(self._id, self._text)
        output.append(item)
        part = item["content"][0]
        return [
            self._say("response.output_text.done", **self._place, text=self._text, logprobs=[]),
            self._say("response.content_part.done", **self._place, part=part),
            self._say("response.output_item.done", output_index=0, item=item),
        ]

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": 0, "content_index": 0}

    def _begun(self) -> list[bytes]:
        item = _text_item(self._id, "", "in_progress")
        return [
            self._say("response.output_item.added", output_index=0, item=item),
            self._say("response.content_part.added", **self._place, part=_text_part("")),
        ]


def _call_events(say: _Numbered, call: ToolCall, output: list[dict[str, Any]]) -> list[bytes]:
    item = _call_item(_item_id("fc"), call)
    place = {"output_index": len(output), "item_id": item["id"]}
    begun = _call_item(item["id"], call, "in_progress")
    arguments = item["arguments"]
    output.append(item)
    at = place["output_index"]
    return [
        say("response.output_item.added", output_index=at, item=begun),
        say("response.function_call_arguments.delta", **place, delta=arguments),
        say("response.function_call_arguments.done", **place, arguments=arguments, name=call.name),
        say("response.output_item.done", output_index=at, item=item),
    ]


def _item_id(kind: str) -> str:
    return f"{kind}_{os.urandom(12).hex()}"


def _response_usage(usage: Usage) -> dict[str, Any]:
    read = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": read + usage.output,
    }


_NAMES = (conversation_id.HEADER, conversation_id.IDEMPOTENCY)

TABLE = (
    Operation(
        method="GET", path="/v1/models", summary="The agent, as OpenAI's clients list models.",
        act=list_models, role="guest", answer=Models,
    ),
    Operation(
        method="POST", path="/v1/chat/completions", act=complete_chat, role="guest", headers=_NAMES,
        summary="OpenAI's chat completions; a conversation id keeps the session.",
        body=Completion, answer=ChatCompletion, streams=True,
    ),
    Operation(
        method="POST", path="/v1/responses", act=create_response, role="guest", headers=_NAMES,
        summary="OpenAI's responses; a conversation id or the response before keeps the session.",
        body=ResponseRequest, answer=ResponseBody, streams=True,
    ),
)  # fmt: skip
