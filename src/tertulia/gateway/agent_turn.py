"""The agent's part of a turn: each of its events is stored before the next one is requested."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tertulia import aio
from tertulia.agents import tools as agent_tools
from tertulia.agents.base import (
    Agent,
    Content,
    Delta,
    Event,
    ModelUsage,
    Note,
    Request,
    Step,
    Thought,
    Tool,
    ToolResult,
    traits_of,
)
from tertulia.agents.base import running as run_agent
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.model_agent import CANNOT_SEE, CANNOT_SEE_NOTE
from tertulia.aio.turn import TurnControl
from tertulia.core import keys, memory, prices
from tertulia.core.history.content import has_content
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.memory import Memory
from tertulia.core.message import ToolCall, describe_call, text_of
from tertulia.core.session import Notice, Session
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.core.text.time_head import TimeHeadFilter, strip_time_head
from tertulia.core.usage import Usage
from tertulia.errors import AgentFailed, AgentStopped, ContextOverflow, Error, StaleWrite
from tertulia.gateway import commands, replies
from tertulia.gateway.agent_table import ConfiguredAgent
from tertulia.gateway.interrupts import TurnSignals
from tertulia.gateway.media_preparer import MediaPreparer
from tertulia.gateway.metrics import Metrics, NullMetrics
from tertulia.gateway.progress import TurnProgress
from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.telemetry import AgentSpans, get_tracer, user_pseudonym
from tertulia.gateway.tool_guard import ToolGuard
from tertulia.platforms import registry
from tertulia.platforms.base import Adapter
from tertulia.records.turns.waiting import declined_text

log = logging.getLogger("tertulia.gateway")

_MAX_STEERED = 20  # messages taken into a turn at one time
_APPROVED_SECONDS = 300.0  # how long a tool may take that runs after its approval

Observe = Callable[[Event], Awaitable[None]]


class MessageToAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The message that the agent answers in a turn, from the inbox or from a caller that waits."""

    source: Source
    text: str
    key: str  # of the conversation whose waiting messages may be taken into the turn
    update_id: str  # names the turn in stream updates
    message_id: str | None = None  # the platform's id
    streams: bool = True  # whether the answer is shown while it is written
    is_retry: bool = False  # a node may have died while it answered
    has_unseen_images: bool = False  # images that nobody has described in words
    usages: tuple[Usage, ...] = ()  # of model calls before the turn


