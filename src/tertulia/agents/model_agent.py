"""Base of the agents that call a model: call the model, run its tools, until it has answered.

The subclass for a provider defines three things: the body of a call, a reader of the response, and
the options it can drop when a server does not support them.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from tertulia.agents import tools
from tertulia.agents.agent_options import ModelOptions
from tertulia.agents.base import Delta, Event, ModelUsage, Note, Request, Step, Thought
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.key_ring import KeyRing
from tertulia.agents.pace import Pace
from tertulia.agents.remote_agent import Endpoint, RemoteAgent
from tertulia.agents.sse import SseEvent, SseParser
from tertulia.agents.transport import Sleep, StreamedResponse, Transport, check_header
from tertulia.core.history import tokens
from tertulia.core.history.content import has_content
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import ToolCall, from_json, to_json
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.core.usage import Usage
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ContextOverflow,
)

ESTIMATED: Final = "tokens estimated"
REFUSED: Final = "The model declined to answer this."
REFUSED_MIDWAY: Final = "\n\n[The model declined to go on.]"
CANNOT_SEE: Final = (
    "I cannot see images: the model that answers here accepts only text. I read the rest of what"
    " you send."
)
CANNOT_SEE_NOTE: Final = "no images"
TRUNCATED: Final = "The answer is incomplete: it reached the maximum length set for the model."

_EMPTY_ANSWER_ATTEMPTS: Final = 2
# The statuses with which servers refuse images for a model without vision; they have no common
# code or word for it.
_IMAGE_REFUSAL_STATUSES: Final = (400, 404, 415, 422, 500, 501)
_IMAGE_PARTS: Final = ("image_url", "input_image", "image")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete response of a model, in one form for every provider."""

    text: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    is_truncated: bool = False
    extra: dict[str, Any] = {}


class ResponseReader(ABC):
    """Reads one response of a model, event by event."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._text = TextBuffer()
        self._length = 0
        self._half_character = ""
        self._thought = ""  # the reasoning in the last event
        self.has_begun = False
        self.model: str | None = None

    def read(self, event: SseEvent) -> str:
        """Read one event; return the text in it that is to be shown."""
        self._thought = ""
        text = self._half_character + self._read(event)
        self.has_begun = True
        # A server may cut a character (a surrogate pair) in two; keep its first half for later.
        end = len(text) - 1 if text and "\ud800" <= text[-1] <= "\udbff" else len(text)
        text, self._half_character = join_surrogates(text[:end]), text[end:]
        self.add_text(text)
        return text

    @property
    def thought(self) -> str:
        """The reasoning in the last event; half a character is replaced."""
        return self._thought.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    @property
    def text(self) -> str:
        """The text that was shown so far."""
        return str(self._text)

    def add_text(self, text: str) -> None:
        """Add a piece of the text that is shown."""
        self._append(self._text, text)

    def _append(self, buffer: TextBuffer, piece: str) -> None:
        """Add a piece to a part of the response; raise `AgentFailed` if it gets too long."""
        buffer.append(piece)
        self._length += len(piece)
        self.transport.limits.check_text(self._length, self.transport.display_url)

    def decode(self, data: str) -> dict[str, Any]:
        """Return the JSON object of an event; raise `AgentFailed` if it is none."""
        try:
            value = from_json(data)
        except (ValueError, RecursionError):
            raise self.transport.invalid_response("something that is not JSON", data) from None
        if not isinstance(value, dict):
            raise self.transport.invalid_response("something that is not a JSON object", data)
        return value

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Return whether the end of the response was read."""

    @abstractmethod
    def _read(self, event: SseEvent) -> str:
        """Read one event; return its text, in which surrogate pairs may be cut."""

    @abstractmethod
    def closing_text(self) -> str:
        """Return a text to show after all others, such as a refusal, or an empty text."""

    @abstractmethod
    def reply(self) -> Reply:
        """Return the complete response."""

    @abstractmethod
    def usage(self) -> Usage | None:
        """Return the usage that the provider reported, or None."""


M = TypeVar("M", bound=ModelOptions)


