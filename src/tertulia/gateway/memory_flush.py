"""The memory flush: save what should be remembered of a session that its policy ended.

The agent is asked once more, outside the conversation: it gets the history of the session, and its
answer goes into the memory. Nothing of this is stored in the transcript; the usage is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tertulia import aio
from tertulia.agents.base import Agent, ModelUsage, Request, Step, running
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.session import Session
from tertulia.errors import AgentFailed, Error
from tertulia.gateway.memory_files import MemorySink

log = logging.getLogger("tertulia.gateway")

QUESTION = (
    "This conversation is over. Write down what should be remembered of it: facts about the person,"
    " decisions, promises, open ends. Short lines, no greeting. If there is nothing worth keeping,"
    " answer with the one word NOTHING."
)
NOTHING = "NOTHING"


class MemoryFlush:
    """Asks an agent what should be remembered of a session, and writes it to a memory sink."""

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        memory: MemorySink,
        *,
        max_tokens: int = 16_000,
        seconds: float = 120.0,
    ) -> None:
        self._store = store
        self._agent = agent
        self._memory = memory
        self._max_tokens = max_tokens
        self._seconds = seconds

    async def __call__(self, session: Session) -> None:
        """Save what is worth remembering of a session; raise an error if that failed."""
        answer = await self._ask(session)
        now = self._store.now()
        if answer and answer.strip(". \n").upper() not in ("", NOTHING):
            await asyncio.to_thread(self._memory.remember, answer, now)
        note = f"{session.id} ended ({session.end_reason})"
        await asyncio.to_thread(self._memory.note, note, now)

    async def _ask(self, session: Session) -> str | None:
        """Return the agent's answer to `QUESTION`, or None if it gave none."""
        answer: str | None = None
        try:
            request = self._request(session)
            async with asyncio.timeout(self._seconds), running(self._agent, request) as events:
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
            log.exception("the agent %s has a bug", self._agent.name)
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
