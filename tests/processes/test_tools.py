"""The two tools: what a model asks and reads, and who may have it do so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tertulia.agents import json_schema
from tertulia.agents.base import Event, Request, Step, Tool
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import (
    GatewaySettings,
    PlatformSettings,
)
from tertulia.processes import supervisor
from tertulia.processes.agent_tools import (
    ACTIONS,
    PROCESS,
    TERMINAL,
    tools_for,
)
from tertulia.processes.registry import ProcessRegistry, ProcessStatus
from tertulia.processes.settings import ProcessSettings
from tertulia.records.people import Role
from tests.gateway.scene import App, Scripted
from tests.processes.scene import ANA, BEN, SETTINGS, Scene, comes, until


def use(scene: Scene, name: str, **asked: Any) -> str:
    tools = {tool.name: tool for tool in tools_for(scene.registry, ANA, scene.key, "owner")}
    assert json_schema.faults(tools[name].parameters, asked) == []
    answer = asyncio.run(called(tools[name], asked))
    assert isinstance(answer, str)
    return answer


async def called(tool: Tool, asked: dict[str, Any]) -> object:
    return await tool.call(asked)


def started(answer: str) -> str:
    assert answer.startswith("Started as "), answer
    return answer.split()[2].rstrip(".")


class TestTerminal:
    def test_in_the_foreground_the_output_is_the_answer(self, scene: Scene) -> None:
        answer = use(scene, "terminal", command="echo hello; exit 2")
        assert "exit code 2" in answer
        assert "```\nhello\n```" in answer
        assert scene.store.processes.find() == []
        scene.registry.look()
        assert scene.told() == []

    def test_what_takes_too_long_is_ended_and_said(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wait = scene.registry.wait

        def wait_when_it_has_written(process_id: str, *given: Any, **more: Any) -> ProcessStatus:
            scene.shows(process_id, "so far")  # however slowly it begins
            return wait(process_id, *given, **more)

        monkeypatch.setattr(scene.registry, "wait", wait_when_it_has_written)
        answer = use(scene, "terminal", command="echo so far; sleep 600", timeout=0.5)
        assert "so far" in answer
        assert "ended after 0.5 seconds" in answer
        assert scene.store.processes.find() == []

    def test_a_stopped_turn_ends_what_runs_in_the_foreground(self, scene: Scene) -> None:
        [terminal, _] = tools_for(scene.registry, ANA, scene.key, "owner")

        async def play() -> int:
            call = asyncio.ensure_future(terminal.call({"command": "sleep 600"}))
            find = scene.store.processes.find
            await comes(lambda: [one for one in find() if one.state == "running"], "it runs")
            [process] = scene.store.processes.find()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return process.pid

        pid = asyncio.run(play())
        until(lambda: supervisor.mark(pid) == "", "it is ended")
        assert scene.store.processes.find() == []

    def test_a_mistake_is_told_in_words(self, scene: Scene) -> None:
        answer = use(scene, "terminal", command="pwd", workdir="/etc")
        assert answer.startswith("Error: The folder '/etc' lies outside")


class TestProcess:
    def test_every_action(self, scene: Scene) -> None:
        process = started(
            use(scene, "terminal", command="read -p 'who? ' x; echo hi $x; read y", background=True,
                pty=True)
        )  # fmt: skip
        scene.shows(process, "who?")
        assert process in use(scene, "process", action="list")
        assert "who?" in use(scene, "process", action="poll", id=process)
        assert use(scene, "process", action="write", id=process, data="An") == "Written."
        assert use(scene, "process", action="submit", id=process, data="a") == "Written."
        scene.shows(process, "hi Ana")
        assert "hi Ana" in use(scene, "process", action="log", id=process)
        waited = use(scene, "process", action="wait", id=process, timeout=0.2)
        assert "After 0.2 seconds it is still running" in waited
        assert "ended by request" in use(scene, "process", action="kill", id=process)
        assert "ended by request" in use(scene, "process", action="wait", id=process)

    def test_pages_are_reached_by_what_the_answer_says(self, scene: Scene) -> None:
        process = started(use(scene, "terminal", command="seq 1 9000", background=True))
        scene.finished(process)
        last = use(scene, "process", action="log", id=process, limit=100)
        assert "9000" in last
        before = int(last.split("with before ")[1].split(";")[0])
        earlier = use(scene, "process", action="log", id=process, limit=100, before=before)
        assert "9000" not in earlier.splitlines()
        assert "8970" in earlier.splitlines()

    @pytest.mark.parametrize("action", [one for one in ACTIONS if one != "list"])
    def test_without_an_id_or_with_a_wrong_one(self, scene: Scene, action: str) -> None:
        assert "needs an id" in use(scene, "process", action=action)
        assert "no process 'p0'" in use(scene, "process", action=action, id="p0", data="x")

    def test_nothing_to_write(self, scene: Scene) -> None:
        process = started(use(scene, "terminal", command="sleep 600", background=True))
        assert "nothing to write" in use(scene, "process", action="write", id=process)

    def test_another_conversation_is_out_of_reach(self, scene: Scene) -> None:
        process = started(use(scene, "terminal", command="sleep 600", background=True))
        other = scene.store.sessions.open(BEN).key
        [_, tool] = tools_for(scene.registry, BEN, other, "owner")
        for action in ACTIONS:
            asked = {"action": action, "id": process, "data": "x"}
            answer = str(asyncio.run(called(tool, asked)))
            assert "no process" in answer or answer == "There are no programs."
        assert scene.registry.get(process).is_alive


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
    def test_who_has_the_tools(self, scene: Scene, allowed: Role, role: Role, count: int) -> None:
        registry = ProcessRegistry(
            scene.store, scene.registry._folder, rules=ProcessSettings(role=allowed)
        )
        assert len(tools_for(registry, ANA, scene.key, role)) == count

    def test_the_default_is_the_owner_alone(self) -> None:
        assert ProcessSettings().role == "owner"

    def test_the_gateway_gives_them_by_role(self, tmp_path: Path) -> None:
        """Ana is the owner, Ben is not; both write to one gateway."""
        offered: dict[str, list[str]] = {}

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            names = [tool.name for tool in request.tools]
            offered[request.text] = [name for name in names if name != "schedule"]
            for tool in request.tools:
                if tool.name == "terminal":
                    await tool.call({"command": "echo done", "background": True})
            yield Step("fine")

        async def play() -> list[str]:
            from tertulia import aio

            everyone = PlatformSettings(admission="everyone", owners=("42",))
            app = App()
            async with aio.open(tmp_path / "talk.db", settings=SETTINGS) as store:
                registry = ProcessRegistry(store.sync, tmp_path / "programs")
                gateway = Gateway(
                    store, Scripted(script), [app], processes=registry,
                    rules=GatewaySettings(platforms={"telegram": everyone}),
                )  # fmt: skip
                serving = asyncio.create_task(gateway.run())
                await app.get("I am Ana", ANA)
                await app.get("I am Ben", BEN)
                await comes(lambda: len(app.to(ANA)) > 1 and app.to(BEN), "both are answered")
                await app.get("/ps", ANA)
                await app.get("/ps", BEN)
                await comes(lambda: len(app.sent) > 4, "both have their lists")
                gateway.stop()
                await serving
            assert app.to(BEN) == ["fine", "No programs are running."]
            return app.to(ANA)

        told = asyncio.run(play())
        assert offered == {"I am Ana": ["terminal", "process"], "I am Ben": []}
        assert sum("has ended, exit code 0" in text for text in told) == 1
        assert "(echo done): ended, exit code 0" in told[-1]
        assert os.path.isdir(tmp_path / "programs" / "work")
