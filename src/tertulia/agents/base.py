"""The contract of an agent: it is given a request, and gives events until it has answered.

An agent promises:

1.  **It ends.** `run` gives a last `Step` without tool calls, which is the answer, or raises an
    `AgentError`. There is no third end, whatever the model, the program or the network does.
2.  **Nothing runs before it is stored.** A tool is called only after the `Step` with its call was
    given out and the next event was asked for.
3.  **Every call has one result.** A `Step` with tool calls is followed by one `ToolResult` for
    each, in the order of the calls, before the next `Step`. A tool that fails, does not exist, or
    was called with arguments that do not fit has a result that says so. Only an agent that is
    stopped, or fails, leaves calls without one; what had finished by then has its result.
4.  **What was shown is what is stored.** The `Delta`s since the last `Step`, joined, are the text
    of the next `Step`; or there are none.
5.  **`stop` ends it at once** with `AgentStopped`, also in the middle of a call or a tool. What had
    been shown until then is in the error, as `partial`.
6.  **What was spent is told**, once for each model call: in the `Step` it led to, or in a `ModelUsage`
    where it led to none. Tokens that nobody reported are estimated, and say so in `cost_source`.
7.  **It asks before each model call** for `steer()`, and after that for `history()`, and keeps
    nothing of a conversation between two runs. So a turn that was cut off, or whose conversation
    was compacted after `ContextOverflow`, goes on with another `run`.
8.  **Errors are typed**, carry a hint, and hold no secret. `retryable` says whether the same
    request may succeed later. What could be tried again without showing or running anything twice,
    was.
9.  **It serves many at once.** Any number of runs of one agent may be under way. A run that is
    closed (`aclose`) or cancelled lets go of its connection, tools and programs.

Whoever runs an agent (the gateway) promises:

1.  **Each `Step` and `ToolResult` is durable before the next event is asked for**; `history()`
    shows it from then on.
2.  **`steer()` gives each message once**, in order; what it gave out is put into the transcript at
    that place, so that the next `history()` shows it. The agent adds nothing to it.
3.  **A run is read in one task and closed at its end**: `async with running(agent, request)`.
4.  **`close` is called once**, when no run is under way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from tertulia.core.history.formats import Format
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError

# A result of a tool: text, or content parts (text and pictures) in the OpenAI form.
Content = str | list[Any]

# What every provider takes as the name of a tool.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The schema of a tool that is given nothing.
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class History(Protocol):
    """What the model is shown, the newest last; always legal, and within the budget."""

    async def __call__(
        self, *, format: Format = "openai", max_tokens: int | None = None
    ) -> list[dict[str, Any]]: ...


class Tool(msgspec.Struct, frozen=True):
    """Something an agent may do. `parameters` is a JSON schema of what `call` is given."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[dict[str, Any]], Awaitable[Content]]

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise ConfigError(
                f"A tool is named {self.name!r}.",
                hint="Give up to 64 letters, digits, '_' and '-'.",
                field="name",
            )


async def _nothing_new() -> Sequence[str]:
    return ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange to be answered.

    `system` is the context prompt, `text` what the person just said (it is the last of `history`
    too). `stop` is set when the person says /stop or the turn is interrupted. `steer` gives what
    the person has written meanwhile.
    """

    text: str
    history: History
    system: str = ""
    tools: tuple[Tool, ...] = ()
    session_id: str = ""
    key: str = ""
    platform: str = ""
    stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    steer: Callable[[], Awaitable[Sequence[str]]] = _nothing_new


class Delta(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    """A piece of the text that is being written, to be shown at once."""

    text: str


class Step(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """One finished assistant message; without tool calls it is the answer.

    `extra` is kept with the message: `turn.add_assistant(text, **extra)`.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    """What one call of the last step gave."""

    call_id: str
    content: Content


class ModelUsage(msgspec.Struct, frozen=True, tag_field="type", tag="spent"):
    """A model call that led to no step: an auxiliary one, or one that failed on its way."""

    usage: Usage


class Note(msgspec.Struct, frozen=True, tag_field="type", tag="note"):
    """A plain message to the person, which is no part of the conversation."""

    text: str


Event = Delta | Step | ToolResult | ModelUsage | Note


class Agent(Protocol):
    """Whatever answers; the promises stand at the head of this module."""

    name: str

    def run(self, request: Request) -> AsyncIterator[Event]:
        """Answer a request, event by event."""
        ...

    async def close(self) -> None:
        """Let go of connections; no run may follow."""
        ...


@asynccontextmanager
async def running(agent: Agent, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
    """The events of a run, which is closed at the end of the block, however that is left."""
    events = agent.run(request)
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
