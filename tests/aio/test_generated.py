"""The generated async records: same as the script writes, and they behave like the sync ones."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

import tertulia
from tertulia import NotFound, Source, Usage

ROOT = Path(__file__).parent.parent.parent


def test_file_is_what_the_script_generates() -> None:
    spec = importlib.util.spec_from_file_location("make_aio", ROOT / "scripts/make_aio.py")
    assert spec is not None
    assert spec.loader is not None
    make_aio = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_aio)
    text = (ROOT / "src/tertulia/aio/_generated.py").read_text("utf-8")
    assert text == make_aio.generate(), "run: python scripts/make_aio.py"


def test_aio_exports_every_name_of_the_sync_api() -> None:
    async_classes = {"Store", "Turn"}
    for name in tertulia.__all__:
        is_same = getattr(tertulia.aio, name) is getattr(tertulia, name)
        assert is_same == (name not in async_classes), name
    assert set(tertulia.__all__) <= set(tertulia.aio.__all__)


def test_records_can_be_awaited(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            session = await store.sessions.open(Source("telegram", "42", user_id="42"))
            transcript = store.transcript(session.id)
            await transcript.extend(
                [{"role": "user", "content": "hola"}, {"role": "assistant", "content": "¡hola!"}],
                usage=Usage(3, 2, cost_usd=0.5),
            )
            assert await transcript.load() == [
                {"role": "user", "content": "hola"},
                {"role": "assistant", "content": "¡hola!"},
            ]
            assert (await store.usage.sum("session"))[session.id].cost_usd == 0.5
            assert [hit.seq for hit in (await store.search("hola")).items] != []
            with pytest.raises(NotFound):
                await store.sessions.require("nobody")

    asyncio.run(scenario())


def test_many_tasks_on_one_session_lose_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            source = Source("telegram", "42", user_id="42")
            sessions = await asyncio.gather(*(store.sessions.open(source) for _ in range(40)))
            assert len({session.id for session in sessions}) == 1
            transcript = store.transcript(sessions[0].id)
            await asyncio.gather(
                *(transcript.append({"role": "user", "content": str(n)}) for n in range(200))
            )
            contents = {message["content"] for message in await transcript.load()}
            assert contents == {str(n) for n in range(200)}

    asyncio.run(scenario())


def test_cancelled_call_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            session = await store.sessions.open(Source("telegram", "42"))
            transcript = store.transcript(session.id)
            pair = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            tasks = [asyncio.create_task(transcript.extend(pair)) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            contents = [message["content"] for message in await transcript.load()]
            assert contents == ["a", "b"] * (len(contents) // 2)
            assert len(contents) >= 2 * len(tasks[1::2])

    asyncio.run(scenario())
