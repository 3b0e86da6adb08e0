"""On every road to the agent it has the tools that the role of who asks allows, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from tertulia import Store
from tertulia.agents.base import Event, Request, Step
from tertulia.gateway.settings import PlatformSettings
from tests.gateway.scene import ANA, Scripted, rules
from tests.gateway.scene import running_gateway as gateway
from tests.http.scene import served_gateway as server
from tests.processes.scene import comes, until

PROGRAM = "echo done"


async def starts(request: Request) -> AsyncGenerator[Event, None]:
    """Starts a program where it may, and says which tools it has."""
    for tool in request.tools:
        if tool.name == "terminal":
            await tool.call({"command": PROGRAM, "background": True})
    yield Step(" ".join(sorted(tool.name for tool in request.tools)) or "nothing")


def test_over_http_the_role_of_the_token_decides(tmp_path: Path) -> None:
    with server(
        tmp_path / "talk.db", agent=Scripted(starts), programs=tmp_path / "programs"
    ) as served_gateway:
        found = {}
        for name in ("root", "ana", "eve"):
            with served_gateway.client(name) as client:
                found[name] = client.post("/turns", json={"text": "go"}).json()["text"]
        asked = {"model": "x", "messages": [{"role": "user", "content": "go"}]}
        with served_gateway.client("root") as client:
            told = client.post("/v1/chat/completions", json=asked).json()
        assert told["choices"][0]["message"]["content"] == "process schedule terminal"
        assert found == {
            "root": "process schedule terminal",
            "ana": "schedule",
            "eve": "nothing",
        }
        with served_gateway.store() as store:
            until(lambda: all(not one.is_alive for one in store.processes.find()), "they ended")
            _told_in_the_conversation(store)


def _told_in_the_conversation(store: Store) -> None:
    """Whoever asks over HTTP can be sent nothing: the news wait in the transcript."""
    assert store.outbox.find().items == ()
    programs = store.processes.find()
    assert len(programs) == 2
    for program in programs:
        session = store.sessions.current(program.key)
        assert session is not None
        said = [str(one.get("content")) for one in store.transcript(session.id).load()]
        wanted = f"{program.id} ({PROGRAM}) has ended, exit code 0"
        assert sum(wanted in text for text in said) == 1


def test_tools_of_the_caller_stand_alone(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    asked = {"model": "x", "messages": [{"role": "user", "content": "go"}], "tools": [tool]}
    with server(
        tmp_path / "talk.db", agent=Scripted(starts), programs=tmp_path / "programs"
    ) as served_gateway:
        with served_gateway.client("root") as client:
            told = client.post("/v1/chat/completions", json=asked).json()
        assert told["choices"][0]["message"]["content"] == "mine"
        with served_gateway.store() as store:
            assert store.processes.find() == []


def test_a_scheduled_run_tells_the_chat_of_its_schedule(where: str, tmp_path: Path) -> None:
    owners = rules(platforms={"telegram": PlatformSettings(owners=("42",))})

    async def play() -> None:
        async with gateway(
            where, Scripted(starts), rules=owners, programs=tmp_path / "programs"
        ) as node:
            made = await node.store.schedules.create(ANA, "every 2h", "go")
            await node.store.schedules.run_now(made.id)
            await comes(lambda: len(node.app.to(ANA)) > 1, "the result and the news came")
            parcels = (await node.store.outbox.find()).items
            assert {parcel.thread_id for parcel in parcels} == {ANA.thread_id}
            assert "process terminal" in node.app.to(ANA)
            assert sum("has ended, exit code 0" in text for text in node.app.to(ANA)) == 1

    asyncio.run(play())
