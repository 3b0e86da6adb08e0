"""The process tools in turns over HTTP and in scheduled runs, by the role of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from tertulia import Store
from tertulia.agents.base import Event, Request, Step
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import ANA, TERMINAL_ALLOWED, Scripted, rules
from tests.gateway.running_gateway import running_gateway as gateway
from tests.http.served_gateway import EVERYONE
from tests.http.served_gateway import served_gateway as server
from tests.processes.process_fixtures import wait_until, wait_until_async

PROGRAM = "echo done"


async def start_program(request: Request) -> AsyncGenerator[Event, None]:
    """Start a program if the tools allow it, and answer with the names of the tools."""
    for tool in request.tools:
        if tool.name == "terminal":
            await tool.call({"command": PROGRAM, "background": True})
    yield Step(" ".join(sorted(tool.name for tool in request.tools)) or "nothing")


def test_role_of_the_token_decides_over_http(tmp_path: Path) -> None:
    with server(
        tmp_path / "talk.db",
        agent=Scripted(start_program),
        programs=tmp_path / "programs",
        rules=msgspec.structs.replace(EVERYONE, approvals=TERMINAL_ALLOWED),
    ) as served_gateway:
        texts = {}
        for name in ("root", "ana", "eve"):
            with served_gateway.client(name) as client:
                texts[name] = client.post("/turns", json={"text": "go"}).json()["text"]
        body = {"messages": [{"role": "user", "content": "go"}]}
        with served_gateway.client("root") as client:
            completion = client.post("/v1/chat/completions", json=body).json()
        assert completion["choices"][0]["message"]["content"] == "memory process schedule terminal"
        assert texts == {
            "root": "memory process schedule terminal",
            "ana": "memory schedule",
            "eve": "nothing",
        }
        with served_gateway.store() as store:
            wait_until(
                lambda: all(not item.is_alive for item in store.processes.find()), "they ended"
            )
            assert_notices_in_transcript(store)


def assert_notices_in_transcript(store: Store) -> None:
    """Nothing can be sent to an HTTP client: the notices are only in the transcript."""
    assert store.outbox.find().items == ()
    programs = store.processes.find()
    assert len(programs) == 2
    for program in programs:
        session = store.sessions.current(program.key)
        assert session is not None
        contents = [str(item.get("content")) for item in store.transcript(session.id).load()]
        notice = f"{program.id} ({PROGRAM}) has ended, exit code 0"
        assert sum(notice in text for text in contents) == 1


def test_tools_of_the_caller_replace_ours(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "go"}], "tools": [tool]}
    with server(
        tmp_path / "talk.db", agent=Scripted(start_program), programs=tmp_path / "programs"
    ) as served_gateway:
        with served_gateway.client("root") as client:
            completion = client.post("/v1/chat/completions", json=body).json()
        assert completion["choices"][0]["message"]["content"] == "mine"
        with served_gateway.store() as store:
            assert store.processes.find() == []


def test_scheduled_run_reports_to_the_chat_of_its_schedule(where: str, tmp_path: Path) -> None:
    owners = rules(
        platforms={"telegram": PlatformSettings(owners=("42",))}, approvals=TERMINAL_ALLOWED
    )

    async def play() -> None:
        async with gateway(
            where, Scripted(start_program), rules=owners, programs=tmp_path / "programs"
        ) as node:
            schedule = await node.store.schedules.create(ANA, "every 2h", "go")
            await node.store.schedules.run_now(schedule.id)
            await wait_until_async(
                lambda: len(node.app.to(ANA)) > 1, "the result and the notice arrived"
            )
            deliveries = (await node.store.outbox.find()).items
            assert {delivery.thread_id for delivery in deliveries} == {ANA.thread_id}
            assert "process terminal" in node.app.to(ANA)
            assert sum("has ended, exit code 0" in text for text in node.app.to(ANA)) == 1

    asyncio.run(play())
