"""An agent with others that answer when its model cannot: unavailable, overloaded, out of money.

Another agent is asked only if nothing of the failed call was shown or run, so nothing happens
twice. It continues the run from the stored history; the next run begins with the first agent again,
unless that one failed a moment ago. If all fail, the error of the first is reported: the others
would hide the cause.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, cast

from tertulia.agents.base import Agent, Delta, Event, Note, Request, Step, ToolResult, traits_of
from tertulia.agents.key_ring import REFUSED_STATUSES
from tertulia.core.backoff import Backoff
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.keys import is_direct_message
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ContextOverflow,
)

# How long an agent that failed is not asked first.
COOLDOWN: Final = Backoff(first=30, longest=300)


class FallbackAgent:
    """Runs the first of its agents that works; see the docstring of this module."""

    def __init__(
        self, agents: Sequence[Agent], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._candidates = [_Candidate(agent, now) for agent in agents]
        self._answering = self._candidates[0]
        self._changes = 0
        self.name = agents[0].name

    def __repr__(self) -> str:
        return (
            f"FallbackAgent({', '.join(repr(candidate.agent) for candidate in self._candidates)})"
        )

    @property
    def model(self) -> str | None:
        """The model of the first agent, if it calls one."""
        return getattr(self._candidates[0].agent, "model", None)

    @property
    def traits(self) -> ModelTraits | None:
        """The properties that a history for the model of the first agent depends on."""
        return traits_of(self._candidates[0].agent)

    async def close(self) -> None:
        """Close all agents."""
        for candidate in self._candidates:
            await candidate.agent.close()

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request by the first agent that can."""
        first, *others = self._candidates
        problems: list[AgentError] = []
        if first.is_ready or not any(self._can_stand_in(other) for other in others):
            order = self._candidates
        else:
            order = [*others, first]
        for candidate in order:
            if candidate is not first and not self._can_stand_in(candidate):
                continue
            progress = _Progress()
            try:
                async with aclosing(self._run_candidate(candidate, request, progress)) as events:
                    async for event in events:
                        yield event
            except AgentError as problem:
                candidate.failed()
                if progress.is_visible or not may_fall_back(problem):
                    raise
                problems.append(problem)
            else:
                candidate.worked()
                return
        raise problems[0]

    async def _run_candidate(
        self, candidate: _Candidate, request: Request, progress: _Progress
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of one agent, with a note before a step of another than the first."""
        run = cast("AsyncGenerator[Event, None]", candidate.agent.run(request))
        async with aclosing(run) as events:
            async for event in events:
                progress.add(event)
                if isinstance(event, Step) and (note := self._note(candidate, request)):
                    yield note
                yield event

    def _note(self, candidate: _Candidate, request: Request) -> Note | None:
        """Return what the person is told if another agent answers: once for each change."""
        if candidate is not self._answering:
            self._answering = candidate
            self._changes += 1
        first = self._candidates[0]
        if candidate is first or not is_direct_message(request.key):
            return None
        text = f"{first.title} cannot be reached now, so {candidate.title} answers."
        return Note(text, f"fallback {self._changes}")

    def _can_stand_in(self, candidate: _Candidate) -> bool:
        """Return whether another agent may stand in for the first.

        One that cannot see must not answer for one that can, and one with a smaller history would
        fail for a reason of its own.
        """
        first = self._candidates[0].agent
        traits, other_traits = traits_of(first), traits_of(candidate.agent)
        sees_images = traits is not None and traits.sees_images
        if sees_images and other_traits is not None and not other_traits.sees_images:
            return False
        return _history_tokens(candidate.agent) >= _history_tokens(first)


class _Candidate:
    """One agent, with the pause after its failures."""

    def __init__(self, agent: Agent, now: Callable[[], float]) -> None:
        self.agent = agent
        self._now = now
        self._failures = 0
        self._paused_until = 0.0

    @property
    def is_ready(self) -> bool:
        return self._now() >= self._paused_until

    @property
    def title(self) -> str:
        return str(getattr(self.agent, "model", None) or self.agent.name)

    def failed(self) -> None:
        self._failures += 1
        self._paused_until = self._now() + COOLDOWN.delay(self._failures, 0.0)

    def worked(self) -> None:
        self._failures, self._paused_until = 0, 0.0


class _Progress:
    """Records whether the model call in progress has shown or run anything."""

    def __init__(self) -> None:
        self._has_text = False
        self._running_tools = 0

    @property
    def is_visible(self) -> bool:
        return self._has_text or self._running_tools > 0

    def add(self, event: Event) -> None:
        if isinstance(event, Delta):
            self._has_text = True
        elif isinstance(event, Step):
            self._has_text, self._running_tools = False, len(event.tool_calls)
        elif isinstance(event, ToolResult):
            self._running_tools -= 1


def may_fall_back(problem: AgentError) -> bool:
    """Return whether another agent may answer after this failure."""
    if isinstance(problem, ContextOverflow):
        return False
    if isinstance(problem, AgentUnavailable | AgentTimeout):
        return True
    return isinstance(problem, AgentFailed) and problem.status in REFUSED_STATUSES


def _history_tokens(agent: Agent) -> float:
    tokens = getattr(agent, "history_tokens", None)
    return float("inf") if tokens is None else float(tokens)
