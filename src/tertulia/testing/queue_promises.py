"""Promises of every queue: a claim is exclusive, limited in time, and settled by who has it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tertulia.core.source import Source
from tertulia.errors import ConfigError, StaleWrite
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm, run_in_threads


def _put_message(store: Store, number: int) -> int:
    return store.inbox.put(Source("telegram", str(number % 20)), str(number)).id


def _put_delivery(store: Store, number: int) -> int:
    return store.outbox.put(str(number), f"telegram:{number % 20}").id


def _put_run(store: Store, number: int) -> int:
    schedule = store.schedules.create(dm(str(number)), "every 2h", "look")
    return store.schedules.run_now(schedule.id).id


class QueueAccess:
    """The calls of one queue, and `put`, which puts an entry in and returns its id."""

    def __init__(self, name: str, put: Callable[[Store, int], int]) -> None:
        self.name = name
        self.put = put

    def of(self, store: Store) -> Any:
        """Return the queue of a store."""
        return getattr(store, self.name)

    def claimed(self, store: Store, *, lease_seconds: float = 60) -> Any:
        """Put an entry in and claim it."""
        self.put(store, 42)
        (entry,) = self.of(store).claim(lease_seconds=lease_seconds)
        return entry


QUEUES = [
    QueueAccess("inbox", _put_message),
    QueueAccess("outbox", _put_delivery),
    QueueAccess("schedules", _put_run),
]
every_queue = pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue.name)


class QueuePromises:
    """Promises of the inbox, of the outbox and of the runs of schedules."""

    @every_queue
    def test_two_workers_never_claim_the_same_entry(
        self, handles: Handles, queue: QueueAccess
    ) -> None:
        stores = [handles.open() for _ in range(4)]
        ids = [queue.put(stores[0], number) for number in range(60)]

        def work(store: Store) -> list[int]:
            claimed_ids: list[int] = []
            while entries := queue.of(store).claim(limit=3):
                for entry in entries:
                    claimed_ids.append(entry.id)
                    queue.of(store).done(entry)
            return claimed_ids

        parts = run_in_threads(*(lambda h=h: work(h) for h in stores))
        # A worker stops early if all lanes are claimed by others at that moment.
        parts.append(work(stores[0]))
        assert sorted(id_ for part in parts for id_ in part) == ids

    @every_queue
    def test_a_claim_that_is_renewed_does_not_run_out(
        self, store: Store, other: Store, queue: QueueAccess
    ) -> None:
        entry = queue.claimed(store, lease_seconds=0.2)
        queue.of(store).renew(entry, lease_seconds=600)
        time.sleep(0.3)
        assert queue.of(other).claim() == []
        queue.of(store).done(entry)
        with pytest.raises(StaleWrite):
            queue.of(store).renew(entry)

    @every_queue
    def test_an_expired_claim_makes_the_queue_due(
        self, store: Store, other: Store, queue: QueueAccess
    ) -> None:
        queue.claimed(store, lease_seconds=0.01)
        assert queue.of(other).wait(60)

    @every_queue
    def test_an_earlier_claim_is_neither_renewed_nor_settled(
        self, store: Store, other: Store, queue: QueueAccess
    ) -> None:
        entry = queue.claimed(store)
        assert not queue.of(other).wait(0)
        queue.of(store).failed(entry, "later")
        assert queue.of(other).wait(0)
        (again,) = queue.of(other).claim()
        assert (again.id, again.attempts, again.problem) == (entry.id, 2, "later")
        calls = queue.of(store)
        for call in (calls.renew, calls.done, lambda entry: calls.failed(entry, "no")):
            with pytest.raises(StaleWrite):
                call(entry)
        queue.of(other).done(again)

    @every_queue
    @pytest.mark.parametrize(
        "ask_for",
        [
            lambda calls: calls.find(limit=0),
            lambda calls: calls.find(cursor="nonsense"),
            lambda calls: calls.claim(limit=0),
            lambda calls: calls.claim(limit=-1),
            lambda calls: calls.claim(lease_seconds=0),
            lambda calls: calls.claim(lease_seconds=float("nan")),
            lambda calls: calls.renew(None),
            lambda calls: calls.done("x"),
        ],
    )
    def test_invalid_arguments_of_a_queue_are_refused(
        self, store: Store, queue: QueueAccess, ask_for: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            ask_for(queue.of(store))
        assert caught.value.hint
