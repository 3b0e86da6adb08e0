"""Request and reply: turns for callers that wait for the answer, without inbox and outbox.

    a token admits the caller → turn → agent → reply

Tools that come with a request are called by the caller. A step that calls one ends the request: the
turn stays interrupted, and continues when the next request brings the results. If the next request
brings a new message instead, the calls keep their results that say they were interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn
from weakref import WeakValueDictionary

import msgspec

from tertulia import aio
from tertulia.agents.base import Event, ModelUsage, Step, Tool, ToolResult
from tertulia.aio.turn import TurnControl
from tertulia.core.message import INTERRUPTED, TOOL, USER, Message, ToolCall
from tertulia.core.source import Source
from tertulia.core.usage import Usage, weakest_status
from tertulia.errors import Error, IllegalMove, PlatformUnavailable
from tertulia.gateway.agent_turn import AgentTurn, MessageToAnswer, Observe, TurnHandedOver
from tertulia.gateway.interrupts import TurnSignals
from tertulia.gateway.media_preparer import PreparedMessage
from tertulia.gateway.request_files import store_files, store_files_of
from tertulia.gateway.side_request import ask_aside
from tertulia.records.queues.inbox import claim_person

if TYPE_CHECKING:
    from tertulia.gateway.pipeline import Pipeline

# Newest messages to read: enough for the tool calls of one step and the message before them.
_NEWEST = 200


WAITING: Final = "A tool needs the approval of the owner. The answer follows when it is given."


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a caller that waits for the reply.

    `past` are the messages a new conversation begins with; if it has messages, `past` is ignored.
    `results` are the results of the tool calls in the reply to the request before; then there is no
    text. `tools` of the caller are offered instead of the gateway's own. `origin` is the creator of
    the schedule that makes the request: news of programs it starts are sent there, and the agent
    cannot create schedules. `target` is where the answer goes if the turn has to wait for an
    approval and continues later; None: it is only stored. `model` is one of the agent's models that
    answers this request; None: that of the session.
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
    target: str | None = None
    model: str | None = None
    stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class AgentReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request: a text, or calls of the caller's own tools.

    If the turn `is_waiting` for an approval there is no text: the answer follows when the owner has
    decided, and the same request returns it then.
    """

    session_id: str
    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    is_repeated: bool = False
    is_waiting: bool = False

    @property
    def shown_text(self) -> str | None:
        """The text for a caller that knows no waiting turns."""
        return WAITING if self.is_waiting else self.text