class ModelAgent(RemoteAgent[M]):
    """Base class of the agents for model providers."""

    format: ClassVar[Format]
    path: ClassVar[str]
    official_url: ClassVar[str]

    # A server has refused a request with images, and accepted it without.
    _is_blind = False

    def __init__(
        self,
        options: M,
        *,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(options, sleep=sleep, chance=chance)
        keys = options.resolve_api_keys()
        self._keys = KeyRing(keys, now=now)
        # Only of several keys: the transport has the headers of a single one.
        self._headers_by_key = {key: self._headers_of(key) for key in keys if len(keys) > 1}

    def _headers_of(self, key: str) -> dict[str, str]:
        """Return the headers of a call with a key; raise `ConfigError` if one cannot be sent."""
        headers = {**self._own_headers(key), **self._options.headers}
        return {name: check_header(name, value) for name, value in headers.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r} at {self._transport.display_url})"

    @property
    def model(self) -> str:
        return self._options.model

    @property
    def provider(self) -> str | None:
        return self._options.provider

    @property
    def traits(self) -> ModelTraits:
        """Return the properties of the model that a history for it depends on."""
        options = self._options
        documents = options.documents
        return ModelTraits(
            self.model,
            sees_images=options.vision is not False and not self._is_blind,
            reads_documents=options.base_url == self.official_url
            if documents is None
            else documents,
        )

    async def _read_history(self, request: Request, traits: ModelTraits) -> list[dict[str, Any]]:
        return await request.history(
            format=self.format, max_tokens=self._options.history_tokens, model=traits
        )

    async def _generate_step(
        self, request: Request, watcher: StopWatcher
    ) -> AsyncGenerator[Event, None]:
        """Call the model, with retries; yield its events, the step last."""
        watcher.check()
        await request.steer()  # the caller adds the messages to the history that is read next
        messages = await self._read_history(request, self.traits)
        # The error of a request with images, while the same request is tried without them.
        refusal: AgentError | None = None
        key = self._keys.choose(request.session_id)
        tried = 0
        while True:
            tried += 1
            reader = self._reader()
            attempt = self._attempt(request, messages, reader, watcher, key.current)
            try:
                async with aclosing(attempt) as events:
                    async for event in events:
                        if refusal is not None and isinstance(event, Step):
                            self._is_blind = True
                            yield Note(CANNOT_SEE, CANNOT_SEE_NOTE)
                        yield event
            except AgentError as raised:
                problem = raised
            else:
                key.worked()
                return
            if reader.has_begun:
                yield ModelUsage(self._usage(reader, messages))
            if reader.text:
                problem.partial = reader.text
                raise problem
            if isinstance(problem, _EmptyAnswer) and tried < _EMPTY_ANSWER_ATTEMPTS:
                continue
            if self._drop_option(problem) or key.replace_after(problem):
                tried -= 1
            elif await self._transport.wait_before_retry(problem, tried, watcher):
                continue
            elif refusal is None and self._may_refuse_images(problem, messages):
                refusal, tried = problem, 0
                traits = msgspec.structs.replace(self.traits, sees_images=False)
                messages = await self._read_history(request, traits)
            else:
                raise refusal or problem

    def _may_refuse_images(self, problem: AgentError, messages: list[dict[str, Any]]) -> bool:
        """Return whether a request may have been refused for its images.

        Only the same request without images can tell: servers have no common error for it.
        """
        return (
            problem.status in _IMAGE_REFUSAL_STATUSES
            and not isinstance(problem, ContextOverflow)
            and self._options.vision is None
            and _has_images(messages)
        )

    async def _attempt(
        self,
        request: Request,
        messages: list[dict[str, Any]],
        reader: ResponseReader,
        watcher: StopWatcher,
        key: str | None,
    ) -> AsyncGenerator[Event, None]:
        """Make one attempt: yield the text while it is received, then the step."""
        body = {**self._options.options, **self._body(request, messages), "model": self.model}
        try:
            async with (
                self._transport.post(
                    self.path, body, watcher, headers=self._headers_by_key.get(key or "", {})
                ) as response,
                aclosing(_read_events(response)) as events,
            ):
                async for event in events:
                    text = reader.read(event)
                    if thought := reader.thought:
                        yield Thought(thought)
                    if text:
                        yield Delta(text)
                    if reader.is_complete:
                        response.expect_end()
        except (AgentTimeout, AgentUnavailable):
            # The answer is complete: a failure after its end must not lose it.
            if not reader.is_complete:
                raise
        if not reader.is_complete:
            raise AgentUnavailable(
                f"{self._transport.display_url} broke off in the middle of its answer.",
                hint="Try again.",
            )
        if text := reader.closing_text():
            reader.add_text(text)
            yield Delta(text)
        for last_event in self._final_events(reader, messages):
            yield last_event

    def _final_events(self, reader: ResponseReader, messages: list[dict[str, Any]]) -> list[Event]:
        """Return the step of a complete response, after a note if it is truncated.

        Raise `_EmptyAnswer` if it has neither text nor calls.
        """
        reply = reader.reply()
        if not reply.calls and not has_content(reply.text):
            raise _EmptyAnswer(
                f"The model {self.model} gave an empty answer"
                f"{' (truncated)' if reply.is_truncated else ''}.",
                hint="Rephrase the message; if the answer was truncated, raise max_tokens.",
            )
        step = Step(
            reply.text or None,
            tools.with_distinct_ids(reply.calls),
            reply.reasoning,
            self._usage(reader, messages),
            {**reply.extra, "model": self.model},
        )
        return [Note(TRUNCATED), step] if reply.is_truncated and not reply.calls else [step]

    def _usage(self, reader: ResponseReader, messages: list[dict[str, Any]]) -> Usage:
        """Return the reported usage of a call, or an estimate."""
        usage = reader.usage()
        if usage is None:
            prompt = tokens.estimate_tokens(self._options.instructions) + tokens.estimate_tokens(
                to_json(messages)
            )
            usage = Usage(
                prompt,
                tokens.estimate_tokens(reader.text),
                cost_source=ESTIMATED,
                last_prompt=prompt,
            )
        return msgspec.structs.replace(
            usage,
            model=reader.model or self.model,
            provider=self.provider,
            base_url=self._transport.display_url,
        )

    def _system(self, request: Request) -> str:
        """Return the system prompt: the instructions of the agent, then that of the request."""
        return "\n\n".join(part for part in (self._options.instructions, request.system) if part)

    def _endpoint(self) -> Endpoint:
        keys = self._options.resolve_api_keys()
        headers = self._own_headers(keys[0] if keys else None)
        return Endpoint(self._options.base_url, headers, keys, self._options.key_hint)

    @abstractmethod
    def _own_headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers of the provider, with the API key."""

    @abstractmethod
    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the body of a call, without the options and the model."""

    @abstractmethod
    def _reader(self) -> ResponseReader:
        """Return a reader for one response."""

    def _drop_option(self, problem: AgentError) -> bool:
        """Drop an option that the server does not support; return whether one was dropped."""
        return False


def _has_images(value: Any) -> bool:
    """Return whether messages of any format contain an image."""
    if isinstance(value, list):
        return any(_has_images(item) for item in value)
    if not isinstance(value, dict):
        return False
    if value.get("type") in _IMAGE_PARTS:
        return True
    return any(_has_images(value.get(name)) for name in ("content", "output"))


class _EmptyAnswer(AgentFailed):
    """The model gave an empty answer."""


async def _read_events(response: StreamedResponse) -> AsyncGenerator[SseEvent, None]:
    """Yield the events of a response; a response that is not streamed is one event."""
    if not response.is_event_stream:
        yield SseEvent("", (await response.read_all()).decode("utf-8", "replace"))
        return
    parser, pace = SseParser(), Pace()
    async for chunk in response.chunks:
        for event in parser.feed(chunk):
            await pace.keep()
            yield event
    for event in parser.rest():
        yield event


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and single surrogates replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def token_count(value: Any) -> int:
    """Return a token count that a server reported, or 0 if it is not a valid count."""
    return value if type(value) is int and 0 <= value < 2**53 else 0
