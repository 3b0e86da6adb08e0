"""Schedules at work: every target, every wrong target, and every end a run can have."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from tertulia import HomeChannel, Source
from tertulia.agents.base import Event, Request, Step
from tertulia.core.text.time_head import format_local_time
from tertulia.errors import AgentFailed, AgentUnavailable, Refused
from tertulia.platforms.base import Outgoing
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import Role
from tertulia.records.schedules import Schedule, ScheduleRun
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import (
    ANA,
    BEN,
    CARA,
    FAST,
    OPEN,
    App,
    BreakableCheck,
    Echo,
    RunningGateway,
    Scripted,
    rules,
    running_gateway,
)

HOMES = msgspec.structs.replace(FAST, homes={"signal": HomeChannel("77")})
TASK = "look at the mail"
# Ana may choose targets.
OWNED = rules(
    platforms={
        "telegram": PlatformSettings(admission="everyone", owners=("42",)), "signal": OPEN
    }
)  # fmt: skip


@asynccontextmanager
async def home(where: str, tmp_path: Path, **given: object) -> AsyncIterator[RunningGateway]:
    given.setdefault("agent", Echo())
    given.setdefault("settings", HOMES)
    given.setdefault("rules", OWNED)
    given.setdefault("apps", [App(), App("signal")])
    async with running_gateway(where, folder=str(tmp_path / "kept"), **given) as node:  # type: ignore[arg-type]
        yield node


async def ran(node: RunningGateway, schedule: Schedule, *states: str) -> ScheduleRun:
    """The newest run, once it has come to its end."""

    seen: list[ScheduleRun] = []

    async def is_there() -> bool:
        found = (await node.store.schedules.history(schedule.id, limit=1)).items
        seen.extend(run for run in found if run.state in (states or ("done", "failed")))
        return bool(seen)

    await node.until(is_there, "the run has ended")
    return seen[0]


async def made(
    node: RunningGateway, target: str = "origin", who: Source = ANA, **given: str
) -> Schedule:
    schedule = await node.store.schedules.create(who, "every 2h", TASK, target=target, **given)  # type: ignore[arg-type]
    await node.store.schedules.run_now(schedule.id)
    return schedule


def kept(tmp_path: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(tmp_path.rglob("kept/**/*.md"))}


# -- every target


def test_due_schedule_runs_and_answers_in_its_chat(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        clock = FakeClock()
        async with home(where, tmp_path, clock=clock) as node:
            schedule = await node.store.schedules.create(ANA, "every 2h", TASK)
            said: list[str] = []
            for _ in range(2):
                clock.forward(hours=2)
                time = format_local_time(clock.now(), UTC)
                said.append(
                    f"re [Scheduled task {schedule.id}] {TASK}\n"
                    f"[Planned for {time}, started at {time}]"
                )
                await node.until(lambda: node.app.to(ANA) == said, "it has answered")
                assert (await ran(node, schedule)).planned_at == clock.now()
            # Who is answered then knows what was said.
            assert await node.told() == said
            await node.hears("what was that?")
            assert node.gateway.agent.histories[-1][-2]["content"].endswith(said[-1])  # type: ignore[attr-defined]

    asyncio.run(play())


def test_own_session_continues_from_run_to_run(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            await node.hears("hello")
            schedule = await made(node)
            first = await ran(node, schedule)
            await node.store.schedules.run_now(schedule.id)
            await node.until(lambda: len(node.app.to(ANA)) == 3, "it ran again")
            second = await ran(node, schedule)
            assert first.session_id == second.session_id != (await node.session()).id
            assert len(node.gateway.agent.histories[-1]) == 3  # type: ignore[attr-defined]
            session = await node.store.sessions.require(first.session_id or "")
            # It is the same person's: what it costs counts for them.
            assert session.key != (await node.session()).key
            visible = await node.store.for_person(ANA).find()
            assert session.id in [one.id for one in visible.items]

    asyncio.run(play())


def test_run_in_the_session_of_its_origin(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            await node.hears("hello")
            schedule = await made(node, session="origin")
            run = await ran(node, schedule)
            assert run.session_id == (await node.session()).id
            hello, answer, task, result = await node.told()
            assert (hello, answer) == ("hello", "re hello")
            assert task.startswith(f"[Scheduled task {schedule.id}] {TASK}\n[Planned for ")
            assert node.app.to(ANA)[-1] == result == f"re {task}"

    asyncio.run(play())


def test_local_target_is_a_private_dated_file(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            run = await ran(node, await made(node, "local"))
            ((path, text),) = kept(tmp_path).items()
            assert text == run.result
            assert text.startswith(f"re [Scheduled task {run.schedule.id}] {TASK}\n[Planned for ")
            assert f"{run.planned_at:%Y-%m-%dT%H-%M}" in os.path.basename(path)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            assert node.app.sent == node.apps["signal"].sent == []

    asyncio.run(play())


@pytest.mark.parametrize("target", ["signal", "signal:77"])
def test_home_and_chat_targets_get_the_result_in_their_transcript(
    where: str, tmp_path: Path, target: str
) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            run = await ran(node, await made(node, target))
            assert node.apps["signal"].to(CARA) == [run.result]
            assert node.app.sent == []
            await node.hears("what was that?", CARA)
            assert await node.told(CARA) == [run.result, "what was that?", "re what was that?"]

    asyncio.run(play())


# -- every wrong target


@pytest.mark.parametrize(
    ("target", "reason"),
    [("discord", "not connected"), ("discord:9", "not connected"), ("telegram", "no home")],
)
def test_undeliverable_result_is_kept_and_its_creator_is_told(
    where: str, tmp_path: Path, target: str, reason: str
) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            run = await ran(node, await made(node, target))
            await node.quiet()
            assert list(kept(tmp_path).values()) == [run.result]
            assert reason in (run.problem or "")
            (told,) = node.app.to(ANA)
            assert told.startswith(f"The result of task {run.schedule.id} could not be delivered")
            assert TASK not in told
            assert (len(node.app.sent), node.apps["signal"].sent) == (1, [])

    asyncio.run(play())


def test_platform_that_is_no_longer_connected(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            schedule = await node.store.schedules.create(ANA, "every 2h", TASK, target="signal:1")
            await node.store.schedules.pause(schedule.id)
        async with home(where, tmp_path, apps=[App()]) as node:
            await node.store.schedules.run_now(schedule.id)
            assert "not connected" in ((await ran(node, schedule)).problem or "")
            assert len(kept(tmp_path)) == 1

    asyncio.run(play())


def test_chat_that_refuses_the_bot(where: str, tmp_path: Path) -> None:
    async def refuse(message: Outgoing) -> None:
        raise Refused("The bot was blocked.")

    async def play() -> None:
        apps = [App(), App("signal")]
        apps[1].on_send = refuse
        async with home(where, tmp_path, apps=apps) as node:
            run = await ran(node, await made(node, "signal:77"))
            await node.quiet()
            assert list(kept(tmp_path).values()) == [run.result]
            assert "The bot was blocked." in (run.problem or "")
            (told,) = node.app.to(ANA)
            assert "could not be delivered to signal:77" in told
            assert apps[1].sent == []

    asyncio.run(play())


def test_origin_that_refuses_the_bot_is_told_nothing(where: str, tmp_path: Path) -> None:
    tries = []

    async def refuse(message: Outgoing) -> None:
        tries.append(message)
        raise Refused("The bot was blocked.")

    async def play() -> None:
        apps = [App(), App("signal")]
        apps[0].on_send = refuse
        async with home(where, tmp_path, apps=apps) as node:
            run = await ran(node, await made(node))
            await node.quiet()
            assert list(kept(tmp_path).values()) == [run.result]
            assert (len(tries), apps[1].sent) == (1, [])

    asyncio.run(play())


@pytest.mark.parametrize("target", ["origin", "telegram:43"])
def test_result_is_kept_if_the_process_check_of_its_target_fails(
    where: str, tmp_path: Path, target: str
) -> None:
    check = BreakableCheck()

    async def play() -> None:
        clock = FakeClock()
        settings = msgspec.structs.replace(HOMES, has_active_processes=check)
        async with home(where, tmp_path, settings=settings, clock=clock) as node:
            for person in (ANA, BEN):
                await node.hears("hello", person)
            clock.forward(hours=48)
            check.is_broken = True
            run = await ran(node, await made(node, target))
            check.is_broken = False
            assert run.state == "done"
            assert TASK in (run.result or "")
            assert "Whether the conversation has running programs" in (run.problem or "")
            assert "secret" not in (run.problem or "")
        assert len(kept(tmp_path)) == 1

    asyncio.run(play())


def test_unwritable_folder_leaves_the_result_in_the_history(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        (tmp_path / "kept").write_text("a file where a folder should be")
        async with home(where, tmp_path) as node:
            run = await ran(node, await made(node, "telegram"))
            assert "history of its runs" in (run.problem or "")
            assert run.result is not None

    asyncio.run(play())


# -- every end


def _failing(problems: list[Exception]) -> Scripted:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        if problems:
            raise problems.pop(0)
        yield Step("at last")

    return Scripted(script)


def test_unavailable_agent_is_tried_again(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        clock = FakeClock()
        agent = _failing([AgentUnavailable("no network")])
        async with home(where, tmp_path, agent=agent, clock=clock) as node:
            schedule = await made(node)
            await ran(node, schedule, "waiting")
            await node.until(lambda: len(agent.requests) == 1, "it was tried")
            await ran(node, schedule, "waiting")
            clock.forward(minutes=1)
            run = await ran(node, schedule)
            assert (run.state, run.result) == ("done", "at last")
            assert node.app.to(ANA) == ["at last"]

    asyncio.run(play())


@pytest.mark.parametrize("problem", [AgentFailed("secret key sk-1"), RuntimeError("a bug")])
def test_agent_failure_is_reported_to_the_creator(
    where: str, tmp_path: Path, problem: Exception
) -> None:
    async def play() -> None:
        async with home(where, tmp_path, agent=_failing([problem])) as node:
            schedule = await made(node)
            run = await ran(node, schedule)
            await node.quiet()
            assert run.state == "failed"
            (told,) = node.app.to(ANA)
            assert f"Task {schedule.id} could not be run" in told
            assert "sk-1" not in told

    asyncio.run(play())


def test_empty_answer_is_not_delivered(where: str, tmp_path: Path) -> None:
    async def silent(request: Request) -> AsyncGenerator[Event, None]:
        yield Step("  ")

    async def play() -> None:
        async with home(where, tmp_path, agent=Scripted(silent)) as node:
            run = await ran(node, await made(node))
            assert (run.state, node.app.sent) == ("done", [])

    asyncio.run(play())


def test_schedule_of_a_denied_person_does_not_run(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        closed = rules(platforms={"telegram": PlatformSettings(allow=("42",)), "signal": OPEN})
        agent = Echo()
        async with home(where, tmp_path, agent=agent, rules=closed) as node:
            assert (await ran(node, await made(node, who=ANA))).state == "done"
            run = await ran(node, await made(node, who=BEN))
            assert (run.state, len(agent.asked)) == ("failed", 1)
            assert node.app.to(BEN) == []

    asyncio.run(play())


def offered(request: Request) -> str:
    return " ".join(sorted(tool.name for tool in request.tools)) or "nothing"


@pytest.mark.parametrize(
    ("tokens", "outcome"),
    [
        ({"eve": "owner"}, "process terminal"),
        ({"eve": "member"}, "nothing"),
        ({"eve": "guest"}, "failed"),
        ({}, "failed"),
        ({"mallory": "owner"}, "failed"),
    ],
)
def test_role_of_a_token_is_read_from_the_configuration_at_each_run(
    where: str, tmp_path: Path, tokens: dict[str, Role], outcome: str
) -> None:
    """Whatever the store says: an older version wrote the role of a token there."""
    eve = Source("api", "schedules", account="eve", user_id="eve")

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(offered(request))

    async def play() -> None:
        async with home(
            where, tmp_path, agent=Scripted(script), rules=rules(token_roles=tokens),
            programs=tmp_path / "programs",
        ) as node:  # fmt: skip
            await node.store.people.remember(eve, role="owner")
            run = await ran(node, await made(node, who=eve))
            if outcome == "failed":
                assert (run.state, run.result) == ("failed", None)
                assert "may no longer write" in (run.problem or "")
            else:
                assert run.result == outcome

    asyncio.run(play())


def test_schedule_of_a_removed_token_does_not_run_where_everybody_may_write(
    where: str, tmp_path: Path
) -> None:
    eve = Source("api", "schedules", account="eve", user_id="eve")
    anybody = {"api": PlatformSettings(admission="everyone")}

    async def play() -> None:
        for tokens, state in (({"eve": "guest"}, "done"), ({"mallory": "guest"}, "failed")):
            settings = rules(token_roles=tokens, platforms=anybody)
            async with home(where, tmp_path, rules=settings) as node:
                assert (await ran(node, await made(node, who=eve))).state == state

    asyncio.run(play())


def test_foreign_target_is_refused_once_its_creator_is_no_owner(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with home(where, tmp_path) as node:
            schedule = await made(node, "signal:77")
            assert (await ran(node, schedule, "done", "failed")).state == "done"
            assert len(node.apps["signal"].to(CARA)) == 1
        agent = Echo()
        async with home(where, tmp_path, agent=agent, rules=rules()) as node:
            await node.store.schedules.run_now(schedule.id)

            async def has_failed() -> bool:
                newest, *_ = (await node.store.schedules.history(schedule.id)).items
                return newest.state == "failed"

            await node.until(has_failed, "the run is refused")
            newest, *_ = (await node.store.schedules.history(schedule.id)).items
            assert "Only an owner may have results sent" in (newest.problem or "")
            assert agent.asked == []
            assert node.apps["signal"].to(CARA) == []

    asyncio.run(play())


def test_run_cancelled_by_a_stop_continues_on_the_next_node(where: str, tmp_path: Path) -> None:
    async def hang(request: Request) -> AsyncGenerator[Event, None]:
        await asyncio.Event().wait()
        yield Step("never")

    async def play() -> None:
        agent = Scripted(hang)
        async with home(where, tmp_path, agent=agent, rules=rules(drain_seconds=0)) as node:
            schedule = await made(node)
            await node.until(lambda: agent.requests, "it is under way")
        async with home(where, tmp_path) as node:
            run = await ran(node, schedule)
            assert (run.state, run.attempts) == ("done", 2)
            assert len(node.app.to(ANA)) == 1

    asyncio.run(play())
