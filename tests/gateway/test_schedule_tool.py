"""Planning in a chat: the command, the agent's tool, and who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia.agents.base import Event, Request, Step
from tertulia.gateway import schedule_tool
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import ANA, BEN, FAST, Echo, Scripted, rules, running_gateway

MEMBERS = rules(platforms={"telegram": PlatformSettings(allow=("42", "43"), owners=("7",))})
OWNERS = rules(platforms={"telegram": PlatformSettings(owners=("42",), allow=("43",))})


class TestCommand:
    def test_adds_lists_pauses_resumes_runs_and_removes(self, where: str) -> None:
        async def play() -> None:
            async with running_gateway(where, Echo(), rules=MEMBERS) as node:
                assert (await node.hears("/schedule")).startswith("Nothing is planned.")
                added = await node.hears("/schedule add every 2h: look at the mail: twice")
                assert added.startswith("Planned: 1. every 2h, next ")
                assert added.endswith(": look at the mail: twice")
                assert "1. every 2h, next" in await node.hears("/schedule list")
                assert "every 2h, paused" in await node.hears("/schedule pause 1")
                assert "every 2h, next" in await node.hears("/schedule resume 1")
                # What it says may come before the reply to the command, or after it.
                assert "Schedule 1 runs now." in await node.say("/schedule run 1")
                wanted = "re [Scheduled task 1] look at the mail: twice"
                await node.until(
                    lambda: any(text.startswith(wanted) for text in node.app.to(ANA)), "it ran"
                )
                assert await node.hears("/schedule remove 1") == "Schedule 1 is removed."
                assert (await node.hears("/schedule")).startswith("Nothing is planned.")

        asyncio.run(play())

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ("dance", "/schedule has no action 'dance'"),
            ("add every 2h look", "a colon, a space and a task"),
            ("add sometimes: look", "Invalid schedule"),
            ("add at 09:00 : ", "a colon, a space and a task"),
            ("pause", "not the number of a schedule"),
            ("pause one", "not the number of a schedule"),
            ("remove 99", "There is no schedule 99"),
            ("run 999999999999", "There is no schedule"),
        ],
    )
    def test_invalid_command_is_reported(self, tmp_path: Path, words: str, told: str) -> None:
        async def play() -> None:
            async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=MEMBERS) as node:
                assert told in await node.hears(f"/schedule {words}")
                assert (await node.store.schedules.find()).items == ()

        asyncio.run(play())

    def test_guest_cannot_create_schedules(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with running_gateway(str(tmp_path / "talk.db"), Echo()) as node:
                assert "needs the role member" in await node.hears("/schedule add every 2h: look")
                assert (await node.store.schedules.find()).items == ()

        asyncio.run(play())

    def test_schedules_of_others_cannot_be_changed(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=MEMBERS) as node:
                await node.hears("/schedule add every 2h: look", ANA)
                assert (await node.hears("/schedule", BEN)).startswith("Nothing is planned.")
                for act in ("pause", "resume", "remove", "run"):
                    told = await node.hears(f"/schedule {act} 1", BEN)
                    assert told.startswith("There is no schedule 1.")
                assert len((await node.store.schedules.find(by=ANA)).items) == 1

        asyncio.run(play())

    def test_only_the_owner_chooses_another_target(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=OWNERS) as node:
                words = "/schedule add at 09:00 to telegram:43 here: look"
                assert "Only the owner" in await node.hears(words, BEN)
                assert "to telegram:43" in await node.hears(words, ANA)
                (made,) = (await node.store.schedules.find()).items
                assert (made.target, made.session, made.task) == ("telegram:43", "origin", "look")

        asyncio.run(play())

    def test_number_of_schedules_is_limited(self, tmp_path: Path) -> None:
        with tertulia.open(tmp_path / "talk.db", settings=FAST) as store:
            for _ in range(schedule_tool.MAX_SCHEDULES):
                schedule_tool.add(store, ANA, "member", "every 2h", "look")
            with pytest.raises(tertulia.Error, match="already"):
                schedule_tool.add(store, ANA, "member", "every 2h", "look")
            schedule_tool.add(store, BEN, "member", "every 2h", "look")


class TestTool:
    def asked(self, *calls: dict[str, Any]) -> Scripted:
        """An agent that makes these calls, and answers with what came of them."""

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            found = {tool.name: tool for tool in request.tools}
            if "schedule" not in found:
                yield Step("I have no such tool.")
                return
            results = [str(await found["schedule"].call(arguments)) for arguments in calls]
            yield Step("\n".join(results))

        return Scripted(script)

    def test_agent_creates_schedules_for_the_person_it_answers(self, where: str) -> None:
        async def play() -> None:
            agent = self.asked(
                {"action": "add", "when": "every 2h", "task": "look"},
                {"action": "pause", "id": 1},
                {"action": "list"},
            )
            async with running_gateway(where, agent, rules=MEMBERS) as node:
                added, paused, listed = (await node.hears("plan it")).splitlines()
                assert added.startswith("Planned: 1. every 2h")
                assert paused == "Paused: 1. every 2h, paused: look"
                assert listed == "1. every 2h, paused: look"
                (made,) = (await node.store.schedules.find(by=ANA)).items
                assert made.origin.chat_id == ANA.chat_id

        asyncio.run(play())

    def test_tool_is_not_offered_to_guests_nor_to_scheduled_runs(self, tmp_path: Path) -> None:
        async def play() -> None:
            agent = self.asked({"action": "list"})
            async with running_gateway(str(tmp_path / "talk.db"), agent) as node:
                assert await node.hears("plan it") == "I have no such tool."
            async with running_gateway(str(tmp_path / "talk.db"), agent, rules=MEMBERS) as node:
                made = await node.store.schedules.create(ANA, "every 2h", "plan more")
                await node.store.schedules.run_now(made.id)
                await node.until(lambda: node.app.to(ANA), "it ran")
                assert node.app.to(ANA) == ["I have no such tool."]

        asyncio.run(play())

    def test_denied_tool_call_returns_a_readable_error(self, tmp_path: Path) -> None:
        with tertulia.open(tmp_path / "talk.db", settings=FAST) as store:
            for arguments in (
                {"action": "add", "when": "every 2h", "task": "look", "target": "telegram:43"},
                {"action": "add", "when": "whenever", "task": "look"},
                {"action": "add"},
                {"action": "remove"},
                {"action": "remove", "id": 5},
            ):
                with pytest.raises(tertulia.Error):
                    schedule_tool._run_tool(store, ANA, "member", arguments)
            assert store.schedules.find().items == ()

    def test_parameters_are_a_strict_schema(self) -> None:
        from tertulia.agents import json_schema

        assert json_schema.find_violations(schedule_tool._PARAMETERS, {"action": "list"}) == []
        assert json_schema.find_violations(schedule_tool._PARAMETERS, {"action": "dance"})
        assert json_schema.find_violations(
            schedule_tool._PARAMETERS, {"action": "pause", "id": "one"}
        )
