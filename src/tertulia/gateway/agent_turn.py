"""One exchange with the agent: each of its events is made durable before the next is asked for."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from tertulia import aio
from tertulia.agents.base import (
    Agent,
    Delta,
    Event,
    ModelUsage,
    Note,
    Request,
    Step,
    Tool,
    ToolResult,
)
from tertulia.agents.base import running as run_of
from tertulia.aio.turn import TurnControl
from tertulia.core.history.formats import Format
from tertulia.core.session import Notice
from tertulia.errors import AgentFailed, AgentStopped, ContextOverflow, Error, StaleWrite
from tertulia.gateway import (
    commands,
    replies,
)
from tertulia.gateway.interrupts import TurnSignals
from tertulia.gateway.metrics import (
    Metrics,
    NullMetrics,
)
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms import registry
from tertulia.platforms.base import Adapter, StreamUpdate
from tertulia.records.queues.inbox import InboxItem

log = logging.getLogger("tertulia.gateway")

_STEERED = 20  # at most, at one time

Observe = Callable[[Event], Awaitable[None]]


class TurnHandedOver(Exception):
    """Raised by an observer: the calls of this step are made elsewhere, and the turn waits."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step


class AgentTurn:
    """What happens between a question and its answer.

    Without `delivers` nothing is put into the outbox: whoever asked waits for the answer, and hears
    each event from `observe` once it is stored. `instructions` are added to the context prompt.
    """

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapter: Adapter | None,
        rules: GatewaySettings,
        tools: tuple[Tool, ...],
        *,
        metrics: Metrics | None = None,
        delivers: bool = True,
        instructions: str = "",
        observe: Observe | None = None,
    ) -> None:
        self._store = store
        self._agent = agent
        # Most of what an agent gives is to be shown; who shows nothing is not asked.
        shows = adapter is not None and type(adapter).show is not Adapter.show
        self._adapter = adapter if shows else None
        self._rules = rules
        self._tools = tools
        self._meter = metrics or NullMetrics()
        self._delivers = delivers
        self._instructions = instructions
        self._observe = observe

    async def run(
        self, turn: TurnControl, signals: TurnSignals, arrival: InboxItem, text: str
    ) -> None:
        """Have a message answered in the turn it was entered with."""
        notice = await self._notice(turn, arrival)
        is_told = registry.platform(arrival.source.platform).notify and self._delivers
        if notice is not None and notice.notify and notice.had_activity and is_told:
            delivery = f"notice:{turn.session.id}"
            await turn.deliver(replies.notice(notice), delivery=delivery)
        await self._show(arrival, "began")
        began, outcome = time.monotonic(), "interrupted"
        try:
            await self._answer(turn, self._request(turn, signals, arrival, text), arrival)
            outcome = "answered"
        except TurnHandedOver:
            outcome = "handed_over"
            raise
        finally:
            self._meter.turned(arrival.source.platform, outcome, time.monotonic() - began)
            await self._show(arrival, "ended")

    async def _notice(self, turn: TurnControl, arrival: InboxItem) -> Notice | None:
        """What ended the session before; also where a node was lost before it had said so."""
        session = turn.session
        if turn.notice is not None or arrival.attempts < 2 or session.parent_kind != "reset":
            return turn.notice
        before = await self._store.sessions.get(session.parent_id or "")
        if before is None or before.end_reason not in replies.REASONS:
            return None
        policies = registry.policies(self._store.settings.policies)
        policy = policies.for_chat(before.origin.platform, before.origin.chat_type)
        return Notice(before.end_reason, True, before.id, notify=policy.notify)

    async def _answer(self, turn: TurnControl, request: Request, arrival: InboxItem) -> None:
        try:
            await self._once(turn, request, arrival)
        except ContextOverflow:
            if not await self._compact(turn):
                raise
            await self._once(turn, request, arrival)

    async def _compact(self, turn: TurnControl) -> bool:
        """Sum up what was said before, so that the model can be asked once more."""
        transcript = self._store.transcript(turn.session.id)
        for kept in (self._rules.compact_turns, 1):
            if await transcript.compact(keep_turns=kept) is not None:
                return True
        return False

    async def _once(self, turn: TurnControl, request: Request, arrival: InboxItem) -> None:
        is_answered = False
        try:
            async with run_of(self._agent, request) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        await self._pass_on(event, arrival)
                        continue
                    await self._keep(turn, event, arrival)
                    is_answered = is_answered or (isinstance(event, Step) and not event.tool_calls)
        except AgentStopped as stopped:
            partial = getattr(stopped, "partial", None)
            if partial and not is_answered:
                await turn.add_assistant(partial, stopped=True, deliver=self._target)
        except (Error, TurnHandedOver):
            raise
        except Exception as bug:
            log.exception("the agent %s has a bug", self._agent.name)
            raise AgentFailed("The agent failed in a way that nobody thought of.") from bug
        else:
            if not is_answered:
                raise AgentFailed("The agent ended without an answer.")

    async def _pass_on(self, delta: Delta, arrival: InboxItem) -> None:
        """There are many of these, and nothing of them is kept."""
        if self._adapter is not None:
            await self._show(arrival, "delta", delta.text)
        if self._observe is not None:
            await self._observe(delta)

    async def _keep(self, turn: TurnControl, event: Event, arrival: InboxItem) -> None:
        match event:
            case Step():
                await self._keep_step(turn, event, arrival)
            case ToolResult(call_id, content):
                await turn.add_tool_result(call_id, content)
            case ModelUsage(usage):
                await turn.add_usage(usage)
            case Note(text) if self._delivers:
                await turn.deliver(text)
        if isinstance(event, Step | ModelUsage) and event.usage is not None:
            self._meter.spent(arrival.source.platform, event.usage)
        if self._observe is not None:
            await self._observe(event)

    async def _keep_step(self, turn: TurnControl, step: Step, arrival: InboxItem) -> None:
        await turn.add_assistant(
            step.text,
            tool_calls=step.tool_calls,
            reasoning=step.reasoning,
            usage=step.usage,
            deliver=None if step.tool_calls else self._target,
            **step.extra,
        )
        for call in step.tool_calls:
            await self._show(arrival, "tool", call.name)

    @property
    def _target(self) -> str | None:
        return "origin" if self._delivers else None

    def _request(
        self, turn: TurnControl, signals: TurnSignals, arrival: InboxItem, text: str
    ) -> Request:
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

    async def _steer(self, turn: TurnControl, arrival: InboxItem) -> Sequence[str]:
        """Take what waits into the turn, up to the first command."""
        taken: list[str] = []
        if self._rules.meanwhile != "steer":
            return taken
        page = await self._store.inbox.find(key=arrival.key, state="waiting", limit=_STEERED)
        for waiting in page.items:
            if commands.parse(waiting.text) is not None:
                break
            with contextlib.suppress(StaleWrite):
                await turn.add_inbox_item(waiting)
                taken.append(waiting.text or "")
        return taken

    async def _show(
        self, arrival: InboxItem, kind: Literal["began", "delta", "tool", "ended"], text: str = ""
    ) -> None:
        if self._adapter is None:
            return
        try:
            shown = StreamUpdate(kind=kind, turn=str(arrival.id), text=text)
            await self._adapter.show(arrival.source, shown)
        except Exception:
            # Whatever a foreign adapter does wrong here may be missed; the answer may not.
            log.exception("%s cannot show a turn under way", self._adapter.name)
