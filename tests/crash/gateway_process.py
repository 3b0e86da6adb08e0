"""A gateway in a process of its own, which dies at a named step or whenever it is killed.

    python -m tests.crash.gateway_process STORE FOLDER STEP PLAN

It is its own chat app. PLAN is a JSON object: for each chat the texts that are written there, each
when the one before was accepted. What was accepted, and what was delivered, stands in files of
FOLDER, as the memory of a platform does. It ends when all is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tertulia import Settings, Source, aio
from tertulia.agents.base import Event, Request, Step, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import IDLE, until

SETTINGS = Settings(zone="UTC", durability="safe", lease_seconds=1.0, policies=IDLE)
# So long whoever started it waits for its end.
PATIENCE = 180.0
RULES = GatewaySettings(platforms={"telegram": PlatformSettings(admission="everyone")})
STEPS = ("accepted", "claimed", "entered", "called", "result", "answered", "sending", "sent")


class Death:
    """Kills this process, as `kill -9` does, when it comes to a step."""

    def __init__(self, step: str) -> None:
        self._step = step

    def at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


class Paper(Adapter):
    """A chat app on two files."""

    name = "telegram"

    def __init__(self, folder: Path, plan: dict[str, list[str]], death: Death) -> None:
        self._folder = folder
        self._plan = plan
        self._death = death
        self.has_said_all = asyncio.Event()

    async def listen(self, receive: Receive) -> None:
        accepted = {tuple(line) for line in lines(self._folder / "accepted")}
        await asyncio.gather(
            *(self._talk(receive, chat, texts, accepted) for chat, texts in self._plan.items())
        )
        self.has_said_all.set()

    async def _talk(
        self, receive: Receive, chat: str, texts: list[str], accepted: set[Any]
    ) -> None:
        source = Source("telegram", chat, user_id=chat)
        for number, text in enumerate(texts):
            # A platform repeats what it was not told to be received, and now and then more.
            is_known = (chat, number) in accepted
            if is_known and number % 5:
                continue
            await receive(Incoming(source=source, text=text, message_id=f"{chat}-{number}"))
            self._death.at("accepted")
            if not is_known:
                note(self._folder / "accepted", [chat, number])

    async def send(self, message: Outgoing) -> None:
        self._death.at("sending")
        note(self._folder / "delivered", [message.chat_id, message.text])
        self._death.at("sent")


class Worker:
    """Uses a tool for some messages, and answers "re TEXT"."""

    name = "worker"

    def __init__(self, folder: Path, death: Death) -> None:
        self._folder = folder
        self._death = death

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self._death.at("entered")
        if "tool" in request.text:
            yield Step(None, (ToolCall("c1", "look", {}),), usage=Usage(5, 1))
            note(self._folder / "effects", [request.text])
            self._death.at("called")
            yield ToolResult("c1", "blue")
            self._death.at("result")
        yield Step(f"re {request.text}", usage=Usage(10, 2))
        self._death.at("answered")

    async def close(self) -> None:
        pass


def note(path: Path, value: list[Any]) -> None:
    """Write a line that outlives this process."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(value).encode() + b"\n")


def lines(path: Path) -> list[list[Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


async def serve(where: str, folder: Path, step: str, plan: dict[str, list[str]]) -> None:
    death = Death(step)
    async with aio.open(where, settings=SETTINGS) as store:
        paper = Paper(folder, plan, death)
        gateway = Gateway(store, Worker(folder, death), [paper], settings=RULES)
        answer = gateway.pipeline.inbox_worker._run

        async def claimed(item: Any) -> None:
            death.at("claimed")
            await answer(item)

        gateway.pipeline.inbox_worker._run = claimed
        running = asyncio.create_task(gateway.run())

        async def is_done() -> bool:
            return paper.has_said_all.is_set() and not await is_busy(store)

        await until(is_done, "all is answered", running, patience=PATIENCE)
        gateway.stop()
        await running


async def is_busy(store: aio.Store) -> bool:
    for state in ("waiting", "taken"):
        if (await store.inbox.find(state=state, limit=1)).items:
            return True
    for state in ("waiting", "sending"):
        if (await store.outbox.find(state=state, limit=1)).items:  # type: ignore[arg-type]
            return True
    return False


if __name__ == "__main__":
    _, store_path, notes, step, plan = sys.argv
    asyncio.run(serve(store_path, Path(notes), step, json.loads(plan)))
