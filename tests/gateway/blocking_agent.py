"""An agent that blocks until the test lets it go on, and sources to write from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tertulia import Source
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.errors import AgentStopped


def private_source(number: int) -> Source:
    return Source("telegram", f"{number}", user_id=f"{number}")


class BlockingAgent:
    """Writes a word, then waits until `goes_on` is set or the turn is stopped."""

    name = "slow"

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.goes_on = asyncio.Event()
        self.most = self._inside = 0

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.begun.append(request.text)
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            yield Delta("Well")
            waits = [asyncio.ensure_future(event.wait()) for event in (request.stop, self.goes_on)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if request.stop.is_set():
                raise AgentStopped("Stopped.", partial="Well")
            yield Step("Well, " + request.text)
        finally:
            self._inside -= 1
            self.ended.append(request.text)

    async def close(self) -> None:
        pass
