"""Turns that are answered to whoever waits for them: no inbox, and no outbox.

    admit (a token has) → turn → agent → answer

Tools that come with a request are called by whoever sent it. Their calls end the request; the turn
stays interrupted, and goes on when the results come in the next one. If something else is said
instead, the calls keep the results that say they were interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import msgspec

from tertulia import aio
from tertulia.agents.base import Event, ModelUsage, Step, Tool, ToolResult
from tertulia.aio.turn import TurnControl
from tertulia.core.message import INTERRUPTED, TOOL, USER, Message, ToolCall
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import Error, IllegalMove
from tertulia.gateway.agent_turn import (
    AgentTurn,
    Observe,
    TurnHandedOver,
)
from tertulia.gateway.interrupts import TurnSignals
from tertulia.gateway.pipeline import Pipeline
from tertulia.records.queues.inbox import InboxItem

# Far enough back for the calls of one step and what came before them.
_LOOK_BACK = 200


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits for its answer.

    `past` is what the conversation is to begin with, if it begins with this request. `results` are
    those of the calls that the request before was answered with; then there is no text. `tools` of
    the caller are offered instead of the gateway's own. `origin` is who made the schedule that asks
    here: news of what it starts are sent there, and it plans nothing itself.
    """

    source: Source
    text: str | None
    message_id: str
    media: tuple[Any, ...] = ()
    past: tuple[dict[str, Any], ...] = ()
    results: tuple[ToolResult, ...] = ()
    tools: tuple[Tool, ...] = ()
    instructions: str = ""
    origin: Source | None = None
    stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class AgentReply(msgspec.Struct, frozen=True, kw_only=True):
    """What it was answered: a text, or calls for the caller's own tools."""

    session_id: str
    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    is_repeated: bool = False


