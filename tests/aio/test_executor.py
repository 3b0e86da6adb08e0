"""Calls that share a commit: each fails alone, and no result is returned before the commit.

On PostgreSQL they share threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Source, Store, StoreError
from tertulia.aio import executor
from tertulia.records.queues.inbox import CHANNEL
from tertulia.storage.base import Transaction
from tests.servers.postgres import Server
from tests.servers.proxy import proxy
from tests.storage.store_internals import sqlite_of
from tests.storage.watched_disk import Disk, Step, fail

ANA = Source("telegram", "42", user_id="42")
# The longest wait for an event that must come, on a machine under any load.
PATIENCE = 60.0


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


def put_and_fail(store: Store, name: str) -> None:
    def work(tx: Transaction) -> None:
        tx.run("installation_set", {"name": name, "value": "1"})
        raise Refused

    sqlite_of(store).write(work)


def test_call_is_prepared_before_the_transaction_begins(tmp_path: Path) -> None:
    settings = Settings(zone="UTC", busy_seconds=0.1)
    path = tmp_path / "talk.db"

    async def scenario() -> None:
        async with tertulia.aio.open(path, settings=settings) as store:

            def prepare() -> Callable[[], None]:
                with tertulia.open(path, settings=settings) as other:
                    put(other, "prepared")  # refused while a transaction of this store is open
                return partial(put, store.sync, "called")

            def fail_to_prepare() -> Callable[[], None]:
                raise Refused

            refused = store.executor.run_prepared(fail_to_prepare)
            await asyncio.gather(
                store.executor.run_prepared(prepare),
                store.run_batched(put, store.sync, "beside"),
            )
            with pytest.raises(Refused):
                await refused
            assert all(has(store.sync, name) for name in ("prepared", "called", "beside"))

    asyncio.run(scenario())


def test_calls_see_earlier_calls_and_other_handles_do_not(store: Store, tmp_path: Path) -> None:
    results: list[bool] = []

    def calls() -> None:
        put(store, "one")
        results.append(has(store, "one"))
        with tertulia.open(tmp_path / "talk.db") as other:
            results.append(has(other, "one"))

    store.in_one_commit(calls)
    assert results == [True, False]
    assert has(store, "one")


def test_failed_call_leaves_the_others_stored(store: Store) -> None:
    def calls() -> None:
        put(store, "one")
        with pytest.raises(Refused):
            put_and_fail(store, "two")
        damaged = {"name": "four", "value": None}
        with pytest.raises(StoreError):
            sqlite_of(store).write(lambda tx: tx.run("installation_set", damaged))
        put(store, "three")

    store.in_one_commit(calls)
    assert [has(store, name) for name in ("one", "two", "three")] == [True, False, True]


def test_nothing_is_stored_if_the_commit_fails(tmp_path: Path) -> None:
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


def test_notifications_follow_the_commit(store: Store) -> None:
    database = sqlite_of(store)
    before = database.notifications(CHANNEL)
    during: list[int] = []

    def calls() -> None:
        store.inbox.put(ANA, "hola", message_id="1")
        store.inbox.put(ANA, "hola", message_id="2")
        during.append(database.notifications(CHANNEL))

    store.in_one_commit(calls)
    assert during == [before]
    assert database.notifications(CHANNEL) == before + 1


def test_calls_run_once_in_their_own_thread_behind_another_writer(store: Store) -> None:
    """The calls have side effects, so they run once, in the thread that asked for them."""
    go_on, started = threading.Event(), threading.Event()
    threads: list[int] = []

    def slow(tx: Transaction) -> None:
        started.set()
        go_on.wait(PATIENCE)

    leader = threading.Thread(target=sqlite_of(store).write, args=(slow,))
    leader.start()
    started.wait(PATIENCE)

    def calls() -> None:
        threads.append(threading.get_ident())
        put(store, "one")

    follower = threading.Thread(target=store.in_one_commit, args=(calls,))
    follower.start()
    go_on.set()
    follower.join(PATIENCE)
    leader.join(PATIENCE)
    assert threads == [follower.ident]
    assert has(store, "one")


# -- from async code


def _blocking_call(started: asyncio.Event, go_on: threading.Event) -> Callable[[], bool]:
    """Return a call that sets `started` when it runs, and ends when `go_on` is set."""
    loop = asyncio.get_running_loop()

    def call() -> bool:
        loop.call_soon_threadsafe(started.set)
        return go_on.wait(PATIENCE)

    return call


def test_calls_that_wait_share_one_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        commits: list[int] = []
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            database = sqlite_of(store.sync)
            in_one_commit = database.in_one_commit

            def count_and_commit(calls: object) -> None:
                commits.append(1)
                in_one_commit(calls)  # type: ignore[arg-type]

            database.in_one_commit = count_and_commit  # type: ignore[method-assign]
            started, go_on = asyncio.Event(), threading.Event()
            first = asyncio.ensure_future(store.run_batched(_blocking_call(started, go_on)))
            await asyncio.wait_for(started.wait(), PATIENCE)
            sources = [Source("telegram", f"{n}", user_id=f"{n}") for n in range(50)]
            puts = [
                asyncio.ensure_future(store.inbox.put(source, "hola", message_id="1"))
                for source in sources
            ]
            await asyncio.sleep(0)  # all are queued behind the first, which runs already
            go_on.set()
            assert await first
            assert len(await asyncio.gather(*puts)) == 50
            assert len(commits) == 2
            assert len(await store.inbox.claim(100)) == 50

    asyncio.run(scenario())


def test_call_cancelled_before_it_began_is_not_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            started, go_on = asyncio.Event(), threading.Event()
            first = asyncio.ensure_future(store.run_batched(_blocking_call(started, go_on)))
            await asyncio.wait_for(started.wait(), PATIENCE)
            second = asyncio.ensure_future(store.inbox.put(ANA, "hola", message_id="1"))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            go_on.set()
            assert await first
            assert (await store.inbox.find()).items == ()

    asyncio.run(scenario())


def test_calls_of_a_closed_store_raise(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await tertulia.aio.open(tmp_path / "talk.db")
        await store.close()
        for _ in range(2):
            with pytest.raises(StoreError, match="The store is closed"):
                await store.inbox.put(ANA, "hola", message_id="1")

    asyncio.run(scenario())


# -- on PostgreSQL, where calls need not wait for each other


async def _most_calls_at_once(address: str) -> int:
    """Return how many short calls ran at once, of so many that the time of one counts.

    Not how many threads ran them: the pool may take another of its threads each time.
    """
    lock = threading.Lock()
    running = most = 0

    async with tertulia.aio.open(address) as store:

        def call() -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            store.sync.inbox.count("waiting", limit=1)
            with lock:
                running -= 1

        for _ in range(4):
            await asyncio.gather(*(store.run_batched(call) for _ in range(150)))
    return most


def test_short_calls_share_a_few_threads(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine is not taken for a slow network, nor for calls that wait for a lock.
    monkeypatch.setattr(executor, "_CALLS_TO_COMPARE", 10**6)
    monkeypatch.setattr(executor, "_LOOK_SECONDS", PATIENCE)
    with postgres.empty_store() as address:
        most = asyncio.run(_most_calls_at_once(address))
    assert 1 <= most <= executor._SHORT_THREADS


def test_slow_network_gets_more_threads(postgres: Server) -> None:
    with postgres.empty_store() as address, proxy(address, delay=0.004) as line:
        most = asyncio.run(_most_calls_at_once(line.address))
    assert most > executor._SHORT_THREADS


def test_short_calls_go_on_while_others_wait_for_a_lock(postgres: Server) -> None:
    """As many calls as there are threads for them wait; one more ends before them."""

    async def scenario(address: str) -> None:
        async with tertulia.aio.open(address) as store:
            go_on = threading.Event()
            started = [asyncio.Event() for _ in range(executor._SHORT_THREADS)]
            waiting = [
                asyncio.ensure_future(store.run_batched(_blocking_call(event, go_on)))
                for event in started
            ]
            for event in started:
                await asyncio.wait_for(event.wait(), PATIENCE)
            put = asyncio.ensure_future(store.inbox.put(ANA, "hola", message_id="1"))
            accepted = await asyncio.wait_for(put, PATIENCE / 2)
            assert accepted.is_new
            assert not any(call.done() for call in waiting)
            go_on.set()
            assert all(await asyncio.gather(*waiting))

    with postgres.empty_store() as address:
        asyncio.run(scenario(address))


def test_accepted_short_calls_still_run_when_the_threads_are_stopped(postgres: Server) -> None:
    async def scenario(store: Store) -> None:
        threads = executor.ThreadExecutor()
        threads.batch_calls_of(store)
        started, go_on = asyncio.Event(), threading.Event()
        first = asyncio.ensure_future(threads.run_batched(_blocking_call(started, go_on)))
        others = [asyncio.ensure_future(threads.run_batched(go_on.is_set)) for _ in range(20)]
        await asyncio.wait_for(started.wait(), PATIENCE)
        threads.stop()
        await asyncio.gather(*others)
        go_on.set()
        assert await first

    with postgres.empty_store() as address, tertulia.open(address) as store:
        asyncio.run(scenario(store))
