"""Threads that run the calls of a sync store for async code: the one place that waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from tertulia.storage.handle import closed_error

P = ParamSpec("P")
T = TypeVar("T")

# Threads that wait for the same commit share it, so more threads than cores are worth it.
_THREADS = 16
# In a larger batch, the first calls would only wait longer for the commit after the last.
_CALLS_PER_COMMIT = 256
# Each result resumes a task at once; more of them in one callback would block the event loop.
_RESULTS_PER_CALLBACK = 32


class BatchingStore(Protocol):
    """The part of a store that lets its calls share a commit."""

    @property
    def has_one_writer(self) -> bool: ...

    def in_one_commit(self, calls: Callable[[], None]) -> None: ...


class ThreadExecutor:
    """A thread pool that runs calls of a store; no thread is started before the first call.

    `run` is for any call. `run_batched` is for short calls that only read and write: if the
    database has one writer, all calls that are waiting go to one thread together, share a commit,
    and return together. A thread switch for each of them would cost more than the call itself.
    """

    _batcher: CommitBatcher | None = None  # a class default: a subclass may have no pool

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tertulia")

    def batch_calls_of(self, store: BatchingStore) -> None:
        """Let `run_batched` share thread switches and commits, if the database has one writer."""
        if store.has_one_writer:
            self._batcher = CommitBatcher(store, self._pool)

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a call in a thread of its own."""
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._pool, partial(call, *args, **kwargs))
        except RuntimeError as problem:  # the pool was shut down
            raise closed_error() from problem

    def run_batched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a short call in one thread and one commit with others that wait, if possible."""
        if self._batcher is None:
            return self.run(call, *args, **kwargs)
        return self._batcher.put(partial(call, *args, **kwargs))

    def stop(self) -> None:
        """Accept no more calls; those that were accepted still run."""
        self._pool.shutdown(wait=False)


class _Call:
    """A call in a batch, with its result and the future of the task that awaits it."""

    __slots__ = ("call", "future", "problem", "result")

    def __init__(self, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future
        self.result: Any = None
        self.problem: BaseException | None = None

    def run(self) -> None:
        """Run the call and keep its result or exception until the commit."""
        try:
            self.result = self.call()
        except BaseException as problem:  # noqa: BLE001 — raised again in the awaiting task
            self.problem = problem

    def settle(self) -> None:
        """Pass the result or the exception to the awaiting task."""
        if self.future.done():
            return  # the task was cancelled
        if self.problem is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.problem)


class CommitBatcher:
    """A queue of calls that one thread runs, a batch per commit.

    It occupies a thread of the pool only while there are calls (decision 0011).
    """

    def __init__(self, store: BatchingStore, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []
        self._is_busy = False

    def put(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call and return the future of its result, which comes after its commit."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append(_Call(call, future))
            was_idle = not self._is_busy
            self._is_busy = True
        if was_idle:
            self._start_thread()
        return future

    def _start_thread(self) -> None:
        try:
            self._pool.submit(self._run_batches)
        except RuntimeError as problem:  # the pool was shut down
            with self._lock:
                self._waiting.clear()
                self._is_busy = False
            raise closed_error() from problem

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            try:
                self._store.in_one_commit(partial(_run_calls, batch))
            except BaseException as problem:  # noqa: BLE001 — raised again in the awaiting tasks
                for call in batch:
                    call.problem = call.problem or problem
            _settle(batch)

    def _next_batch(self) -> list[_Call]:
        with self._lock:
            batch = self._waiting[:_CALLS_PER_COMMIT]
            self._waiting = self._waiting[_CALLS_PER_COMMIT:]
            self._is_busy = bool(batch)
            return batch


def _run_calls(batch: Sequence[_Call]) -> None:
    for call in batch:
        if not call.future.cancelled():  # a call cancelled before it began is not run at all
            call.run()


def _settle(batch: Sequence[_Call]) -> None:
    """Pass the results to their event loops, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in batch:
        by_loop.setdefault(call.future.get_loop(), []).append(call)
    for loop, calls in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(_settle_in_loop, loop, calls)


def _settle_in_loop(loop: asyncio.AbstractEventLoop, calls: Sequence[_Call]) -> None:
    for call in calls[:_RESULTS_PER_CALLBACK]:
        call.settle()
    if len(calls) > _RESULTS_PER_CALLBACK:
        loop.call_soon(_settle_in_loop, loop, calls[_RESULTS_PER_CALLBACK:])
