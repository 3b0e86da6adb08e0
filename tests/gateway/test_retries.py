"""An item whose work failed is put back for later, or given up and reported."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

import pytest

from tertulia.core.backoff import Backoff
from tertulia.errors import (
    AgentUnavailable,
    Error,
    LeaseLost,
    NotFound,
    SessionBusy,
    StoreUnavailable,
)
from tertulia.gateway.retries import Retries


class Item(NamedTuple):
    id: int
    attempts: int


class RecordingQueue:
    """Records what `failed` is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float | None, bool]] = []
        self.reports: list[str] = []
        self.problem: Error | None = None
        self.report_problem: Error | None = None

    async def failed(
        self, item: Item, problem: str, *, retry_after: float | None = None, for_good: bool = False
    ) -> None:
        if self.problem is not None:
            raise self.problem
        self.calls.append((problem, retry_after, for_good))

    async def report(self, item: Item, problem: Error) -> None:
        if self.report_problem is not None:
            raise self.report_problem
        self.reports.append(problem.code)


@pytest.fixture
def queue() -> RecordingQueue:
    return RecordingQueue()


@pytest.fixture
def retries(queue: RecordingQueue) -> Retries[Item]:
    return Retries(
        "message",
        queue,
        gives_up=lambda item, problem: item.attempts >= 3 and not problem.retryable,
        report=queue.report,
        backoff=Backoff(first=2, longest=60),
        busy_seconds=0.5,
    )


def run(retries: Retries[Item], attempts: int, problem: BaseException | None) -> None:
    async def work(item: Item) -> None:
        if problem is not None:
            raise problem

    asyncio.run(retries.run(Item(7, attempts), work))


def test_work_that_succeeds_is_not_settled_here(
    retries: Retries[Item], queue: RecordingQueue
) -> None:
    run(retries, 1, None)
    assert queue.calls == []


def test_failed_item_is_put_back_with_a_growing_delay(
    retries: Retries[Item], queue: RecordingQueue
) -> None:
    for attempts in (1, 2, 9):
        run(retries, attempts, AgentUnavailable("Away."))
    delays = [after for _, after, _ in queue.calls if after is not None]
    assert 1 <= delays[0] <= 2 <= delays[1] <= 4
    assert 30 <= delays[2] <= 60
    assert queue.reports == []


@pytest.mark.parametrize("problem", [NotFound("No."), ValueError("a bug")])
def test_item_is_given_up_and_reported_by_the_rule(
    retries: Retries[Item], queue: RecordingQueue, problem: Exception
) -> None:
    run(retries, 3, problem)
    ((_, _, for_good),) = queue.calls
    assert for_good
    assert len(queue.reports) == 1


@pytest.mark.parametrize(
    ("report_problem", "is_settled"), [(NotFound("No chat."), True), (StoreUnavailable("x"), False)]
)
def test_failure_that_nobody_can_be_told_does_not_keep_the_item(
    retries: Retries[Item], queue: RecordingQueue, report_problem: Error, is_settled: bool
) -> None:
    """A message without a chat was tried again for ever."""
    queue.report_problem = report_problem
    run(retries, 3, NotFound("No."))
    assert bool(queue.calls) is is_settled


def test_busy_session_is_tried_again_soon(retries: Retries[Item], queue: RecordingQueue) -> None:
    run(retries, 9, SessionBusy("Busy."))
    assert queue.calls == [("Busy.", 0.5, False)]


def test_item_of_another_node_is_left_alone(retries: Retries[Item], queue: RecordingQueue) -> None:
    run(retries, 9, LeaseLost("Gone."))
    assert queue.calls == []


def test_cancelled_item_is_put_back_at_once(retries: Retries[Item], queue: RecordingQueue) -> None:
    with pytest.raises(asyncio.CancelledError):
        run(retries, 1, asyncio.CancelledError())
    ((_, after, for_good),) = queue.calls
    assert (after, for_good) == (0, False)


def test_item_that_cannot_be_put_back_is_logged(
    retries: Retries[Item], queue: RecordingQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.problem = StoreUnavailable("Locked.")
    with caplog.at_level(logging.WARNING):
        run(retries, 1, AgentUnavailable("Away."))
    assert "waiting for its claim to expire: Locked." in caplog.text
