"""The memory flush: save what should be remembered of a session that its policy ended.

The agent is asked once more, outside the conversation: it gets the history of the session, and each
line of its answer becomes a memory of the person. Nothing of this is stored in the transcript; the
usage is recorded. In groups nothing is remembered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tertulia import aio
from tertulia.agents.base import Agent, ModelUsage, Request, Step, running
from tertulia.core.foreign_content import has_foreign_content
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.memory import split_lines
from tertulia.core.session import Session
from tertulia.errors import AgentFailed, Error, IllegalMove
from tertulia.gateway.agent_table import AgentTable

log = logging.getLogger("tertulia.gateway")

QUESTION = (
    "This conversation is over. Write down what should be remembered of it: facts about the person,"
    " decisions, promises, open ends. Short lines, no greeting. If there is nothing worth keeping,"
    " answer with the one word NOTHING."
)
NOTHING = "NOTHING"
_MAX_LINES = 20
_LOOKED_THROUGH = 2000  # newest messages that are looked through for foreign content


class MemoryFlush:
    """Asks an agent what should be remembered of a session, and stores it as memories.

    With `agents`, each session's own agent is asked.
    """

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        *,
        agents: AgentTable | None = None,
        max_tokens: int = 16_000,
        seconds: float = 120.0,
    ) -> None:
        self._store = store
        self._agent = agent
        self._agents = agents
        self._max_tokens = max_tokens
        self._seconds = seconds

    async def __call__(self, session: Session) -> None:
        """Save what is worth remembering of a session; raise an error if that failed."""
        if session.origin.chat_type != "dm" or not await self._store.memories.is_on(session.origin):
            return
        answer = await self._ask(session)
        if not answer or answer.strip(". \n").upper() in ("", NOTHING):
            return
        entries = await self._store.transcript(session.id).entries(newest=_LOOKED_THROUGH)
        is_proposed = has_foreign_content(entries)
        for line in split_lines(answer)[:_MAX_LINES]:
            try:
                await self._store.memories.record(
                    session.id, line, author="flush", is_proposed=is_proposed
                )
            except IllegalMove as full:
                log.info("a memory of session %s is not stored: %s", session.id, full.message)
                return

    async def _ask(self, session: Session) -> str | None:
        """Return the agent's answer to `QUESTION`, or None if it gave none."""
        answer: str | None = None
        agent = self._agent if self._agents is None else self._agents.of(session.origin).agent
        try:
            request = self._request(session)
            async with asyncio.timeout(self._seconds), running(agent, request) as events:
                async for event in events:
                    if isinstance(event, Step | ModelUsage) and event.usage is not None:
                        await self._store.usage.add(session.id, event.usage)
                    if isinstance(event, Step) and not event.tool_calls:
                        answer = event.text
        except TimeoutError as timeout:
            raise AgentFailed(f"The agent did not answer within {self._seconds:g} s.") from timeout
        except Error:
            raise
        except Exception as bug:
            log.exception("the agent %s has a bug", agent.name)
            raise AgentFailed("The agent failed with an unexpected error.") from bug
        return answer

    def _request(self, session: Session) -> Request:
        async def history(
            *,
            format: Format = "openai",
            max_tokens: int | None = None,
            model: ModelTraits | None = None,
        ) -> list[dict[str, Any]]:
            messages = await self._store.transcript(session.id).history(
                max_tokens=min(max_tokens or self._max_tokens, self._max_tokens),
                format=format,
                model=model,
            )
            return [*messages, _question(format)]

        return Request(
            text=QUESTION,
            history=history,
            session_id=session.id,
            key=session.key,
            platform=session.origin.platform,
        )


def _question(format: Format) -> dict[str, Any]:
    if format == "responses":
        return {"type": "message", "role": "user", "content": QUESTION}
    return {"role": "user", "content": QUESTION}