class Responder:
    """Answers requests of callers that wait."""

    def __init__(self, pipeline: Pipeline, *, wait: float = 30.0) -> None:
        self._pipeline = pipeline
        self._wait = wait
        self._in_progress: set[asyncio.Task[Any]] = set()
        self._is_draining = False
        pipeline.responders.append(self)
        self._past_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def store(self) -> aio.Store:
        return self._pipeline.store

    def start(
        self, request: AgentRequest, observe: Observe | None = None
    ) -> asyncio.Task[AgentReply]:
        """Answer in a new task, which `drain` waits for.

        Raises `PlatformUnavailable` while the gateway stops. The task raises `LimitExceeded` if
        too many turns are running.
        """
        if self._is_draining:
            raise stopping()
        task = asyncio.create_task(self.answer(request, observe))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        return task

    async def drain(self, seconds: float) -> int:
        """Wait for requests in progress, then cancel the rest; sent again, they continue.

        New requests are refused from now on. Return how many were cancelled.
        """
        self._is_draining = True
        if not self._in_progress:
            return 0
        _, unfinished = await asyncio.wait(self._in_progress, timeout=seconds)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return len(unfinished)

    async def answer(self, request: AgentRequest, observe: Observe | None = None) -> AgentReply:
        """Return the reply; a request that was answered before gets the stored answer.

        Raises `LimitExceeded` if too many turns are running, unless a schedule makes the request.
        """
        if request.origin is None:
            # A schedule has stored its agent, and none if that is the main one.
            source = await self.store.agent_choices.resolve(request.source)
            request = msgspec.structs.replace(request, source=source)
        async with self._pipeline.slots.slot(
            claim_person(request.origin or request.source),
            seconds=self._wait,
            is_patient=request.origin is not None,
        ):
            return await self._answer(request, observe)

    async def answer_apart(
        self,
        source: Source,
        messages: Sequence[dict[str, Any]],
        *,
        instructions: str = "",
        session_id: str,
    ) -> AgentReply:
        """Answer messages outside of any conversation; only their usage is stored, in a session.

        Raises `LimitExceeded` if too many turns are running.
        """
        agent = self._pipeline.agents.of(source).agent
        async with self._pipeline.slots.slot(claim_person(source), seconds=self._wait):
            text, usages = await ask_aside(agent, messages, system=instructions)
        total = Usage()
        for usage in usages:
            await self.store.usage.add(session_id, usage)
            total = _sum(total, usage)
        return AgentReply(session_id=session_id, text=text, usage=total)

    async def _answer(self, request: AgentRequest, observe: Observe | None) -> AgentReply:
        if request.past:
            await self._store_past(request)
        if request.results:
            return await self._continue(request, observe)
        prepared = await self._prepare(request)
        if prepared.failure is not None:
            raise prepared.failure
        turn = self.store.turn_control(
            request.source,
            prepared.text,
            message_id=request.message_id,
            media=prepared.files,
            wait=self._wait,
        )
        return await self._run_turn(turn, request, observe, prepared)

    async def _prepare(self, request: AgentRequest) -> PreparedMessage:
        """Store the files inside a request, and prepare them for the model."""
        if not request.media:
            return PreparedMessage(text=request.text, files=[])
        files = await store_files(self.store, request.media)
        return await self._pipeline.prepare_files(request.source, request.text, files)

    async def _store_past(self, request: AgentRequest) -> None:
        """Store the earlier messages, if the transcript is empty."""
        key = self.store.sessions.key(request.source)
        lock = self._past_locks.setdefault(key, asyncio.Lock())
        async with lock:
            session = await self.store.sessions.open(request.source)
            transcript = self.store.transcript(session.id)
            if await transcript.count() == 0:
                past = [await self._prepare_past(request.source, old) for old in request.past]
                await transcript.extend(past)

    async def _prepare_past(self, source: Source, message: dict[str, Any]) -> dict[str, Any]:
        stored = await store_files_of(self.store, message)
        if not stored.get("media"):
            return stored
        prepared = await self._pipeline.prepare_files(source, stored["content"], stored["media"])
        return {**stored, "content": prepared.text or "", "media": prepared.files}

    async def _continue(self, request: AgentRequest, observe: Observe | None) -> AgentReply:
        """Continue the turn that made the tool calls, with their results."""
        key = await self.store.sessions.conversation(request.source)
        session = await self.store.sessions.current(key)
        if session is None:
            raise _unexpected_results(request.results)
        entries = await self.store.transcript(session.id).entries(newest=_NEWEST)
        message = next((entry for entry in reversed(entries) if entry.role == USER), None)
        message_id = None if message is None else message.body.get("message_id")
        if message is None or not message_id:
            raise _unexpected_results(request.results)
        turn = self.store.turn_control(request.source, None, message_id=message_id, wait=self._wait)

        async def put_results(turn: TurnControl) -> None:
            await self._put_results(turn.session.id, request.results)

        text = str(message.body.get("content") or "")
        prepared = PreparedMessage(text=text, files=[])
        return await self._run_turn(turn, request, observe, prepared, put_results)

    async def _put_results(self, session_id: str, results: Sequence[ToolResult]) -> None:
        """Replace the stored results that say "interrupted" with the results of the caller."""
        transcript = self.store.transcript(session_id)
        stored = _newest_results(await transcript.entries(newest=_NEWEST))
        if {result.call_id for result in results} != set(stored):
            raise _unexpected_results(results)
        for result in results:
            entry = stored[result.call_id]
            if entry.kind != INTERRUPTED:
                continue  # an earlier request has put it in, and then the agent failed
            body = {"role": TOOL, "tool_call_id": result.call_id, "content": result.content}
            name = {"name": entry.body["name"]} if "name" in entry.body else {}
            await transcript.edit(entry.seq, body | name)

    async def _run_turn(
        self,
        turn: TurnControl,
        request: AgentRequest,
        observe: Observe | None,
        prepared: PreparedMessage,
        prepare: Callable[[TurnControl], Awaitable[None]] | None = None,
    ) -> AgentReply:
        """Enter the turn, call `prepare` in it, run the agent, and return the reply."""
        observer = _Observer(observe, hands_over=bool(request.tools))
        try:
            async with turn:
                if turn.duplicate:
                    return AgentReply(
                        session_id=turn.session.id,
                        text=turn.answer,
                        is_repeated=True,
                        is_waiting=turn.is_waiting,
                    )
                if prepare is not None:
                    await prepare(turn)
                async with self._signals(turn.session.key, request.stop) as signals:
                    agent_turn = await self._agent_turn(request, observer, turn.session.key)
                    message = MessageToAnswer(
                        source=request.source,
                        text=prepared.text or "",
                        key=turn.session.key,
                        update_id="0",
                        has_unseen_images=prepared.has_unseen_images,
                        usages=prepared.usages,
                    )
                    await agent_turn.run(turn, signals, message)
        except TurnHandedOver as handover:
            return AgentReply(
                session_id=turn.session.id,
                text=handover.step.text,
                tool_calls=handover.step.tool_calls,
                usage=observer.usage,
            )
        return AgentReply(
            session_id=turn.session.id,
            text=turn.answer,
            usage=observer.usage,
            is_waiting=agent_turn.is_waiting,
        )

    async def _agent_turn(self, request: AgentRequest, observer: _Observer, key: str) -> AgentTurn:
        pipeline = self._pipeline
        person = request.origin or request.source
        tools, guard = request.tools, None
        if not tools:
            role = await pipeline.tool_role(person)
            tools = await pipeline.tools_for(person, key, role, can_schedule=request.origin is None)
            guard = pipeline.guard_for(
                person, role, tools, is_attended=False, target=request.target
            )
        return AgentTurn(
            pipeline.store,
            pipeline.agents.of(request.source),
            None,
            pipeline.settings,
            tools,
            metrics=pipeline.metrics,
            delivers=False,
            instructions=request.instructions,
            observe=observer,
            guard=guard,
            media=pipeline.media_preparer,
            model=request.model,
        )

    @contextlib.asynccontextmanager
    async def _signals(self, key: str, stop: asyncio.Event) -> AsyncIterator[TurnSignals]:
        """Register the turn, so that /stop ends it, and stop it when the caller stops waiting."""
        with self._pipeline.interrupts.turn(key) as signals:
            forwarding = asyncio.create_task(_forward(stop, signals.stop))
            try:
                yield signals
            finally:
                forwarding.cancel()
                await asyncio.gather(forwarding, return_exceptions=True)


