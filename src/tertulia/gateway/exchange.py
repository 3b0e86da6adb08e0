"""One exchange with the agent: each of its events is made durable before the next one is asked for.

What a person writes meanwhile waits in the inbox; by the rules it stays there, ends this turn, or
is taken into it. It is looked for in the database, so it does not matter which node received it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from tertulia import aio
from tertulia.agents.base import Agent, Delta, Event, Note, Request, Spent, Step, Tool, ToolResult
from tertulia.agents.base import running as run_of
from tertulia.aio.turns import Turn
from tertulia.core.render import Format
from tertulia.errors import AgentStopped, ContextOverflow, StaleWrite
from tertulia.gateway import commands, words
from tertulia.gateway.meter import Meter, Unmetered
from tertulia.gateway.rules import Rules
from tertulia.platforms.base import Adapter, Shown
from tertulia.records.inbox import Arrival

_LOOK_SECONDS = 0.5

Observe = Callable[[Event], Awaitable[None]]


class Signals:
    """How a turn under way is told to stop."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()


class Running:
    """The turns of this node that are under way, by conversation."""

    def __init__(self) -> None:
        self._signals: dict[str, Signals] = {}

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[Signals]:
        signals = self._signals[key] = Signals()
        try:
            yield signals
        finally:
            if self._signals.get(key) is signals:
                del self._signals[key]

    def holds(self, key: str) -> bool:
        return key in self._signals

    def __len__(self) -> int:
        return len(self._signals)

    def stop_all(self) -> None:
        for signals in self._signals.values():
            signals.stop.set()


class HandedOver(Exception):
    """Raised by an observer: the calls of this step are made elsewhere, and the turn waits."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step


class Exchange:
    """What happens between a question and its answer.

    Without `delivers` nothing is put into the outbox: whoever asked waits for the answer, and hears
    each event from `observe` once it is stored. `instructions` are added to the context prompt.
    """

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapter: Adapter | None,
        rules: Rules,
        tools: tuple[Tool, ...],
        *,
        meter: Meter | None = None,
        delivers: bool = True,
        instructions: str = "",
        observe: Observe | None = None,
    ) -> None:
        self._store = store
        self._agent = agent
        self._adapter = adapter
        self._rules = rules
        self._tools = tools
        self._meter = meter or Unmetered()
        self._delivers = delivers
        self._instructions = instructions
        self._observe = observe

    async def run(self, turn: Turn, signals: Signals, arrival: Arrival, text: str) -> None:
        """Let the agent answer a turn that was entered; `text` is what it was entered with."""
        if turn.notice is not None and turn.notice.notify and self._delivers:
            delivery = f"notice:{turn.session.id}"
            await turn.deliver(words.notice(turn.notice), delivery=delivery)
        watcher = asyncio.create_task(self._watch(arrival, signals))
        await self._show(turn, arrival, "began")
        began, outcome = time.monotonic(), "interrupted"
        try:
            await self._answer(turn, self._request(turn, signals, arrival, text), arrival)
            outcome = "answered"
        except HandedOver:
            outcome = "handed_over"
            raise
        finally:
            self._meter.turned(arrival.source.platform, outcome, time.monotonic() - began)
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await self._show(turn, arrival, "ended")

    async def _answer(self, turn: Turn, request: Request, arrival: Arrival) -> None:
        try:
            await self._once(turn, request, arrival)
        except ContextOverflow:
            # What was said is summed up, and the model is asked once more.
            transcript = self._store.transcript(turn.session.id)
            if await transcript.compact(keep_turns=self._rules.compact_turns) is None:
                raise
            await self._once(turn, request, arrival)

    async def _once(self, turn: Turn, request: Request, arrival: Arrival) -> None:
        try:
            async with run_of(self._agent, request) as events:
                async for event in events:
                    await self._keep(turn, event, arrival)
        except AgentStopped as stopped:
            partial = getattr(stopped, "partial", None)
            if partial:
                await turn.add_assistant(partial, stopped=True, deliver=self._target)

    async def _keep(self, turn: Turn, event: Event, arrival: Arrival) -> None:
        match event:
            case Delta(text):
                await self._show(turn, arrival, "delta", text)
            case Step():
                await self._keep_step(turn, event, arrival)
            case ToolResult(call_id, content):
                await turn.add_tool_result(call_id, content)
            case Spent(usage):
                await turn.add_usage(usage)
            case Note(text) if self._delivers:
                await turn.deliver(text)
        if isinstance(event, Step | Spent) and event.usage is not None:
            self._meter.spent(arrival.source.platform, event.usage)
        if self._observe is not None:
            await self._observe(event)

    async def _keep_step(self, turn: Turn, step: Step, arrival: Arrival) -> None:
        await turn.add_assistant(
            step.text,
            tool_calls=step.tool_calls,
            reasoning=step.reasoning,
            usage=step.usage,
            deliver=None if step.tool_calls else self._target,
            **step.extra,
        )
        for call in step.tool_calls:
            await self._show(turn, arrival, "tool", call.name)

    @property
    def _target(self) -> str | None:
        return "origin" if self._delivers else None

    def _request(self, turn: Turn, signals: Signals, arrival: Arrival, text: str) -> Request:
        async def history(
            *, format: Format = "openai", max_tokens: int | None = None
        ) -> list[dict[str, object]]:
            return await turn.history(
                max_messages=self._rules.history_messages,
                max_tokens=max_tokens or self._rules.history_tokens,
                format=format,
            )

        async def steer() -> Sequence[str]:
            return await self._steer(turn, arrival)

        return Request(
            text=text,
            history=history,
            system="\n\n".join(filter(None, (turn.context_prompt, self._instructions))),
            tools=self._tools,
            session_id=turn.session.id,
            key=turn.session.key,
            platform=arrival.source.platform,
            stop=signals.stop,
            steer=steer,
        )

    # -- what comes meanwhile

    async def _steer(self, turn: Turn, arrival: Arrival) -> Sequence[str]:
        """Take what waits into the turn, up to the first command."""
        taken: list[str] = []
        if self._rules.meanwhile == "steer":
            for waiting in await self._waiting(arrival):
                if commands.parse(waiting.text) is not None:
                    break
                with contextlib.suppress(StaleWrite):
                    await turn.take_in(waiting)
                    taken.append(waiting.text or "")
        return taken

    async def _watch(self, arrival: Arrival, signals: Signals) -> None:
        """Stop the turn when the person says so, on whichever node that came in."""
        while not signals.stop.is_set():
            for waiting in await self._waiting(arrival):
                command = commands.parse(waiting.text)
                if (command is not None and command.name == "stop") or (
                    command is None and self._rules.meanwhile == "interrupt"
                ):
                    signals.stop.set()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _waiting(self, arrival: Arrival) -> Sequence[Arrival]:
        page = await self._store.inbox.find(key=arrival.key, state="waiting", limit=20)
        return page.items

    async def _show(self, turn: Turn, arrival: Arrival, kind: str, text: str = "") -> None:
        if self._adapter is not None:
            shown = Shown(kind=kind, turn=str(arrival.id), text=text)  # type: ignore[arg-type]
            await self._adapter.show(arrival.source, shown)
