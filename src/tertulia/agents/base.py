"""The agent interface: an agent takes a `Request` and yields events until it has answered.

An agent promises:

1.  **Every run ends.** `run` yields a last `Step` without tool calls, which is the answer, or
    raises an `AgentError`. There is no third outcome, whatever the model, the program or the
    network does.
2.  **No tool runs before its call is stored.** A tool is called only after the `Step` with its
    call was yielded and the next event was requested.
3.  **Every call has exactly one result.** A `Step` with tool calls is followed by one `ToolResult`
    for each call, in the order of the calls, before the next `Step`. If a tool fails, does not
    exist, or was called with invalid arguments, its result says so. Calls stay without a result
    only if the agent is stopped or fails; tools that had finished by then still have theirs.
4.  **The streamed text is the stored text.** The `Delta`s since the last `Step`, joined, equal the
    text of the next `Step`; or there are no `Delta`s.
5.  **`stop` ends a run at once** with `AgentStopped`, also during a model call or a tool. The error
    carries the text streamed so far as `partial`.
6.  **Usage is reported** exactly once for each model call: in the `Step` it produced, or in a
    `ModelUsage` if it produced none. Tokens that the provider did not report are estimated, and
    `cost_source` says so.
7.  **Before each model call** the agent awaits `steer()` and then `history()`. It stores nothing
    of a conversation between two runs. So a turn that was cut off, or whose conversation was
    compacted after `ContextOverflow`, continues with another `run`.
8.  **Errors are typed**, carry a hint and contain no secret. `retryable` tells whether the same
    request may succeed later. Retries that show or run nothing twice were already made.
9.  **Runs are concurrent.** Any number of runs of one agent may be active. A run that is closed
    (`aclose`) or cancelled releases its connection, tools and programs.

The caller that runs an agent (the gateway) promises:

1.  **Each `Step` and `ToolResult` is durable before the next event is requested**; `history()`
    includes it from then on.
2.  **`steer()` returns each message once**, in order. The caller appends the returned messages to
    the transcript at that point, so the next `history()` includes them; the agent adds nothing.
3.  **A run is read in one task and closed at its end**: `async with running(agent, request)`.
4.  **`close` is called once**, when no run is active.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError

# The result of a tool: text, or content parts (text and images) in the OpenAI format.
Content = str | list[Any]

# Every provider accepts tool names of this form.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The JSON schema of a tool without parameters.
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class HistoryReader(Protocol):
    """A call that returns the messages for the model, newest last, legal and within the budget.

    With `model` they are rendered for that model: with the files that it is shown, and without the
    reasoning of other models.
    """

    async def __call__(
        self,
        *,
        format: Format = "openai",
        max_tokens: int | None = None,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]: ...


class Tool(msgspec.Struct, frozen=True):
    """A tool that an agent may call. `parameters` is the JSON schema of the argument of `call`.

    `asks` says whether a person has to approve a call if no rule of the configuration decides.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[dict[str, Any]], Awaitable[Content]]
    asks: bool = False

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise ConfigError(
                f"Invalid tool name {self.name!r}.",
                hint="Use 1 to 64 letters, digits, '_' and '-'.",
                field="name",
            )


async def _no_messages() -> Sequence[str]:
    return ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One user message to be answered.

    `system` is the context prompt, `text` the message of the user (it is also the last message of
    `history`). `stop` is set when the user sends /stop or the turn is interrupted. `steer` returns
    the messages that the user has sent since the run began. If `streams` is false, deltas and
    thoughts are shown to nobody, and an agent may leave them out.
    """

    text: str
    history: HistoryReader
    system: str = ""
    tools: tuple[Tool, ...] = ()
    session_id: str = ""
    key: str = ""
    platform: str = ""
    stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    steer: Callable[[], Awaitable[Sequence[str]]] = _no_messages
    streams: bool = True


class Delta(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    """A piece of the text that is being generated, to be shown at once."""

    text: str


class Thought(msgspec.Struct, frozen=True, tag_field="type", tag="thought"):
    """A piece of the reasoning of a model, for those who want to see it at once.

    It need not be shown: the step has the whole reasoning.
    """

    text: str


class Step(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """One finished assistant message; without tool calls it is the answer.

    `extra` is stored with the message: `turn.add_assistant(text, **extra)`.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    """The result of one call of the last step.

    `whole` is the whole text, if the content was shortened; it is stored too, for people only.
    """

    call_id: str
    content: Content
    whole: str | None = None


class ModelUsage(msgspec.Struct, frozen=True, tag_field="type", tag="spent"):
    """The usage of a model call that produced no step: an auxiliary call, or one that failed."""

    usage: Usage


class Note(msgspec.Struct, frozen=True, tag_field="type", tag="note"):
    """A plain message to the user that is not part of the conversation.

    `once` is a name for the message: notes with the same name are shown once in a session.
    """

    text: str
    once: str | None = None


Event = Delta | Thought | Step | ToolResult | ModelUsage | Note


class Agent(Protocol):
    """Interface of an agent; its promises are in the docstring of this module."""

    name: str

    def run(self, request: Request) -> AsyncIterator[Event]:
        """Answer a request; yield events."""
        ...

    async def close(self) -> None:
        """Close connections; no run may follow."""
        ...


def traits_of(agent: Agent) -> ModelTraits | None:
    """Return what a history for an agent's model depends on; None if it calls no model here."""
    traits = getattr(agent, "traits", None)
    return traits if isinstance(traits, ModelTraits) else None


@asynccontextmanager
async def running(agent: Agent, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
    """Start a run and return its events; close the run when the block ends, for any reason."""
    events = agent.run(request)
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