class Responder:
    """Answers requests that wait."""

    def __init__(self, path: Pipeline, *, wait: float = 30.0) -> None:
        self._path = path
        self._wait = wait
        self._under_way: set[asyncio.Task[Any]] = set()
        self._beginnings: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def store(self) -> aio.Store:
        return self._path.store

    def start(self, ask: AgentRequest, observe: Observe | None = None) -> asyncio.Task[AgentReply]:
        """Answer in a task of its own, which `drain` waits for."""
        task = asyncio.create_task(self.answer(ask, observe))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def drain(self, seconds: float) -> None:
        """Wait for what is under way, then cut it off; asked again, it goes on."""
        if self._under_way:
            _, left = await asyncio.wait(self._under_way, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def answer(self, ask: AgentRequest, observe: Observe | None = None) -> AgentReply:
        """The answer to a request; the same one for a request that was answered before."""
        if ask.past:
            await self._begin(ask)
        if ask.results:
            return await self._go_on(ask, observe)
        turn = self.store.turn_control(
            ask.source, ask.text, message_id=ask.message_id, media=ask.media, wait=self._wait
        )
        return await self._within(turn, ask, observe, ask.text or "")

    async def _begin(self, ask: AgentRequest) -> None:
        """Store what was said before, once."""
        key = self.store.sessions.key(ask.source)
        lock = self._beginnings.setdefault(key, asyncio.Lock())
        async with lock:
            session = await self.store.sessions.open(ask.source)
            transcript = self.store.transcript(session.id)
            if await transcript.count() == 0:
                await transcript.extend(ask.past)

    async def _go_on(self, ask: AgentRequest, observe: Observe | None) -> AgentReply:
        """Go on with the turn whose calls these are the results of."""
        key = await self.store.sessions.conversation(ask.source)
        session = await self.store.sessions.current(key)
        if session is None:
            raise _unasked(ask.results)
        entries = await self.store.transcript(session.id).entries(newest=_LOOK_BACK)
        said = next((one for one in reversed(entries) if one.role == USER), None)
        message_id = None if said is None else said.body.get("message_id")
        if said is None or not message_id:
            raise _unasked(ask.results)
        turn = self.store.turn_control(ask.source, None, message_id=message_id, wait=self._wait)

        async def put_in(turn: TurnControl) -> None:
            await self._put_results(turn.session.id, ask.results)

        return await self._within(turn, ask, observe, str(said.body.get("content") or ""), put_in)

    async def _put_results(self, session_id: str, results: Sequence[ToolResult]) -> None:
        """Show each result in the place of the one that says the call was interrupted."""
        transcript = self.store.transcript(session_id)
        places = _newest_results(await transcript.entries(newest=_LOOK_BACK))
        if {result.call_id for result in results} != set(places):
            raise _unasked(results)
        for result in results:
            place = places[result.call_id]
            if place.kind != INTERRUPTED:
                continue  # it came before, and the agent failed after it
            body = {"role": TOOL, "tool_call_id": result.call_id, "content": result.content}
            name = {"name": place.body["name"]} if "name" in place.body else {}
            await transcript.edit(place.seq, body | name)

    async def _within(
        self,
        turn: TurnControl,
        ask: AgentRequest,
        observe: Observe | None,
        text: str,
        first: Callable[[TurnControl], Awaitable[None]] | None = None,
    ) -> AgentReply:
        heard = _Heard(observe, hands_over=bool(ask.tools))
        try:
            async with turn:
                if turn.duplicate:
                    return AgentReply(
                        session_id=turn.session.id, text=turn.answer, is_repeated=True
                    )
                if first is not None:
                    await first(turn)
                async with self._signals(turn.session.key, ask.stop) as signals:
                    exchange = await self._exchange(ask, heard, turn.session.key)
                    await exchange.run(turn, signals, await self._arrival(ask, turn), text)
        except TurnHandedOver as handed:
            return AgentReply(
                session_id=turn.session.id,
                text=handed.step.text,
                tool_calls=handed.step.tool_calls,
                usage=heard.usage,
            )
        return AgentReply(session_id=turn.session.id, text=turn.answer, usage=heard.usage)

    async def _exchange(self, ask: AgentRequest, heard: _Heard, key: str) -> AgentTurn:
        path = self._path
        tools = ask.tools or await path.tools_for(
            ask.origin or ask.source, key, may_plan=ask.origin is None
        )
        return AgentTurn(
            path.store,
            path.agent,
            None,
            path.rules,
            tools,
            metrics=path.metrics,
            delivers=False,
            instructions=ask.instructions,
            observe=heard,
        )

    @contextlib.asynccontextmanager
    async def _signals(self, key: str, stop: asyncio.Event) -> AsyncIterator[TurnSignals]:
        """A turn that /stop ends, and that ends when whoever asked does not wait any more."""
        with self._path.interrupts.turn(key) as signals:
            watching = asyncio.create_task(_pass_on(stop, signals.stop))
            try:
                yield signals
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _arrival(self, ask: AgentRequest, turn: TurnControl) -> InboxItem:
        """The request in the form an exchange knows; it stands in no inbox."""
        now = self.store.now()
        return InboxItem(
            id=0,
            key=turn.session.key,
            source=ask.source,
            text=ask.text,
            message_id=ask.message_id,
            media=ask.media,
            state="taken",
            attempts=1,
            not_before=now,
            received_at=now,
            problem=None,
        )


class _Heard:
    """Adds up what was used, and ends the run where the caller has to go on."""

    def __init__(self, observe: Observe | None, *, hands_over: bool) -> None:
        self._observe = observe
        self._hands_over = hands_over
        self.usage = Usage()

    async def __call__(self, event: Event) -> None:
        if isinstance(event, Step | ModelUsage) and event.usage is not None:
            self.usage = _added(self.usage, event.usage)
        if self._observe is not None:
            await self._observe(event)
        if isinstance(event, Step) and event.tool_calls and self._hands_over:
            raise TurnHandedOver(event)


def caller_tool(name: str, description: str, parameters: dict[str, Any]) -> Tool:
    """A tool that whoever asked will run."""

    async def call(arguments: dict[str, Any]) -> NoReturn:
        # A run is left before its tools are called; see `_Heard`.
        raise Error(f"{name} is run by the caller.")

    return Tool(name, description, parameters, call)


def _newest_results(entries: Sequence[Message]) -> dict[str, Message]:
    """The results that stand at the end, by the id of their call."""
    found: dict[str, Message] = {}
    for one in reversed(entries):
        if one.role != TOOL:
            break
        found.setdefault(str(one.body.get("tool_call_id")), one)
    return found


def _unasked(results: Sequence[ToolResult]) -> IllegalMove:
    named = ", ".join(result.call_id for result in results)
    return IllegalMove(
        f"No call waits for these results: {named[:200]}.",
        hint="Send one result for each call of the newest answer, in one request.",
    )


def _added(one: Usage, other: Usage) -> Usage:
    costs = [cost for cost in (one.cost_usd, other.cost_usd) if cost is not None]
    return Usage(
        one.input + other.input,
        one.output + other.output,
        one.cache_read + other.cache_read,
        one.cache_write + other.cache_write,
        one.reasoning + other.reasoning,
        model=other.model or one.model,
        cost_usd=sum(costs) if costs else None,
    )


async def _pass_on(heard: asyncio.Event, told: asyncio.Event) -> None:
    await heard.wait()
    told.set()
