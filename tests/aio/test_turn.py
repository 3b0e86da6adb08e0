"""The async turn: state after failed commits, waiting, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia import SessionBusy, Settings, Source, StoreError, StoreUnavailable, ToolCall
from tests.storage.store_internals import sqlite_of

ANA = Source("telegram", "42", user_id="42")
# The longest wait for an event that must come, on a machine under any load.
PATIENCE = 60.0


def test_turn_stays_open_if_the_commit_of_its_answer_fails(tmp_path: Path) -> None:
    settings = Settings(zone="UTC", busy_seconds=0.1)

    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db", settings=settings) as store:
            async with store.turn(ANA, "hola", message_id="1") as turn:
                other = apsw.Connection(str(tmp_path / "talk.db"))
                other.set_busy_timeout(round(PATIENCE * 1000))  # the indexer may be writing
                other.execute("begin immediate")
                with pytest.raises(StoreUnavailable):
                    await turn.add_assistant("¡hola!")
                other.execute("rollback")
                other.close()
                assert turn.answer is None
                await turn.add_assistant("¡hola!")
            async with store.turn(ANA, "hola", message_id="1") as again:
                assert (again.duplicate, again.answer) == (True, "¡hola!")

    asyncio.run(scenario())


def test_step_can_be_repeated_if_its_commit_failed(tmp_path: Path) -> None:
    """The call itself has run: the turn must undo its own state as the database did."""

    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            store.sync._indexer.stop()
            refusals: list[bool] = []  # each turns a commit into a rollback
            writer = sqlite_of(store.sync)._writer
            writer.set_commit_hook(lambda: bool(refusals and refusals.pop()))

            async def twice(step: Callable[[], Awaitable[object]]) -> None:
                refusals.append(True)
                with pytest.raises(StoreError):
                    await step()
                await step()

            async with store.turn(ANA, "look", message_id="1") as turn:
                calls = [ToolCall("c1", "look")]
                await twice(lambda: turn.add_assistant(None, tool_calls=calls))
                await twice(lambda: turn.add_tool_result("c1", "blue"))
                await twice(lambda: turn.add_assistant("Blue."))
                assert turn.answer == "Blue."
            assert refusals == []
            rows = await store.transcript(turn.session.id).load()
            assert [row["content"] for row in rows] == ["look", None, "blue", "Blue."]

    asyncio.run(scenario())


def test_second_turn_enters_when_the_first_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:

            async def answer() -> None:
                async with store.turn(ANA, "two", wait=PATIENCE) as turn:
                    await turn.add_assistant("2")

            async with store.turn(ANA, "one") as turn:
                second = asyncio.ensure_future(answer())
                await asyncio.sleep(0.1)
                assert not second.done()
                await turn.add_assistant("1")
            await asyncio.wait_for(second, PATIENCE)
            messages = await store.transcript(turn.session.id).load()
            assert [message["content"] for message in messages] == ["one", "1", "two", "2"]

    asyncio.run(scenario())


def test_waiting_turn_raises_session_busy_after_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            tertulia.aio.open(tmp_path / "talk.db") as store,
            store.turn(ANA, "one") as turn,
        ):
            with pytest.raises(SessionBusy):
                async with store.turn(ANA, "two", wait=0.05):
                    pass
            await turn.add_assistant("1")

    asyncio.run(scenario())


def test_cancelled_waiting_turn_leaves_the_session_free(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:

            async def wait_to_enter() -> None:
                async with store.turn(ANA, "two", wait=PATIENCE):
                    pass

            async with store.turn(ANA, "one") as turn:
                waiting = asyncio.ensure_future(wait_to_enter())
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await turn.add_assistant("1")
            async with store.turn(ANA, "three", wait=0) as turn:
                await turn.add_assistant("3")
            messages = await store.transcript(turn.session.id).load()
            assert [message["content"] for message in messages] == ["one", "1", "three", "3"]

    asyncio.run(scenario())


def test_turn_in_a_store_that_is_closed_meanwhile_raises_and_blocks_nobody(where: str) -> None:
    async def scenario() -> None:
        store = await tertulia.aio.open(where)
        async with store.turn(ANA, "hola") as turn:
            await store.close()
            with pytest.raises(StoreError, match="The store is closed"):
                await turn.add_assistant("too late")
        async with tertulia.aio.open(where) as again, again.turn(ANA, "hola?", wait=0) as turn:
            await turn.add_assistant("¡hola!")

    asyncio.run(scenario())