class _Observer:
    """Sums up the usage, and ends the run at a step whose tools the caller has to call."""

    def __init__(self, observe: Observe | None, *, hands_over: bool) -> None:
        self._observe = observe
        self._hands_over = hands_over
        self.usage = Usage()

    async def __call__(self, event: Event) -> None:
        if isinstance(event, Step | ModelUsage) and event.usage is not None:
            self.usage = _sum(self.usage, event.usage)
        if self._observe is not None:
            await self._observe(event)
        if isinstance(event, Step) and event.tool_calls and self._hands_over:
            raise TurnHandedOver(event)


def stopping() -> PlatformUnavailable:
    """Return the error for a request that a stopping gateway does not answer."""
    return PlatformUnavailable(
        "The gateway is stopping.", hint="Send it again in a moment.", retry_after=5
    )


def caller_tool(name: str, description: str, parameters: dict[str, Any]) -> Tool:
    """Return a tool that the caller of a request runs itself."""

    async def call(arguments: dict[str, Any]) -> NoReturn:
        # The run ends before its tools are called; see `_Observer`.
        raise Error(f"{name} is run by the caller.")

    return Tool(name, description, parameters, call)


def _newest_results(entries: Sequence[Message]) -> dict[str, Message]:
    """Return the tool results at the end of the transcript, by the id of their call."""
    results: dict[str, Message] = {}
    for entry in reversed(entries):
        if entry.role != TOOL:
            break
        results.setdefault(str(entry.body.get("tool_call_id")), entry)
    return results


def _unexpected_results(results: Sequence[ToolResult]) -> IllegalMove:
    call_ids = ", ".join(result.call_id for result in results)
    return IllegalMove(
        f"No call waits for these results: {call_ids[:200]}.",
        hint="Send one result for each call of the newest answer, in one request.",
    )


def _sum(first: Usage, second: Usage) -> Usage:
    costs = [cost for cost in (first.cost_usd, second.cost_usd) if cost is not None]
    return Usage(
        first.input + second.input,
        first.output + second.output,
        first.cache_read + second.cache_read,
        first.cache_write + second.cache_write,
        first.reasoning + second.reasoning,
        model=second.model or first.model,
        provider=second.provider or first.provider,
        cost_usd=sum(costs) if costs else None,
        cost_status=weakest_status(first.cost_status, second.cost_status or "unknown"),
        cost_source=second.cost_source or first.cost_source,
    )


async def _forward(source: asyncio.Event, target: asyncio.Event) -> None:
    await source.wait()
    target.set()
