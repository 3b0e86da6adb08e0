"""A gateway in a process of its own whose agent makes a call that has to be approved.

    python -m tests.crash.approval_process STORE FOLDER STEP PLAN

The chat app and the files are those of `gateway_process`. It ends when nothing is to be answered or
sent, also while a turn waits for an approval.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tertulia import aio
from tertulia.agents.base import Event, Request, Step, Tool
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.tools import run_tools
from tertulia.core.message import ToolCall
from tertulia.gateway.app import Gateway
from tertulia.gateway.tool_guard import ToolGuard
from tests.crash.gateway_process import (
    PATIENCE,
    RULES,
    SETTINGS,
    Death,
    Paper,
    is_busy,
    note,
)
from tests.gateway.running_gateway import until

PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
STEPS = ("stepped", "asked", "used", "effect", "answered")


class Runner:
    """Calls `terminal` once in a turn, and answers with its result."""

    name = "runner"

    def __init__(self, death: Death) -> None:
        self._death = death

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        history = await request.history()
        calls = (ToolCall("c1", "terminal", {"command": request.text}),)
        if history[-1]["role"] != "tool":
            yield Step(None, calls)
            async with StopWatcher(request.stop) as watcher:
                async for result in run_tools(calls, request.tools, watcher, seconds=60):
                    yield result
            history = await request.history()
        yield Step(f"Result: {history[-1]['content']}")
        self._death.at("answered")

    async def close(self) -> None:
        pass


async def serve(where: str, folder: Path, step: str, plan: dict[str, list[str]]) -> None:
    death = Death(step)

    async def terminal(arguments: dict[str, Any]) -> str:
        death.at("used")
        note(folder / "effects", [arguments["command"]])
        death.at("effect")
        return "done"

    async with aio.open(where, settings=SETTINGS) as store:
        paper = Paper(folder, plan, Death("none"))
        tool = Tool("terminal", "Run a command.", PARAMETERS, terminal)
        gateway = Gateway(store, Runner(death), [paper], settings=RULES, tools=[tool])
        suspend = ToolGuard.suspend

        async def suspend_or_die(self: ToolGuard, *args: Any, **options: Any) -> None:
            death.at("stepped")
            await suspend(self, *args, **options)

        ToolGuard.suspend = suspend_or_die  # type: ignore[method-assign]
        running = asyncio.create_task(gateway.run())

        async def is_done() -> bool:
            is_quiet = paper.has_said_all.is_set() and not await is_busy(store)
            if await store.approvals.find():
                death.at("asked")
            return is_quiet

        await until(is_done, "all is answered", running, patience=PATIENCE)
        gateway.stop()
        await running


if __name__ == "__main__":
    _, store_path, notes, step, plan = sys.argv
    asyncio.run(serve(store_path, Path(notes), step, json.loads(plan)))
