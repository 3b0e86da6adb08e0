"""The tools `terminal` and `process`: calls, results and roles."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tertulia.agents import json_schema
from tertulia.agents.base import Event, Request, Step, Tool
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.processes import supervisor
from tertulia.processes.agent_tools import ACTIONS, PROCESS, TERMINAL, tools_for
from tertulia.processes.registry import ProcessRegistry, ProcessStatus
from tertulia.processes.settings import ProcessSettings
from tertulia.records.people import Role
from tertulia.records.processes import Process
from tests.gateway.running_gateway import TERMINAL_ALLOWED, App, Scripted
from tests.processes.process_fixtures import (
    ANA,
    BEN,
    SETTINGS,
    TIMEOUT_SECONDS,
    Conversation,
    wait_until,
    wait_until_async,
)


def use_tool(conversation: Conversation, name: str, **arguments: Any) -> str:
    tools = {
        tool.name: tool for tool in tools_for(conversation.registry, ANA, conversation.key, "owner")
    }
    assert json_schema.find_violations(tools[name].parameters, arguments) == []
    answer = asyncio.run(call_tool(tools[name], arguments))
    assert isinstance(answer, str)
    return answer


async def call_tool(tool: Tool, arguments: dict[str, Any]) -> object:
    return await tool.call(arguments)


def started_id(answer: str) -> str:
    assert answer.startswith("Started as "), answer
    return answer.split()[2].rstrip(".")


def stop_turn(
    conversation: Conversation,
    is_running: Callable[[], object],
    after_stop: Callable[[], None] = lambda: None,
) -> None:
    """Stop a turn while its program runs in the foreground, and check that the program ends."""
    [terminal, _] = tools_for(conversation.registry, ANA, conversation.key, "owner")

    async def run() -> int:
        call = asyncio.ensure_future(terminal.call({"command": "sleep 600"}))
        await wait_until_async(is_running, "it runs")
        [process] = conversation.store.processes.find()
        call.cancel()
        await asyncio.sleep(0)
        after_stop()
        with pytest.raises(asyncio.CancelledError):
            await call
        return process.pid

    pid = asyncio.run(run())
    wait_until(lambda: supervisor.mark(pid) == "", "it is ended")
    assert conversation.store.processes.find() == []


class TestTerminal:
    def test_foreground_returns_the_output(self, conversation: Conversation) -> None:
        answer = use_tool(conversation, "terminal", command="echo hello; exit 2")
        assert "exit code 2" in answer
        assert "```\nhello\n```" in answer
        assert conversation.store.processes.find() == []
        conversation.registry.check_all()
        assert conversation.notices() == []

    def test_foreground_timeout_ends_the_program(
        self, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wait = conversation.registry.wait

        def wait_when_it_has_written(process_id: str, *args: Any, **options: Any) -> ProcessStatus:
            conversation.wait_for_output(process_id, "so far")  # however slowly it begins
            return wait(process_id, *args, **options)

        monkeypatch.setattr(conversation.registry, "wait", wait_when_it_has_written)
        answer = use_tool(conversation, "terminal", command="echo so far; sleep 600", timeout=0.5)
        assert "so far" in answer
        assert "ended after 0.5 seconds" in answer
        assert conversation.store.processes.find() == []

    def test_stopped_turn_ends_the_foreground_program(self, conversation: Conversation) -> None:
        find = conversation.store.processes.find
        stop_turn(conversation, lambda: [item for item in find() if item.state == "running"])

    def test_turn_stopped_while_a_program_starts_ends_the_program(
        self, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spawn = conversation.registry.spawn
        started, may_return = threading.Event(), threading.Event()

        def spawn_slowly(command: str, **options: Any) -> Process:
            process = spawn(command, **options)
            started.set()
            assert may_return.wait(TIMEOUT_SECONDS)
            return process

        monkeypatch.setattr(conversation.registry, "spawn", spawn_slowly)
        stop_turn(conversation, started.is_set, may_return.set)

    def test_error_is_returned_as_text(self, conversation: Conversation) -> None:
        answer = use_tool(conversation, "terminal", command="pwd", workdir="/etc")
        assert answer.startswith("Error: The folder '/etc' lies outside")


class TestProcess:
    def test_every_action(self, conversation: Conversation) -> None:
        process = started_id(
            use_tool(
                conversation,
                "terminal",
                command="read -p 'who? ' x; echo hi $x; read y",
                background=True,
                pty=True,
            )
        )
        conversation.wait_for_output(process, "who?")
        assert process in use_tool(conversation, "process", action="list")
        assert "who?" in use_tool(conversation, "process", action="poll", id=process)
        assert (
            use_tool(conversation, "process", action="write", id=process, data="An") == "Written."
        )
        assert (
            use_tool(conversation, "process", action="submit", id=process, data="a") == "Written."
        )
        conversation.wait_for_output(process, "hi Ana")
        assert "hi Ana" in use_tool(conversation, "process", action="log", id=process)
        waited = use_tool(conversation, "process", action="wait", id=process, timeout=0.2)
        assert "After 0.2 seconds it is still running" in waited
        assert "ended by request" in use_tool(conversation, "process", action="kill", id=process)
        assert "ended by request" in use_tool(conversation, "process", action="wait", id=process)

    def test_positions_in_the_result_lead_to_other_pages(self, conversation: Conversation) -> None:
        process = started_id(
            use_tool(conversation, "terminal", command="seq 1 9000", background=True)
        )
        conversation.wait_for_end(process)
        last = use_tool(conversation, "process", action="log", id=process, limit=100)
        assert "9000" in last
        before = int(last.split("with before ")[1].split(";")[0])
        earlier = use_tool(
            conversation, "process", action="log", id=process, limit=100, before=before
        )
        assert "9000" not in earlier.splitlines()
        assert "8970" in earlier.splitlines()

    @pytest.mark.parametrize("action", [item for item in ACTIONS if item != "list"])
    def test_missing_and_unknown_ids(self, conversation: Conversation, action: str) -> None:
        assert "needs an id" in use_tool(conversation, "process", action=action)
        assert "no process 'p0'" in use_tool(
            conversation, "process", action=action, id="p0", data="x"
        )

    def test_write_without_data(self, conversation: Conversation) -> None:
        process = started_id(
            use_tool(conversation, "terminal", command="sleep 600", background=True)
        )
        assert "nothing to write" in use_tool(conversation, "process", action="write", id=process)

    def test_other_conversation_has_no_access(self, conversation: Conversation) -> None:
        process = started_id(
            use_tool(conversation, "terminal", command="sleep 600", background=True)
        )
        other = conversation.store.sessions.open(BEN).key
        [_, tool] = tools_for(conversation.registry, BEN, other, "owner")
        for action in ACTIONS:
            arguments = {"action": action, "id": process, "data": "x"}
            answer = str(asyncio.run(call_tool(tool, arguments)))
            assert "no process" in answer or answer == "There are no programs."
        assert conversation.registry.get(process).is_alive


@pytest.mark.parametrize("parameters", [TERMINAL, PROCESS])
def test_schemas_are_valid(parameters: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(parameters)


class TestRoles:
    @pytest.mark.parametrize(
        ("allowed", "role", "count"),
        [
            ("owner", "owner", 2),
            ("owner", "member", 0),
            ("owner", "guest", 0),
            ("member", "member", 2),
            ("member", "guest", 0),
            ("guest", "guest", 2),
        ],
    )
    def test_tools_by_role(
        self, conversation: Conversation, allowed: Role, role: Role, count: int
    ) -> None:
        registry = ProcessRegistry(
            conversation.store,
            conversation.registry._folder,
            settings=ProcessSettings(role=allowed),
        )
        assert len(tools_for(registry, ANA, conversation.key, role)) == count

    def test_default_role_is_owner(self) -> None:
        assert ProcessSettings().role == "owner"

    def test_gateway_offers_tools_by_role(self, tmp_path: Path) -> None:
        """Ana is the owner, Ben is not; both write to one gateway."""
        offered: dict[str, list[str]] = {}

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            names = [tool.name for tool in request.tools]
            offered[request.text] = [name for name in names if name not in ("schedule", "memory")]
            for tool in request.tools:
                if tool.name == "terminal":
                    await tool.call({"command": "echo done", "background": True})
            yield Step("fine")

        async def run() -> list[str]:
            from tertulia import aio

            everyone = PlatformSettings(admission="everyone", owners=("42",))
            app = App()
            async with aio.open(tmp_path / "talk.db", settings=SETTINGS) as store:
                registry = ProcessRegistry(store.sync, tmp_path / "programs")
                gateway = Gateway(
                    store, Scripted(script), [app], processes=registry,
                    settings=GatewaySettings(
                        platforms={"telegram": everyone}, approvals=TERMINAL_ALLOWED
                    ),
                )  # fmt: skip
                serving = asyncio.create_task(gateway.run())
                await app.get("I am Ana", ANA)
                await app.get("I am Ben", BEN)
                await wait_until_async(
                    lambda: len(app.to(ANA)) > 1 and app.to(BEN), "both are answered"
                )
                await app.get("/ps", ANA)
                await app.get("/ps", BEN)
                await wait_until_async(lambda: len(app.sent) > 4, "both have their lists")
                gateway.stop()
                await serving
            assert app.to(BEN) == ["fine", "No programs are running."]
            return app.to(ANA)

        texts = asyncio.run(run())
        assert offered == {"I am Ana": ["terminal", "process"], "I am Ben": []}
        assert sum("has ended, exit code 0" in text for text in texts) == 1
        assert "(echo done): ended, exit code 0" in texts[-1]
        assert os.path.isdir(tmp_path / "programs" / "work")
