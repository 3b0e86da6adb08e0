"""A person, an agent, and a real store between them: what a gateway does, as small as it can be."""

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
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import AgentError

ANA = Source("telegram", "42", user_id="42", user_name="Ana")

Watcher = Callable[[Event], Awaitable[None]]


class RecordedEvents:
    """What a run gave: its events, and the error it ended with, if it did."""

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
        """All that was streamed."""
        return "".join(event.text for event in self.events if isinstance(event, Delta))

    @property
    def usages(self) -> list[Usage]:
        """What each model call used, in order."""
        found = (event.usage for event in self.events if isinstance(event, Step | ModelUsage))
        return [usage for usage in found if usage is not None]

    @property
    def answer(self) -> str | None:
        """The answer; an error is raised."""
        if self.problem is not None:
            raise self.problem
        assert self.steps, "it ended without a step"
        assert not self.steps[-1].tool_calls, "it ended with a call"
        return self.steps[-1].text


class ScriptedGateway:
    """Keeps a conversation with an agent in a store at `place`."""

    def __init__(
        self, place: Path, *, tools: Sequence[Tool] = (), source: Source = ANA, system: str = ""
    ) -> None:
        self.place = place / "talk.db"
        self.tools = tuple(tools)
        self.source = source
        self.system = system
        self.stop = asyncio.Event()
        # What the person writes while the agent works, and what of it the agent has asked for.
        self.meanwhile: list[str] = []
        self.steered: list[str] = []
        self.stored: list[dict[str, Any]] = []

    async def say(
        self, agent: Agent, text: str, *, watcher: Watcher | None = None, is_alone: bool = True
    ) -> RecordedEvents:
        """Say something, and store all that comes of it.

        `watcher` is given each event once it is stored. A run that is alone may leave no task.
        """
        heard = RecordedEvents()
        try:
            await self._exchange(agent, text, heard, watcher)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not is_alone or not left, f"a run has left tasks behind: {left}"
        return heard

    async def _exchange(
        self, agent: Agent, text: str, heard: RecordedEvents, watcher: Watcher | None
    ) -> None:
        # No policy: the clock is the real one, and at four in the morning a day ends.
        never = Policies(default=ResetPolicy(mode="none"))
        settings = Settings(zone="UTC", durability="fast", policies=never)
        async with tertulia.aio.open(self.place, settings=settings) as store:
            try:
                async with store.turn(self.source, text) as turn:
                    local_turns = _Desk(self, store, turn)
                    async with running(agent, local_turns.request(text)) as events:
                        async for event in events:
                            heard.events.append(event)
                            await local_turns.store(event)
                            if watcher is not None:
                                await watcher(event)
            except AgentError as problem:
                heard.problem = problem
            session = await store.sessions.open(self.source)
            self.stored = await store.transcript(session.id).history()
            assert await store.check() == []


class _Desk:
    """Makes durable what one run gives."""

    def __init__(
        self, talk: ScriptedGateway, store: tertulia.aio.Store, turn: tertulia.aio.Turn
    ) -> None:
        self._talk = talk
        self._store = store
        self._turn = turn
        self._to_store: list[str] = []

    def request(self, text: str) -> Request:
        return Request(
            text=text,
            history=self._history,
            system=self._talk.system or self._turn.context_prompt,
            tools=self._talk.tools,
            session_id=self._turn.session.id,
            key=self._turn.session.key,
            platform=self._talk.source.platform,
            stop=self._talk.stop,
            steer=self._steer,
        )

    async def _steer(self) -> Sequence[str]:
        given, self._talk.meanwhile = self._talk.meanwhile, []
        self._talk.steered += given
        self._to_store += given
        return given

    async def _history(
        self, *, format: Format = "openai", max_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        await self._store_steered()
        return await self._turn.history(format=format, max_tokens=max_tokens)

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
        self._talk.stored = await turn.history()
