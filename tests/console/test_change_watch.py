"""Open pages are woken by changes, share their loads, and cost nothing while nothing happens."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import cast

import tertulia
from tertulia import Source
from tertulia.console.change_watch import ChangeWatch
from tertulia.console.page_definition import LoadedPage

KEY = ("root", "owner", "/console/")


class Counter:
    """Counts changes, and how often somebody looked."""

    def __init__(self) -> None:
        self.changes = 0
        self.looks = 0
        self.is_draining = False

    async def __call__(self) -> int:
        self.looks += 1
        return self.changes

    async def looked(self) -> None:
        """Wait for a look that began after this call."""
        until = self.looks + 2
        while self.looks < until:  # noqa: ASYNC110 - the watch tells nobody that it looked
            await asyncio.sleep(0.01)


async def load() -> LoadedPage:
    return cast(LoadedPage, object())


def test_pages_at_the_same_address_are_loaded_once_for_each_change() -> None:
    async def run() -> None:
        counter = Counter()
        watch = ChangeWatch(counter, lambda: counter.is_draining)
        with watch.open(KEY), watch.open(KEY):
            await watch.wait(-1, 60)
            first = await asyncio.gather(*(watch.load(KEY, load) for _ in range(50)))
            assert watch.loads == 1
            assert len(set(map(id, first))) == 1
            await counter.looked()
            assert not await watch.wait(watch.changes, 0)
            assert await watch.load(KEY, load) is first[0]
            before = watch.changes
            counter.changes += 1
            assert await watch.wait(before, 60)
            second = await asyncio.gather(*(watch.load(KEY, load) for _ in range(50)))
            assert watch.loads == 2
            assert second[0] is not first[0]
            # What time alone changes is loaded once for all that ask for it.
            await asyncio.gather(*(watch.load(KEY, load, is_aged=True) for _ in range(50)))
            assert watch.loads == 3
            counter.is_draining = True
            assert await watch.wait(watch.changes, 60)
            await watch.pause(60)

    asyncio.run(run())


def test_numbers_of_the_navigation_are_loaded_once_for_each_change() -> None:
    loads = 0

    async def load_numbers() -> dict[str, str]:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0)
        return {"count_people": str(loads)}

    async def run() -> None:
        counter = Counter()
        watch = ChangeWatch(counter, lambda: False)
        with watch.open(KEY):
            await watch.wait(-1, 60)
            for number in (1, 2):
                shown = await asyncio.gather(*(watch.count(KEY, load_numbers) for _ in range(50)))
                assert shown == [{"count_people": str(number)}] * 50
                before = watch.changes
                counter.changes += 1
                assert await watch.wait(before, 60)
        assert loads == 2

    asyncio.run(run())


def test_nobody_looks_while_no_page_is_open() -> None:
    async def run() -> None:
        counter = Counter()
        watch = ChangeWatch(counter, lambda: False)
        with watch.open(KEY):
            await counter.looked()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_signs_of_life_and_reads_are_no_changes(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        session = store.sessions.open(Source("telegram", "1", user_id="1"))
        before = store.count_changes()
        for _ in range(3):
            store.nodes.report("node", version="1", turns=0)
            store.sessions.find()
        assert store.count_changes() == before
        store.sessions.rename(session.id, "Other")
        assert store.count_changes() == before + 1
        # A change just before a sign of life is not taken for it.
        store.sessions.rename(session.id, "Again")
        store.nodes.report("node", version="1", turns=0)
        assert store.count_changes() == before + 2


def test_a_change_is_not_taken_for_a_sign_of_life_of_another_thread(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        session = store.sessions.open(Source("telegram", "1", user_id="1"))
        seen = [store.count_changes()]
        stop = threading.Event()

        def report() -> None:
            while not stop.is_set():
                store.nodes.report("node", version="1", turns=0)

        reporter = threading.Thread(target=report)
        reporter.start()
        for number in range(20):
            store.sessions.rename(session.id, f"Title {number}")
            seen.append(store.count_changes())
        stop.set()
        reporter.join()
        assert len(set(seen)) == len(seen)