class TurnHandedOver(Exception):
    """Raised by an observer: the caller makes the tool calls of this step, and the turn waits."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step


class TurnSuspended(Exception):
    """The turn waits for an approval of a call in the last step; the run of the agent ends."""


class AgentTurn:
    """One run of the agent in an open turn, from the message to its answer.

    Without `delivers` nothing is put into the outbox: the caller waits for the answer, and
    `observe` is called with each event once it is stored. `instructions` are added to the context
    prompt. With a `guard` its tools are offered instead of `tools`; if one of their calls has to be
    approved, the run ends, and `is_waiting` is True. The answer goes to `target`. `model` answers
    instead of the model of the session. `memories` are those that the agent is shown; without them
    they are read.
    """

    def __init__(
        self,
        store: aio.Store,
        configured: ConfiguredAgent,
        adapter: Adapter | None,
        settings: GatewaySettings,
        tools: tuple[Tool, ...],
        *,
        metrics: Metrics | None = None,
        delivers: bool = True,
        instructions: str = "",
        observe: Observe | None = None,
        guard: ToolGuard | None = None,
        target: str = ORIGIN,
        media: MediaPreparer | None = None,
        model: str | None = None,
        memories: Sequence[Memory] | None = None,
    ) -> None:
        self._store = store
        self._configured = configured
        self._agent: Agent = configured.agent
        self._model = model
        self._known_memories = memories
        self._prompt = ""
        self._adapter = adapter
        self._progress: TurnProgress | None = None
        self._settings = settings
        self._tools = tools if guard is None else guard.tools
        self._guard = guard
        self._answer_target = target
        self.is_waiting = False
        self._metrics = metrics or NullMetrics()
        self._delivers = delivers
        self._instructions = instructions
        self._observe = observe
        self._media = media
        self._head_filter = TimeHeadFilter()
        self._spans = AgentSpans(None, self._agent, {})
        self._calls: dict[str, tuple[ToolCall, float]] = {}  # by id, with the time of their start

    async def run(self, turn: TurnControl, signals: TurnSignals, message: MessageToAnswer) -> None:
        """Answer a message in its open turn.

        Raises an `AgentError` if the agent fails, and `TurnHandedOver` if an observer raised it.
        """
        self._progress = progress = TurnProgress(
            self._adapter,
            message.source,
            message.update_id,
            message_id=message.message_id,
            streams=message.streams,
            is_retry=message.is_retry,
        )
        if self._guard is not None:
            self._guard.enter(turn.session.id)
        await self._enter_session(turn.session.id)
        notice = await self._notice(turn, message)
        can_notify = registry.platform(message.source.platform).notify and self._delivers
        if notice is not None and notice.notify and notice.had_activity and can_notify:
            text = replies.notice(notice)
            await turn.deliver(text, delivery=replies.notice_key(turn.session.id))
            await progress.show("notice", text)
        await self._store_preparation(turn, message)
        started, outcome = time.monotonic(), "interrupted"
        try:
            async with progress.shown():
                request = await self._request(turn, signals, message)
                if not await self._run_answered_calls(turn, request, message):
                    return  # the person has stopped it; leaving closes what has no result
                await self._answer(turn, request, message)
            outcome = "answered"
        except TurnSuspended:
            self.is_waiting, outcome = True, "waiting"
        except TurnHandedOver:
            outcome = "handed_over"
            raise
        finally:
            self._metrics.turn_ended(message.source.platform, outcome, time.monotonic() - started)

    async def _enter_session(self, session_id: str) -> None:
        """Take the model and the prompt that the session has of its own."""
        configured = self._configured
        if not configured.models and configured.prompt is None:
            return
        own = await self._store.agent_choices.of_session(session_id)
        self._agent = configured.with_model(self._model or own.model)
        if own.prompt is not None:
            self._prompt = own.prompt
        elif configured.prompt is not None:
            text = await asyncio.to_thread(configured.prompt.current)
            self._prompt = await self._store.agent_choices.begin_prompt(session_id, text)

    async def _run_answered_calls(
        self, turn: TurnControl, request: Request, message: MessageToAnswer
    ) -> bool:
        """Run the calls for whose approval the turn has waited, and store all their results.

        Return False if the person has stopped them.
        """
        if not turn.answered_calls or self._guard is None:
            return True
        declined = {item.call.id: item.declined for item in turn.answered_calls if item.declined}
        calls = [item.call for item in turn.answered_calls]
        for call_id, reason in declined.items():
            await turn.add_tool_result(call_id, declined_text(reason))
        try:
            async with StopWatcher(request.stop) as watcher:
                results = agent_tools.run_tools(
                    [call for call in calls if call.id not in declined],
                    self._guard.approved_tools,
                    watcher,
                    seconds=_APPROVED_SECONDS,
                )
                async with contextlib.aclosing(results):
                    async for result in results:
                        await self._store_event(turn, result, message)
        except AgentStopped:
            return False
        return True

    @property
    def draft_id(self) -> str | None:
        """Return the platform's id of a draft that is still in the chat, or None."""
        return None if self._progress is None else self._progress.draft_id

    async def _notice(self, turn: TurnControl, message: MessageToAnswer) -> Notice | None:
        """Return why the session before ended; also if a node died before it had said so."""
        session = turn.session
        if turn.notice is not None or not message.is_retry or session.parent_kind != "reset":
            return turn.notice
        previous = await self._store.sessions.get(session.parent_id or "")
        if previous is None or previous.end_reason not in replies.REASONS:
            return None
        policies = registry.policies(self._store.settings.policies)
        policy = policies.for_chat(previous.origin.platform, previous.origin.chat_type)
        return Notice(previous.end_reason, True, previous.id, notify=policy.notify)

    async def _store_preparation(self, turn: TurnControl, message: MessageToAnswer) -> None:
        """Store the usage of calls before the turn; tell once that the model cannot see."""
        for usage in message.usages:
            await self._store_event(turn, _add_price(ModelUsage(usage)), message)
        traits = traits_of(self._agent)
        if traits is not None and not traits.sees_images and message.has_unseen_images:
            await self._store_event(turn, Note(CANNOT_SEE, CANNOT_SEE_NOTE), message)

    async def _answer(self, turn: TurnControl, request: Request, message: MessageToAnswer) -> None:
        """Run the agent; if the history is too long for the model, compact it and run once more."""
        try:
            await self._run_once(turn, request, message)
        except ContextOverflow:
            if not await self._compact(turn):
                raise
            await self._run_once(turn, request, message)

    async def _compact(self, turn: TurnControl) -> bool:
        """Summarise the older turns; return whether there was anything to summarise."""
        transcript = self._store.transcript(turn.session.id)
        for keep_turns in (self._settings.compact_turns, 1):
            if await transcript.compact(keep_turns=keep_turns) is not None:
                return True
        return False

    async def _run_once(
        self, turn: TurnControl, request: Request, message: MessageToAnswer
    ) -> None:
        assert self._progress is not None
        is_answered = False
        self._spans = spans = await self._start_spans(turn, message)
        if spans.is_recording:
            tools = tuple(map(spans.wrap_tool, request.tools))
            request = msgspec.structs.replace(request, tools=tools)
        try:
            with spans.run():
                async with run_agent(self._agent, request) as events:
                    async for event in events:
                        if isinstance(event, Delta | Thought):
                            if request.streams:
                                await self._stream(event)
                            continue
                        await self._store_event(turn, await self._complete(event), message)
                        if isinstance(event, Step) and not event.tool_calls:
                            is_answered = True
        except AgentStopped as stopped:
            partial = self._without_head(stopped.partial or "")
            if partial and not is_answered:
                await turn.add_assistant(
                    partial, stopped=True, deliver=self._target,
                    deliver_as=await self._references(message),
                )  # fmt: skip
        except (Error, TurnHandedOver, TurnSuspended):
            raise
        except Exception as bug:
            log.exception("the agent %s has a bug", self._agent.name)
            raise AgentFailed("The agent failed with an unexpected error.") from bug
        else:
            if not is_answered:
                raise AgentFailed("The agent ended without an answer.")

    async def _start_spans(self, turn: TurnControl, message: MessageToAnswer) -> AgentSpans:
        tracer = get_tracer()
        if tracer is None:
            return AgentSpans(None, self._agent, {})
        redactor = await self._store.run_batched(lambda: self._store.sync.redactor)
        user = user_pseudonym(redactor.derive_key("telemetry"), message.source)
        return AgentSpans.of_turn(
            tracer,
            self._agent,
            session_id=turn.session.id,
            platform=message.source.platform,
            user=user,
        )

    async def _stream(self, delta: Delta | Thought) -> None:
        """Show a piece of the answer or of the reasoning. They are frequent and are not stored."""
        if isinstance(delta, Thought):
            if self._progress is not None and self._progress.shows_thoughts:
                await self._progress.show("thought", delta.text)
            return
        if self._settings.timestamps != "none":
            delta = Delta(self._head_filter.feed(delta.text))
        if delta.text:
            await self._show_delta(delta)

    async def _show_delta(self, delta: Delta) -> None:
        if self._progress is not None:
            await self._progress.add(delta.text)
        if self._observe is not None:
            await self._observe(delta)

    async def _store_event(self, turn: TurnControl, event: Event, message: MessageToAnswer) -> None:
        match event:
            case Step():
                await self._store_step(turn, event, message)
            case ToolResult(call_id, content, whole):
                if self._media is not None:
                    content = await self._media.prepare_content(content)
                await turn.add_tool_result(call_id, content, whole=whole)
                await self._show_result(call_id, content)
            case ModelUsage(usage):
                await turn.add_usage(usage)
            case Note(text, once) if self._delivers and has_content(text):
                # A key with the kind tells it from an answer, which is in the transcript.
                key = f"note:{turn.session.id}:{uuid.uuid4().hex if once is None else once}"
                await turn.deliver(text, delivery=key)
        if isinstance(event, Step | ModelUsage):
            self._spans.end_chat(event.usage)
        if isinstance(event, Step | ModelUsage) and event.usage is not None:
            self._metrics.usage_stored(message.source.platform, event.usage)
        if self._observe is not None:
            await self._observe(event)
        if isinstance(event, Step) and event.tool_calls:
            await self._ask(turn, event.tool_calls)

    async def _ask(self, turn: TurnControl, calls: Sequence[ToolCall]) -> None:
        """Raise `TurnSuspended`, with the turn waiting, if one of the calls has to be approved.

        No agent runs a call before its next event is requested.
        """
        if self._guard is None or not (asking := await self._guard.find_asking(calls)):
            return
        assert self._progress is not None
        await self._guard.suspend(turn, asking, replaces=await self._progress.last_draft())
        raise TurnSuspended

    def _without_head(self, text: str) -> str:
        """Return a text of the model without a time line that it imitated."""
        return text if self._settings.timestamps == "none" else strip_time_head(text)

    async def _complete(self, event: Event) -> Event:
        """Return an event as it is stored; show what was held back of a step's text."""
        if isinstance(event, Step):
            rest, self._head_filter = self._head_filter.end(), TimeHeadFilter()
            if rest:
                await self._show_delta(Delta(rest))
            if event.text and (text := self._without_head(event.text)) != event.text:
                event = msgspec.structs.replace(event, text=text)
        return _add_price(event)

    async def _store_step(self, turn: TurnControl, step: Step, message: MessageToAnswer) -> None:
        is_answer = not step.tool_calls
        await turn.add_assistant(
            step.text,
            tool_calls=step.tool_calls,
            reasoning=step.reasoning,
            usage=step.usage,
            deliver=self._target if is_answer else None,
            deliver_as=await self._references(message) if is_answer else {},
            **step.extra,
        )
        assert self._progress is not None
        await self._progress.end_step()
        for call in step.tool_calls:
            self._calls[call.id] = call, time.monotonic()
            await self._progress.tool(call.name)

    async def _references(self, message: MessageToAnswer) -> dict[str, str | None]:
        """Return the messages that the answer replies to and replaces.

        In a group people see by the reply whom the agent answers.
        """
        assert self._progress is not None
        is_group = message.source.chat_type != "dm"
        return {
            "reply_to": message.message_id if is_group else None,
            "replaces": await self._progress.last_draft(),
        }

    async def _show_result(self, call_id: str, content: Content) -> None:
        call, started = self._calls.pop(call_id, (None, 0.0))
        if call is not None and self._progress is not None and self._progress.is_visible:
            text = f"{describe_call(call)} · {time.monotonic() - started:.1f} s"
            await self._progress.show("result", text, text_of({"content": content}))

    @property
    def _target(self) -> str | None:
        return self._answer_target if self._delivers else None

    async def _request(
        self, turn: TurnControl, signals: TurnSignals, message: MessageToAnswer
    ) -> Request:
        async def history(
            *,
            format: Format = "openai",
            max_tokens: int | None = None,
            model: ModelTraits | None = None,
        ) -> list[dict[str, object]]:
            self._spans.begin_chat()
            return await turn.history(
                max_messages=self._settings.history_messages,
                max_tokens=max_tokens or self._settings.history_tokens,
                timestamps=self._settings.timestamps,
                format=format,
                model=model,
            )

        async def steer() -> Sequence[str]:
            return await self._steer(turn, message)

        assert self._progress is not None
        parts = (
            self._prompt,
            turn.context_prompt,
            await self._memories(turn),
            self._instructions,
        )
        return Request(
            text=message.text,
            history=history,
            system="\n\n".join(filter(None, parts)),
            tools=self._tools,
            session_id=turn.session.id,
            key=turn.session.key,
            platform=message.source.platform,
            stop=signals.stop,
            steer=steer,
            # Most events are deltas, and many adapters show none of them.
            streams=self._observe is not None or self._progress.shows_text,
        )

    async def _memories(self, turn: TurnControl) -> str:
        """Return the part of the system prompt with what is remembered of the person, or ""."""
        memories = self._known_memories
        if memories is None and shows_memories(self._settings, turn.session):
            memories = await self._store.memories.shown(turn.session.id)
        return memory.render(memories or ())

    async def _steer(self, turn: TurnControl, message: MessageToAnswer) -> Sequence[str]:
        """Take waiting messages into the turn, up to the first command; return their texts.

        Only those of the person whose turn it is: the tools were chosen for that person, and
        others who share the chat, or a linked one, may have a lower role.
        """
        texts: list[str] = []
        if self._settings.meanwhile != "steer":
            return texts
        author = keys.person_of(message.source)
        page = await self._store.inbox.find(key=message.key, state="waiting", limit=_MAX_STEERED)
        for waiting in page.items:
            if commands.parse(waiting.text) is not None or waiting.media or waiting.resumes:
                break  # files are fetched before a turn of their own
            if author is None or keys.person_of(waiting.source) != author:
                continue
            with contextlib.suppress(StaleWrite):
                await turn.add_inbox_item(waiting)
                texts.append(waiting.text or "")
        return texts


def shows_memories(settings: GatewaySettings, session: Session) -> bool:
    """Return whether the agent is shown what is remembered of the person who writes."""
    return settings.memory and session.origin.chat_type == "dm"


def _add_price(event: Event) -> Event:
    """Return the event with the cost of its model call, so that logs and metrics have it too."""
    if isinstance(event, Step | ModelUsage) and event.usage is not None:
        usage = prices.add_estimate(event.usage)
        return event if usage is event.usage else msgspec.structs.replace(event, usage=usage)
    return event
