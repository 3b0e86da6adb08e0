"""Threads that run the calls of a sync store for async code: the one place that waits."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from tertulia.storage.handle import closed_error

P = ParamSpec("P")
T = TypeVar("T")

# Threads that wait for the same commit share it, so more threads than cores are worth it.
_THREADS = 16
# On PostgreSQL, for each millisecond of the shortest call of late: that is the time of the network.
# More threads would only wait for the interpreter, each with a connection.
_SHORT_THREADS = 4
_CALLS_TO_COMPARE = 128
_LOOK_SECONDS = 0.05
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

    `run` is for any call. `run_batched` is for short calls that only read and write. If the
    database has one writer, all calls that are waiting go to one thread together, share a commit,
    and return together. Else a few threads run them one after the other. A thread switch for each
    of them would cost more than the call itself.
    """

    _short_calls: ShortCalls | None = None  # a class default: a subclass may have no pool

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tertulia")

    def batch_calls_of(self, store: BatchingStore) -> None:
        """Let the calls of `run_batched` share a few threads, and commits if they can."""
        self._short_calls = ShortCalls(store, self._pool)

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a call in a thread of its own."""
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._pool, partial(call, *args, **kwargs))
        except RuntimeError as problem:  # the pool was shut down
            raise closed_error() from problem

    def run_batched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a short call in a thread that others share, and in one commit with them if it can."""
        if self._short_calls is None:
            return self.run(call, *args, **kwargs)
        return self._short_calls.put(partial(call, *args, **kwargs))

    def run_prepared(self, prepare: Callable[[], Callable[[], T]]) -> Awaitable[T]:
        """Run `prepare`, and what it returns as `run_batched` does.

        `prepare` does not use the database: the commit waits for none of it.
        """

        def prepare_and_call() -> T:
            call = prepare()
            return call()

        if self._short_calls is None:
            return self.run(prepare_and_call)
        return self._short_calls.put(None, prepare)

    def stop(self) -> None:
        """Accept no more calls; those that were accepted still run."""
        self._pool.shutdown(wait=False)


class _Call:
    """A call in a batch, with its result and the future of the task that awaits it.

    It may have to be prepared: `prepare` returns what is to be called.
    """

    __slots__ = ("call", "future", "prepare", "problem", "result")

    def __init__(
        self,
        call: Callable[[], Any] | None,
        prepare: Callable[[], Callable[[], Any]] | None,
        future: asyncio.Future[Any],
    ) -> None:
        self.call = call
        self.prepare = prepare
        self.future = future
        self.result: Any = None
        self.problem: BaseException | None = None

    def make_ready(self) -> None:
        """Prepare the call, before the transaction begins."""
        if self.prepare is None or self.future.cancelled():
            return
        try:
            self.call = self.prepare()
        except BaseException as problem:  # noqa: BLE001 — raised again in the awaiting task
            self.problem = problem

    def run(self) -> None:
        """Run the call and keep its result or exception until the commit."""
        if self.call is None:
            return  # it could not be prepared
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


class ShortCalls:
    """A queue of calls that a few threads run: one with a commit for many, or several without.

    It occupies threads of the pool only while there are calls (decision 0011, decision 0057).
    Several threads may all wait for what another process has locked: if no call has ended for a
    while, another thread runs the next ones.
    """

    def __init__(self, store: BatchingStore, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._calls_at_once = _CALLS_PER_COMMIT if store.has_one_writer else 1
        self._thread_limit = 1 if store.has_one_writer else _SHORT_THREADS
        self._threads = 0
        self._ended = 0  # calls
        self._shortest = math.inf  # seconds
        self._next_look = -math.inf

    def put(
        self, call: Callable[[], T] | None, prepare: Callable[[], Callable[[], T]] | None = None
    ) -> asyncio.Future[T]:
        """Queue a call, or what `prepare` returns, and return the future of its result.

        The result comes after the commit.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        queued = _Call(call, prepare, future)
        with self._lock:
            self._waiting.append(queued)
            is_thread_free = self._threads < self._thread_limit
            self._threads += is_thread_free
        if is_thread_free:
            if not self._start_thread() and self._withdraw(queued):
                raise closed_error()
        elif not self._store.has_one_writer and loop.time() >= self._next_look:
            self._look_later(loop)
        return future

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next_look = loop.time() + _LOOK_SECONDS
        loop.call_later(_LOOK_SECONDS, self._look, loop, self._ended)

    def _look(self, loop: asyncio.AbstractEventLoop, ended: int) -> None:
        """Start one more thread if calls wait and none has ended since the last look."""
        with self._lock:
            is_waiting = bool(self._waiting)
            is_stuck = is_waiting and self._ended == ended and self._threads < _THREADS
            self._threads += is_stuck
        if is_stuck:
            self._start_thread()
        if is_waiting:
            self._look_later(loop)

    def _start_thread(self) -> bool:
        """Start a thread that was counted before; return False if the pool was shut down."""
        try:
            self._pool.submit(self._run_batches)
        except RuntimeError:
            with self._lock:
                self._threads -= 1
            return False
        return True

    def _withdraw(self, call: _Call) -> bool:
        """Take a call out of the queue; return False if a thread has taken it before."""
        with self._lock:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _run_batches(self) -> None:
        seconds = math.inf
        while batch := self._next_batch(seconds):
            for call in batch:
                call.make_ready()
            began = time.perf_counter()
            try:
                self._store.in_one_commit(partial(_run_calls, batch))
            except BaseException as problem:  # noqa: BLE001 — raised again in the awaiting tasks
                for call in batch:
                    call.problem = call.problem or problem
            seconds = time.perf_counter() - began
            _settle(batch)

    def _next_batch(self, seconds: float) -> list[_Call]:
        """Take the next calls; the last ones of this thread took some seconds."""
        with self._lock:
            waiting = self._waiting
            batch = [waiting.popleft() for _ in range(min(self._calls_at_once, len(waiting)))]
            self._threads -= not batch
            self._ended += 1
            self._shortest = min(self._shortest, seconds)
            if self._ended % _CALLS_TO_COMPARE == 0 and not self._store.has_one_writer:
                wanted = _SHORT_THREADS * math.ceil(min(self._shortest, 1) * 1000)
                self._thread_limit = max(_SHORT_THREADS, min(_THREADS, wanted))
                self._shortest = math.inf
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
