"""A minimal gateway for tests: one user, one agent, and a real store between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import tertulia
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
    running,
)
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import AgentError

ANA = Source("telegram", "42", user_id="42", user_name="Ana")

Watcher = Callable[[Event], Awaitable[None]]


class RecordedEvents:
    """The events of a run, and the error it ended with, if any."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.problem: AgentError | None = None

    @property
    def steps(self) -> list[Step]:
        return [event for event in self.events if isinstance(event, Step)]

    @property
    def results(self) -> list[ToolResult]:
        return [event for event in self.events if isinstance(event, ToolResult)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    @property
    def shown(self) -> str:
        """Return all streamed text."""
        return "".join(event.text for event in self.events if isinstance(event, Delta))

    @property
    def usages(self) -> list[Usage]:
        """Return the usage of each model call, in order."""
        usages = (event.usage for event in self.events if isinstance(event, Step | ModelUsage))
        return [usage for usage in usages if usage is not None]

    @property
    def answer(self) -> str | None:
        """Return the answer; raise the error if the run ended with one."""
        if self.problem is not None:
            raise self.problem
        assert self.steps, "the run ended without a step"
        assert not self.steps[-1].tool_calls, "the run ended with a tool call"
        return self.steps[-1].text


class ScriptedGateway:
    """A conversation with an agent, stored in a database in `folder`."""

    def __init__(
        self, folder: Path, *, tools: Sequence[Tool] = (), source: Source = ANA, system: str = ""
    ) -> None:
        self.path = folder / "talk.db"
        self.tools = tuple(tools)
        self.source = source
        self.system = system
        self.stop = asyncio.Event()
        # Texts the user writes while the agent works, and those the agent has already read.
        self.meanwhile: list[str] = []
        self.steered: list[str] = []
        self.stored: list[dict[str, Any]] = []

    async def say(
        self, agent: Agent, text: str, *, watcher: Watcher | None = None, is_alone: bool = True
    ) -> RecordedEvents:
        """Send a message to the agent and store every event of its run.

        `watcher` receives each event after it is stored. With `is_alone`, the run must leave no
        task behind.
        """
        recorded = RecordedEvents()
        try:
            await self._run_turn(agent, text, recorded, watcher)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not is_alone or not left, f"the run has left tasks behind: {left}"
        return recorded

    async def _run_turn(
        self, agent: Agent, text: str, recorded: RecordedEvents, watcher: Watcher | None
    ) -> None:
        # No reset policy: the clock is real, and the default policy ends sessions at 4 a.m.
        never = Policies(default=ResetPolicy(mode="none"))
        settings = Settings(zone="UTC", durability="fast", policies=never)
        async with tertulia.aio.open(self.path, settings=settings) as store:
            try:
                async with store.turn(self.source, text) as turn:
                    event_store = _EventStore(self, store, turn)
                    async with running(agent, event_store.request(text)) as events:
                        async for event in events:
                            recorded.events.append(event)
                            await event_store.store(event)
                            if watcher is not None:
                                await watcher(event)
            except AgentError as problem:
                recorded.problem = problem
            session = await store.sessions.open(self.source)
            self.stored = await store.transcript(session.id).history()
            assert await store.check() == []


class _EventStore:
    """The part that stores the events of one run."""

    def __init__(
        self, gateway: ScriptedGateway, store: tertulia.aio.Store, turn: tertulia.aio.Turn
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._turn = turn
        self._to_store: list[str] = []

    def request(self, text: str) -> Request:
        return Request(
            text=text,
            history=self._history,
            system=self._gateway.system or self._turn.context_prompt,
            tools=self._gateway.tools,
            session_id=self._turn.session.id,
            key=self._turn.session.key,
            platform=self._gateway.source.platform,
            stop=self._gateway.stop,
            steer=self._steer,
        )

    async def _steer(self) -> Sequence[str]:
        texts, self._gateway.meanwhile = self._gateway.meanwhile, []
        self._gateway.steered += texts
        self._to_store += texts
        return texts

    async def _history(
        self,
        *,
        format: Format = "openai",
        max_tokens: int | None = None,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        await self._store_steered()
        return await self._turn.history(format=format, max_tokens=max_tokens, model=model)

    async def _store_steered(self) -> None:
        transcript = self._store.transcript(self._turn.session.id)
        while self._to_store:
            await transcript.append({"role": "user", "content": self._to_store.pop(0)})

    async def store(self, event: Event) -> None:
        await self._store_steered()
        turn = self._turn
        if isinstance(event, Step):
            await turn.add_assistant(
                event.text,
                tool_calls=event.tool_calls,
                reasoning=event.reasoning,
                usage=event.usage,
                **event.extra,
            )
        elif isinstance(event, ToolResult):
            await turn.add_tool_result(event.call_id, event.content)
        elif isinstance(event, ModelUsage):
            await turn.add_usage(event.usage)
        self._gateway.stored = await turn.history()
