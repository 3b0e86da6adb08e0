"""Requests to an agent outside of any conversation: nothing of them is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tertulia.agents.base import Agent, ModelUsage, Request, Step, running
from tertulia.core.history.formats import Format, Style, render
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import build_blocks
from tertulia.core.message import Message, text_of
from tertulia.core.usage import Usage


async def ask_aside(
    agent: Agent, messages: Sequence[dict[str, Any]], *, system: str = ""
) -> tuple[str | None, list[Usage]]:
    """Return the answer to messages in the OpenAI form, and the usage of its model calls.

    Raises an `AgentError` if the agent fails.
    """
    answer: str | None = None
    usages: list[Usage] = []
    async with running(agent, _request(messages, system)) as events:
        async for event in events:
            if isinstance(event, Step):
                answer = event.text
            if isinstance(event, Step | ModelUsage) and event.usage is not None:
                usages.append(event.usage)
    return answer, usages


def _request(messages: Sequence[dict[str, Any]], system: str) -> Request:
    rows = [
        Message(0, number, number, str(body.get("role")), None, 0, None, body)
        for number, body in enumerate(messages, 1)
    ]

    async def history(
        *,
        format: Format = "openai",
        max_tokens: int | None = None,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        return render(build_blocks(rows), format, Style())

    return Request(text=text_of(messages[-1]), history=history, system=system)
