"""An agent that asks a model: call, step, tools, and again, until the model has answered.

The wire of a provider fills in three things: the body of a call, a reader of the reply, and what it
can give up when a server does not know an option.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Final

import msgspec

from tertulia.agents import tools
from tertulia.agents.base import Delta, Event, ModelUsage, Note, Request, Step
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.sse import (
    SseEvent,
    SseParser,
)
from tertulia.agents.tool_loop import exchange
from tertulia.agents.transport import (
    StreamedResponse,
    Transport,
)
from tertulia.core.history import tokens
from tertulia.core.history.content import speaks
from tertulia.core.history.formats import Format
from tertulia.core.message import ToolCall, from_json, to_json
from tertulia.core.usage import Usage
from tertulia.errors import AgentError, AgentFailed, AgentTimeout, AgentUnavailable, ConfigError

ESTIMATED: Final = "tokens estimated"
REFUSED: Final = "The model declined to answer this."
REFUSED_ON_THE_WAY: Final = "\n\n[The model declined to go on.]"
CUT: Final = "The answer is cut: it reached the longest length the model was given."

_EMPTY_TRIES: Final = 2


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a model gave, in the same words for every provider."""

    text: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    is_cut: bool = False
    extra: dict[str, Any] = {}


class Reader(ABC):
    """One reply while it comes in."""

    def __init__(self, wire: Transport) -> None:
        self.wire = wire
        self.text = ""
        self._held = ""
        self.has_begun = False
        self.model: str | None = None

    def take(self, event: SseEvent) -> str:
        """Read one event; the text in it that is to be shown."""
        shown = self._held + self._take(event)
        self.has_begun = True
        # A character may be cut in two by whoever cut the text; its first half waits.
        cut = len(shown) - 1 if shown and "\ud800" <= shown[-1] <= "\udbff" else len(shown)
        shown, self._held = paired(shown[:cut]), shown[cut:]
        self.text += shown
        return shown

    def decoded(self, data: str) -> dict[str, Any]:
        try:
            found = from_json(data)
        except (ValueError, RecursionError):
            raise self.wire.nonsense("something that is not JSON", data) from None
        if not isinstance(found, dict):
            raise self.wire.nonsense("something that is not a JSON object", data)
        return found

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the end of the reply was seen."""

    @abstractmethod
    def _take(self, event: SseEvent) -> str: ...

    @abstractmethod
    def closing(self) -> str:
        """Text to be shown after all else, such as that the model declined."""

    @abstractmethod
    def reply(self) -> Reply: ...

    @abstractmethod
    def usage(self) -> Usage | None:
        """What the provider reported, if it did."""


class ModelAgent(ABC):
    """What the agents of all model providers share."""

    format: ClassVar[Format]
    path: ClassVar[str]
    # What is written by the agent, and so cannot be an option.
    reserved: ClassVar[frozenset[str]] = frozenset(
        ("model", "messages", "system", "tools", "stream")
    )

    def __init__(
        self,
        wire: Transport,
        *,
        name: str,
        model: str,
        provider: str | None,
        instructions: str,
        options: Mapping[str, Any],
        history_tokens: int | None,
        max_steps: int,
        tool_seconds: float,
    ) -> None:
        self.name = name
        self.model = model
        self.provider = provider
        self.instructions = instructions
        self._wire = wire
        self._options = dict(from_json(to_json(options)))
        self._history_tokens = history_tokens
        self._max_steps = max_steps
        self._tool_seconds = tool_seconds
        if taken := self.reserved & self._options.keys():
            raise ConfigError(
                f"The options of {name} have {', '.join(sorted(taken))}.",
                hint="The agent fills these in itself; leave them out.",
                field="options",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r} at {self._wire.shown_url})"

    async def close(self) -> None:
        """Let go of connections."""
        await self._wire.close()

    def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request, event by event."""
        return exchange(
            self._asked, request, max_steps=self._max_steps, tool_seconds=self._tool_seconds
        )

    async def _asked(self, request: Request, watch: StopWatcher) -> AsyncGenerator[Event, None]:
        """One model call, with as many tries as it takes; a step is the last event."""
        watch.check()
        await request.steer()  # whoever runs us puts it into the history that is asked for next
        messages = await request.history(format=self.format, max_tokens=self._history_tokens)
        tried = 0
        while True:
            tried += 1
            reader = self._reader()
            try:
                async with aclosing(self._tried(request, messages, reader, watch)) as events:
                    async for event in events:
                        yield event
            except AgentError as raised:
                problem = raised
            else:
                return
            if reader.has_begun:
                yield ModelUsage(self._usage(reader, messages))
            if reader.text:
                problem.data["partial"] = reader.text
                raise problem
            if isinstance(problem, _EmptyAnswer) and tried < _EMPTY_TRIES:
                continue
            if self._adapts(problem):
                tried -= 1
            elif not await self._wire.pause(problem, tried, watch):
                raise problem

    async def _tried(
        self, request: Request, messages: list[dict[str, Any]], reader: Reader, watch: StopWatcher
    ) -> AsyncGenerator[Event, None]:
        """One try: what is shown while it comes in, then the step."""
        body = {**self._options, **self._body(request, messages), "model": self.model}
        try:
            async with (
                self._wire.post(self.path, body, watch) as answer,
                aclosing(_events(answer)) as events,
            ):
                async for event in events:
                    if shown := reader.take(event):
                        yield Delta(shown)
                    if reader.is_complete:
                        answer.hurry()
        except (AgentTimeout, AgentUnavailable):
            # What comes after the end of an answer is not worth losing the answer for.
            if not reader.is_complete:
                raise
        if not reader.is_complete:
            raise AgentUnavailable(
                f"{self._wire.shown_url} broke off in the middle of its answer.",
                hint="Try again.",
            )
        if shown := reader.closing():
            reader.text += shown
            yield Delta(shown)
        for last in self._finished(reader, messages):
            yield last

    def _finished(self, reader: Reader, messages: list[dict[str, Any]]) -> list[Event]:
        reply = reader.reply()
        if not reply.calls and not speaks(reply.text):
            raise _EmptyAnswer(
                f"The model {self.model} gave an empty answer{' (cut)' if reply.is_cut else ''}.",
                hint="Ask in other words; if it was cut, allow it longer answers.",
            )
        step = Step(
            reply.text or None,
            tools.distinct(reply.calls),
            reply.reasoning,
            self._usage(reader, messages),
            reply.extra,
        )
        return [Note(CUT), step] if reply.is_cut and not reply.calls else [step]

    def _usage(self, reader: Reader, messages: list[dict[str, Any]]) -> Usage:
        found = reader.usage()
        if found is None:
            sent = tokens.estimate(self.instructions) + tokens.estimate(to_json(messages))
            found = Usage(
                sent, tokens.estimate(reader.text), cost_source=ESTIMATED, last_prompt=sent
            )
        return msgspec.structs.replace(
            found,
            model=reader.model or self.model,
            provider=self.provider,
            base_url=self._wire.shown_url,
        )

    def _system(self, request: Request) -> str:
        return "\n\n".join(part for part in (self.instructions, request.system) if part)

    @abstractmethod
    def _body(self, request: Request, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """What is sent, besides the options and the model."""

    @abstractmethod
    def _reader(self) -> Reader: ...

    def _adapts(self, problem: AgentError) -> bool:
        """Whether the agent has given up an option that the server does not know."""
        return False


class _EmptyAnswer(AgentFailed):
    """The model gave an empty answer."""


async def _events(answer: StreamedResponse) -> AsyncGenerator[SseEvent, None]:
    """What a server sends; one that does not stream sends one event, in a way."""
    if not answer.is_events:
        yield SseEvent("", (await answer.whole()).decode("utf-8", "replace"))
        return
    events = SseParser()
    async for chunk in answer.chunks:
        for event in events.feed(chunk):
            yield event
    for event in events.rest():
        yield event


def paired(text: str) -> str:
    """Text in which halves of surrogate pairs are put together, or replaced where one is alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: Any) -> int:
    """A count of tokens as a server reported it, or 0."""
    return value if type(value) is int and 0 <= value < 2**53 else 0
