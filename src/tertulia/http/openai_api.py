"""OpenAI's APIs for models, chat completions and responses, over this gateway's conversations."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from tertulia import aio
from tertulia.core.message import ASSISTANT, TOOL, USER, Message, ToolCall, text_of
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, Error, NotFound
from tertulia.gateway.agent_table import ModelSelection
from tertulia.gateway.request_reply import WAITING, AgentReply, AgentRequest
from tertulia.http import conversation_id, openai_requests
from tertulia.http.awaited_turn import MessageName, reply_to
from tertulia.http.client_conversations import (
    OPEN_WEBUI_HEADER,
    ClientConversation,
    choose_conversation,
    source_in,
)
from tertulia.http.conversation_id import ResponseName
from tertulia.http.errors import error_detail, json_response
from tertulia.http.event_stream import PING, StreamedTurn, format_event
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.turns.by_message import MessageTurn

# The purpose for which the key of response ids is derived.
_ID_KEY = "response ids"
# Messages that are read around the first one of a turn to find its answer.
_TURN_MESSAGES = 400
_DONE = b"data: [DONE]\n\n"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for `/v1/chat/completions`. Other fields are ignored: the agent has its own."""

    messages: Annotated[list[Any], Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[Any] | None = None
    user: str | None = None
    conversation: str | None = None
    n: int | None = None
    response_format: dict[str, Any] | None = None


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
    text: dict[str, Any] | None = None
    background: bool | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "tertulia"


class ModelList(msgspec.Struct, frozen=True):
    data: tuple[ModelInfo, ...]
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


class ItemQuery(msgspec.Struct, frozen=True):
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of input items."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class _PreparedTurn(msgspec.Struct, frozen=True):
    """A turn that can be run, and the names that its response repeats."""

    request: AgentRequest
    conversation: ClientConversation
    message: MessageName
    model: str

    async def reply(self, call: ApiCall) -> AgentReply:
        """Run the turn and return its reply."""
        apart_in = self.conversation.apart_in
        if apart_in is not None:
            return await call.api.responder.answer_apart(
                self.request.source, [{"role": "user", "content": self.request.text}],
                instructions=self.request.instructions, session_id=apart_in,
            )  # fmt: skip
        reply = await reply_to(call.api.responder, self.request, self.message, call.request)
        await self.conversation.record(call.api.store, reply)
        return reply

    @property
    def headers(self) -> dict[str, str]:
        name = self.conversation.name
        # A header can carry ASCII only; the body of a response carries any name.
        return {conversation_id.HEADER: name} if name.isascii() else {}


async def list_models(call: ApiCall) -> ModelList:
    return ModelList(tuple(ModelInfo(id=name) for name in call.api.models_for(call.caller.role)))


def _select_model(call: ApiCall, model: str | None) -> ModelSelection:
    """Return the agent and model that a request asks for; raise `NotFound` for an unknown one."""
    role = call.caller.role
    selections = call.api.gateway.agents.selections(role)
    if model is not None and model not in selections:
        names = ", ".join(call.api.models_for(role))
        raise NotFound(f"There is no model {model[:100]!r}.", hint=f"Use: {names}.")
    return ModelSelection() if model is None else selections[model]


def _refuse_options(body: CompletionRequest | ResponseRequest) -> None:
    """Raise `ConfigError` for an option whose effect the client would miss in the answer."""
    if isinstance(body, CompletionRequest):
        refused = {
            "n": body.n not in (None, 1),
            "response_format": (body.response_format or {}).get("type", "text") != "text",
        }
    else:
        form = (body.text or {}).get("format") or {}
        refused = {
            "text": isinstance(form, dict) and form.get("type", "text") != "text",
            "background": bool(body.background),
        }
    for name, is_refused in refused.items():
        if is_refused:
            raise ConfigError(
                f"The option {name} is not supported: the agent has its own settings.",
                hint="Leave it out.",
                field=name,
            )


def _prepare(call: ApiCall, conversation: ClientConversation,
             message: MessageName, *, messages: Sequence[Any],
             body: CompletionRequest | ResponseRequest,
             instructions: str | None = None) -> _PreparedTurn:  # fmt: skip
    chat = openai_requests.parse_messages(messages, is_stored=conversation.is_stored)
    request = AgentRequest(
        source=conversation.source,
        text=chat.text,
        message_id=message.id,
        media=chat.media,
        past=chat.past,
        results=chat.results,
        tools=openai_requests.parse_tools(body.tools),
        instructions="\n\n".join(filter(None, (instructions, chat.instructions))),
        model=_select_model(call, body.model).model,
    )
    return _PreparedTurn(request, conversation, message, body.model or call.api.agent_name)


# -- chat completions


async def complete_chat(call: ApiCall) -> Response:
    body: CompletionRequest = call.body
    message = call.api.repeated.choose_message(call.request, call.caller.name, body)
    _refuse_options(body)
    conversation = await choose_conversation(
        call, message, body.messages, body.conversation,
        streams=bool(body.stream), agent=_select_model(call, body.model).agent,
    )  # fmt: skip
    prepared = _prepare(call, conversation, message, messages=body.messages, body=body)
    if not body.stream:
        reply = await prepared.reply(call)
        return json_response(_completion(reply, prepared.model), headers=prepared.headers)
    turn = await call.start_streamed_turn(prepared.request, is_named=message.is_named)
    has_usage = body.stream_options is not None and body.stream_options.include_usage
    return call.stream(_chunks(call, turn, prepared, has_usage), prepared.headers)


def _completion(reply: AgentReply, model: str) -> ChatCompletion:
    message: dict[str, Any] = {"role": "assistant", "content": reply.shown_text, "refusal": None}
    if reply.tool_calls:
        message["tool_calls"] = [call.to_dict() for call in reply.tool_calls]
    finish = _finish_reason(reply)
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return ChatCompletion(
        id=_completion_id(),
        created=int(time.time()),
        model=model,
        choices=[choice],
        usage=_chat_usage(reply.usage),
    )


async def _chunks(
    call: ApiCall, turn: StreamedTurn, prepared: _PreparedTurn, has_usage: bool
) -> AsyncGenerator[bytes, None]:
    head = {
        "id": _completion_id(),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": prepared.model,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return format_event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(turn.texts()) as texts:
            async for text in texts:
                yield PING if text is None else chunk({"content": text})
        reply = await turn.reply()
        await prepared.conversation.record(call.api.store, reply)
        if reply.tool_calls:
            calls = [{"index": at, **call.to_dict()} for at, call in enumerate(reply.tool_calls)]
            yield chunk({"tool_calls": calls})
        yield chunk({}, _finish_reason(reply))
        if has_usage:
            yield format_event({**head, "choices": [], "usage": _chat_usage(reply.usage)})
        yield _DONE
    except Error as problem:
        yield format_event({"error": error_detail(problem)})


def _completion_id() -> str:
    return f"chatcmpl-{os.urandom(12).hex()}"


def _finish_reason(reply: AgentReply) -> str:
    return "tool_calls" if reply.tool_calls else "stop"


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
    body: ResponseRequest = call.body
    message = call.api.repeated.choose_message(call.request, call.caller.name, body)
    key = call.api.derive_key(_ID_KEY)
    previous = None
    if body.previous_response_id:
        previous = conversation_id.read_response_id(key, body.previous_response_id)
        if previous.message:
            await _require_turn(call, body.previous_response_id)
    _refuse_options(body)
    messages = openai_requests.to_chat_messages(body.input)
    conversation = await choose_conversation(
        call,
        message,
        messages,
        _conversation_name(body.conversation),
        None if previous is None else previous.conversation,
        streams=bool(body.stream),
        agent=_select_model(call, body.model).agent,
    )
    prepared = _prepare(
        call, conversation, message, messages=messages, body=body, instructions=body.instructions
    )
    name = _response_name(prepared, previous)
    blank = ResponseBody(
        id=conversation_id.create_response_id(key, name),
        created_at=name.created_at,
        model=prepared.model,
        status="in_progress",
        output=[],
        usage=None,
        conversation={"id": conversation.name},
        previous_response_id=body.previous_response_id,
        instructions=body.instructions,
        tools=body.tools or [],
    )
    if not body.stream:
        reply = await prepared.reply(call)
        output = _output_items(blank.id, reply.shown_text, reply.tool_calls)
        response = _completed(blank, reply, output)
        return json_response(response, headers=prepared.headers)
    turn = await call.start_streamed_turn(prepared.request, is_named=message.is_named)
    return call.stream(_response_events(call, turn, prepared, blank), prepared.headers)


def _conversation_name(conversation: str | dict[str, Any] | None) -> Any:
    if not isinstance(conversation, dict):
        return conversation
    if "id" not in conversation:
        raise ConfigError(
            "The conversation has no id.", hint='Give {"id": …}.', field="conversation"
        )
    return conversation_id.check_name("conversation", conversation["id"])


def _completed(
    blank: ResponseBody, reply: AgentReply, output: list[dict[str, Any]]
) -> ResponseBody:
    return msgspec.structs.replace(
        blank, status="completed", output=output, usage=_response_usage(reply.usage)
    )


def _response_name(prepared: _PreparedTurn, previous: ResponseName | None) -> ResponseName:
    """Return the data in the id of a new response, so that the response can be read again.

    A request with results of tools goes on in the turn of the response before.
    """
    request, part, message = prepared.request, 0, prepared.message.id
    if request.results:
        part = 1 if previous is None else (previous.part or 0) + 1
        message = "" if previous is None else previous.message
    return ResponseName(
        conversation=prepared.conversation.name,
        message=message,
        part=part if request.tools else None,
        model=prepared.model,
        created_at=int(time.time()),
    )


async def read_response(call: ApiCall) -> ResponseBody:
    response_id = call.path["id"]
    name, turn = await _require_turn(call, response_id)
    message = _message_of_part(await _messages_of(call.api.store, turn), turn, name.part)
    text, status = None, "in_progress" if turn.is_running else "incomplete"
    if message is not None:
        text, status = text_of(message.body), "completed"
    elif turn.state == "waiting":
        text, status = WAITING, "completed"
    return ResponseBody(
        id=response_id,
        created_at=name.created_at,
        model=name.model,
        status=status,
        output=_output_items(response_id, text, [] if message is None else _stored_calls(message)),
        usage=None,
        conversation={"id": name.conversation},
    )


async def list_input_items(call: ApiCall) -> ItemList:
    """List what a response answers: the message, and with tools the calls and results before it."""
    query: ItemQuery = call.query
    response_id = call.path["id"]
    name, turn = await _require_turn(call, response_id)
    messages = await _messages_of(call.api.store, turn)
    response = _message_of_part(messages, turn, name.part)
    before = [message for message in messages if response is None or message.seq < response.seq]
    if name.part is None:  # the tools of the agent are not the client's
        before = [message for message in before if message.role == USER]
    items = [
        item for message in before for item in _input_items(f"{response_id} {message.seq}", message)
    ]
    if query.order == "desc":
        items.reverse()
    if query.after is not None:
        ids = [item["id"] for item in items]
        if query.after not in ids:
            raise NotFound(
                "This response has no input item of that id.",
                hint="Give the last_id of the page before as after.",
            )
        items = items[ids.index(query.after) + 1 :]
    page = items[: query.limit]
    return ItemList(
        data=page,
        first_id=page[0]["id"] if page else None,
        last_id=page[-1]["id"] if page else None,
        has_more=len(items) > len(page),
    )


async def _require_turn(call: ApiCall, response_id: str) -> tuple[ResponseName, MessageTurn]:
    """Return the name and the turn of a response; raise `NotFound` if the caller has none."""
    try:
        name = conversation_id.read_response_id(call.api.derive_key(_ID_KEY), response_id)
    except ConfigError:
        raise _no_response() from None
    source = await source_in(call, name.conversation)
    store = call.api.store
    turn = await store.sessions.turn_of_message(source, name.message) if name.message else None
    session = None if turn is None else await store.sessions.get(turn.session_id)
    # People who share a token have the same chats; the conversation is of one of them.
    person_of = store.people.person_of
    if turn is None or session is None or person_of(session.origin) != person_of(source):
        raise _no_response()
    return name, turn


async def _messages_of(store: aio.Store, turn: MessageTurn) -> list[Message]:
    """Return the messages of a turn; raise `NotFound` if the turn was taken back."""
    transcript = store.transcript(turn.session_id)
    window = await transcript.window(around=turn.first_seq, limit=_TURN_MESSAGES)
    return [message for message in window.messages if message.turn == turn.number]


def _message_of_part(
    messages: Sequence[Message], turn: MessageTurn, part: int | None
) -> Message | None:
    """Return the message that a response of a turn ended with, or None if there is none yet."""
    if part is None:
        return next((message for message in messages if message.seq == turn.answer_seq), None)
    # With tools of the client, each step is a response: all but the last call tools.
    answers = [message for message in messages if message.role == ASSISTANT]
    return answers[part] if part < len(answers) else None


def _stored_calls(message: Message) -> list[ToolCall]:
    functions = [(call["id"], call["function"]) for call in message.body.get("tool_calls") or ()]
    return [
        ToolCall(call_id, function["name"], function["arguments"])
        for call_id, function in functions
    ]


def _no_response() -> NotFound:
    return NotFound(
        "There is no such response of yours.",
        hint="GET /sessions lists your conversations, GET /sessions/{id}/transcript reads one.",
    )


def _output_items(
    response_id: str, text: str | None, calls: Sequence[ToolCall]
) -> list[dict[str, Any]]:
    texts = [_text_item(_item_id("msg", response_id, 0), text)] if text else []
    return texts + [
        _call_item(_item_id("fc", response_id, number), call)
        for number, call in enumerate(calls, len(texts))
    ]


def _input_items(name: str, message: Message) -> list[dict[str, Any]]:
    """Return a stored message as input items, whose ids are made from `name`."""
    text = text_of(message.body)
    if message.role == TOOL:
        return [
            {
                "id": _item_id("fco", name, 0),
                "type": "function_call_output",
                "status": "completed",
                "call_id": message.body.get("tool_call_id"),
                "output": text,
            }
        ]
    if message.role == ASSISTANT:
        return _output_items(name, text, _stored_calls(message))
    item_id, content = _item_id("msg", name, 0), [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": USER, "status": "completed", "content": content}
    return [{"id": item_id, **item}]


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
    is_complete = status == "completed"
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": function["name"],
        "arguments": function["arguments"] if is_complete else "",
    }


class _EventWriter:
    """Formats the events of one response, each with its sequence number."""

    def __init__(self) -> None:
        self._number = -1

    def write(self, kind: str, **fields: Any) -> bytes:
        """Return the next event."""
        self._number += 1
        return format_event({"type": kind, "sequence_number": self._number, **fields}, name=kind)


async def _response_events(
    call: ApiCall, turn: StreamedTurn, prepared: _PreparedTurn, blank: ResponseBody
) -> AsyncGenerator[bytes, None]:
    writer = _EventWriter()
    yield writer.write("response.created", response=blank)
    yield writer.write("response.in_progress", response=blank)
    output: list[dict[str, Any]] = []
    text = _TextEvents(writer, _item_id("msg", blank.id, 0))
    try:
        async with aclosing(turn.texts()) as texts:
            async for piece in texts:
                for event in [PING] if piece is None else text.add(piece):
                    yield event
        reply = await turn.reply()
        await prepared.conversation.record(call.api.store, reply)
        for event in text.end(output):
            yield event
        for tool_call in reply.tool_calls:
            item_id = _item_id("fc", blank.id, len(output))
            for event in _call_events(writer, _call_item(item_id, tool_call), tool_call, output):
                yield event
        yield writer.write("response.completed", response=_completed(blank, reply, output))
    except Error as problem:
        detail = error_detail(problem)
        error = {"code": detail.code, "message": detail.message}
        failed = msgspec.structs.replace(blank, status="failed", error=error)
        yield writer.write("response.failed", response=failed)


class _TextEvents:
    """The events of one text while it is written."""

    def __init__(self, writer: _EventWriter, item_id: str) -> None:
        self._writer = writer
        self._id = item_id
        self._text = TextBuffer()

    def add(self, piece: str) -> list[bytes]:
        """Return the events for the next piece; the first one also opens the item."""
        events = [] if self._text else self._start_events()
        self._text.append(piece)
        delta = self._writer.write(
            "response.output_text.delta", **self._position, delta=piece, logprobs=[]
        )
        return [*events, delta]

    def end(self, output: list[dict[str, Any]]) -> list[bytes]:
        """Append the whole item to `output` and return the events that close it."""
        if not self._text:
            return []
        text = str(self._text)
        item = _text_item(self._id, text)
        output.append(item)
        part, write = item["content"][0], self._writer.write
        return [
            write("response.output_text.done", **self._position, text=text, logprobs=[]),
            write("response.content_part.done", **self._position, part=part),
            write("response.output_item.done", output_index=0, item=item),
        ]

    @property
    def _position(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": 0, "content_index": 0}

    def _start_events(self) -> list[bytes]:
        item, write = _text_item(self._id, "", "in_progress"), self._writer.write
        return [
            write("response.output_item.added", output_index=0, item=item),
            write("response.content_part.added", **self._position, part=_text_part("")),
        ]


def _call_events(
    writer: _EventWriter, item: dict[str, Any], call: ToolCall, output: list[dict[str, Any]]
) -> list[bytes]:
    """Append the item of a tool call to `output` and return its events."""
    index = len(output)
    position = {"output_index": index, "item_id": item["id"]}
    started = _call_item(item["id"], call, "in_progress")
    arguments = item["arguments"]
    output.append(item)
    write, prefix = writer.write, "response.function_call_arguments"
    return [
        write("response.output_item.added", output_index=index, item=started),
        write(f"{prefix}.delta", **position, delta=arguments),
        write(f"{prefix}.done", **position, arguments=arguments, name=call.name),
        write("response.output_item.done", output_index=index, item=item),
    ]


def _item_id(kind: str, response_id: str, number: int) -> str:
    """Return the id of an item, the same whenever the response is read."""
    return f"{kind}_{hashlib.sha256(f'{response_id} {number}'.encode()).hexdigest()[:24]}"


def _response_usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + usage.output,
    }


_NAME_HEADERS = (conversation_id.HEADER, conversation_id.IDEMPOTENCY, OPEN_WEBUI_HEADER)

TABLE = (
    Operation(
        method="GET", path="/v1/models", summary="List the names of the agent as models.",
        act=list_models, role="guest", answer=ModelList,
    ),
    Operation(
        method="POST", path="/v1/chat/completions", act=complete_chat, role="guest",
        headers=_NAME_HEADERS,
        summary="Answer a chat completion request; a conversation id continues the session.",
        body=CompletionRequest, answer=ChatCompletion, streams=True,
    ),
    Operation(
        method="POST", path="/v1/responses", act=create_response, role="guest",
        headers=_NAME_HEADERS,
        summary="Answer a responses request; a conversation or previous response continues it.",
        body=ResponseRequest, answer=ResponseBody, streams=True,
    ),
    Operation(
        method="GET", path="/v1/responses/{id}", act=read_response, role="guest",
        summary="Read a response again, with the token that asked for it.",
        answer=ResponseBody,
    ),
    Operation(
        method="GET", path="/v1/responses/{id}/input_items", act=list_input_items, role="guest",
        summary="List what a response answers, newest first, with the token that asked for it.",
        query=ItemQuery, answer=ItemList,
    ),
)  # fmt: skip
