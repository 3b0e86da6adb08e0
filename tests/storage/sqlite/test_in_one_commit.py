"""Calls that share a commit: each fails alone, and no result is used before it is stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia import Settings, Source, Store, StoreError, StoreUnavailable, ToolCall
from tertulia.records.queues.inbox import CHANNEL
from tertulia.storage.base import Transaction
from tests.storage.disk import Disk, Step, fail
from tests.storage.inside import sqlite_of

ANA = Source("telegram", "42", user_id="42")
# The time limit for something that must happen, also on a busy machine.
TIMEOUT = 60.0


class Refused(Exception):
    pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        yield store


def put(store: Store, name: str) -> None:
    params = {"name": name, "value": "1"}
    sqlite_of(store).write(lambda tx: tx.run("installation_set", params))


def has(store: Store, name: str) -> bool:
    row = sqlite_of(store).read(lambda tx: tx.one("installation_get", {"name": name}))
    return row is not None


def refused(store: Store, name: str) -> None:
    def work(tx: Transaction) -> None:
        tx.run("installation_set", {"name": name, "value": "1"})
        raise Refused

    sqlite_of(store).write(work)


def test_call_sees_earlier_writes_that_other_handles_do_not_see(
    store: Store, tmp_path: Path
) -> None:
    visible: list[bool] = []

    def calls() -> None:
        put(store, "one")
        visible.append(has(store, "one"))
        with tertulia.open(tmp_path / "talk.db") as other:
            visible.append(has(other, "one"))

    store.in_one_commit(calls)
    assert visible == [True, False]
    assert has(store, "one")


def test_failing_call_fails_alone(store: Store) -> None:
    def calls() -> None:
        put(store, "one")
        with pytest.raises(Refused):
            refused(store, "two")
        damaged = {"name": "four", "value": None}
        with pytest.raises(StoreError):
            sqlite_of(store).write(lambda tx: tx.run("installation_set", damaged))
        put(store, "three")

    store.in_one_commit(calls)
    assert [has(store, name) for name in ("one", "two", "three")] == [True, False, True]


def test_failed_commit_stores_nothing(tmp_path: Path) -> None:
    def break_it(step: Step) -> None:
        if step.kind in ("write", "sync"):
            fail(step)

    with Disk() as disk, tertulia.open(tmp_path / "talk.db") as store:

        def calls() -> None:
            put(store, "one")
            disk.before = break_it

        with pytest.raises(StoreError):
            store.in_one_commit(calls)
        disk.before = lambda step: None
        assert not has(store, "one")
        put(store, "one")
        assert has(store, "one")


def test_notifications_are_sent_after_the_commit(store: Store) -> None:
    database = sqlite_of(store)
    before = database.notifications(CHANNEL)
    within: list[int] = []

    def calls() -> None:
        store.inbox.put(ANA, "hola", message_id="1")
        store.inbox.put(ANA, "hola", message_id="2")
        within.append(database.notifications(CHANNEL))

    store.in_one_commit(calls)
    assert within == [before]
    assert database.notifications(CHANNEL) == before + 1


def test_calls_run_once_in_their_own_thread(store: Store) -> None:
    """The calls keep state, so they run once, in the thread that passed them."""
    goes_on, begun = threading.Event(), threading.Event()
    threads: list[int] = []

    def slow(tx: Transaction) -> None:
        begun.set()
        goes_on.wait(TIMEOUT)

    leader = threading.Thread(target=sqlite_of(store).write, args=(slow,))
    leader.start()
    begun.wait(TIMEOUT)

    def calls() -> None:
        threads.append(threading.get_ident())
        put(store, "one")

    joined = threading.Thread(target=store.in_one_commit, args=(calls,))
    joined.start()
    goes_on.set()
    joined.join(TIMEOUT)
    leader.join(TIMEOUT)
    assert threads == [joined.ident]
    assert has(store, "one")


# -- from async code


def _holding(begun: asyncio.Event, goes_on: threading.Event) -> Callable[[], bool]:
    """Return a call that sets `begun` when it runs and ends when `goes_on` is set."""
    loop = asyncio.get_running_loop()

    def call() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return goes_on.wait(TIMEOUT)

    return call


def test_concurrent_async_calls_share_one_commit(tmp_path: Path) -> None:
    async def play() -> None:
        commits: list[int] = []
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            database = sqlite_of(store.sync)
            shared = database.in_one_commit

            def counted(calls: object) -> None:
                commits.append(1)
                shared(calls)  # type: ignore[arg-type]

            database.in_one_commit = counted  # type: ignore[method-assign]
            begun, goes_on = asyncio.Event(), threading.Event()
            first = asyncio.ensure_future(store.run_batched(_holding(begun, goes_on)))
            await asyncio.wait_for(begun.wait(), TIMEOUT)
            sources = [Source("telegram", f"{n}", user_id=f"{n}") for n in range(50)]
            puts = [
                asyncio.ensure_future(store.inbox.put(source, "hola", message_id="1"))
                for source in sources
            ]
            await asyncio.sleep(
                0
            )  # all are queued and wait for the first, which was started at once
            goes_on.set()
            assert await first
            assert len(await asyncio.gather(*puts)) == 50
            assert len(commits) == 2
            assert len(await store.inbox.claim(100)) == 50

    asyncio.run(play())


def test_call_cancelled_before_it_began_is_not_run(tmp_path: Path) -> None:
    async def play() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            begun, goes_on = asyncio.Event(), threading.Event()
            first = asyncio.ensure_future(store.run_batched(_holding(begun, goes_on)))
            await asyncio.wait_for(begun.wait(), TIMEOUT)
            second = asyncio.ensure_future(store.inbox.put(ANA, "hola", message_id="1"))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            goes_on.set()
            assert await first
            assert (await store.inbox.find()).items == ()

    asyncio.run(play())


def test_answer_whose_commit_failed_does_not_end_the_turn(tmp_path: Path) -> None:
    settings = Settings(zone="UTC", busy_seconds=0.1)

    async def play() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db", settings=settings) as store:
            async with store.turn(ANA, "hola", message_id="1") as turn:
                other = apsw.Connection(str(tmp_path / "talk.db"))
                other.set_busy_timeout(round(TIMEOUT * 1000))  # the indexer may be writing
                other.execute("begin immediate")
                with pytest.raises(StoreUnavailable):
                    await turn.add_assistant("¡hola!")
                other.execute("rollback")
                other.close()
                assert turn.answer is None
                await turn.add_assistant("¡hola!")
            async with store.turn(ANA, "hola", message_id="1") as again:
                assert (again.duplicate, again.answer) == (True, "¡hola!")

    asyncio.run(play())


def test_closed_store_raises(tmp_path: Path) -> None:
    async def play() -> None:
        store = await tertulia.aio.open(tmp_path / "talk.db")
        await store.close()
        for _ in range(2):
            with pytest.raises((StoreError, RuntimeError)):
                await store.inbox.put(ANA, "hola", message_id="1")

    asyncio.run(play())


def test_step_whose_commit_failed_can_be_repeated(tmp_path: Path) -> None:
    """The call itself had run: its state must be undone as the database undid its writes."""

    async def play() -> None:
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

    asyncio.run(play())
