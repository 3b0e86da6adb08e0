"""Agents that tests of the server control."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

from tertulia.agents import Delta, ParrotAgent, Step
from tertulia.agents.base import Event, Request
from tertulia.errors import AgentStopped


class HeldAgent(ParrotAgent):
    """An agent that starts to answer, waits for `may_go_on`, and records how its runs ended."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.ends: list[str] = []
        self.ended = threading.Semaphore(0)
        self.looks = 0  # how often it has looked whether it may go on

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("well, ")
        self.began.release()
        try:
            while not self.may_go_on.is_set():
                self.looks += 1
                if request.stop.is_set():
                    self.ends.append("stopped")
                    raise AgentStopped("Stopped.", partial="well, ")
                await asyncio.sleep(0.01)
            yield Delta("hello")
            self.ends.append("answered")
            yield Step("well, hello")
        finally:
            self.ended.release()


class SilentAgent(ParrotAgent):
    """An agent that says nothing until `may_go_on`, or until it runs twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self._runs = 0

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self._runs += 1
        self.began.release()
        while not self.may_go_on.is_set() and self._runs < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield Step("hello")
