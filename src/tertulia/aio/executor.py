"""The one place where the async side waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Callers that wait for the same commit share it, so a few more threads than cores pay off.
_THREADS = 16
# More calls in one commit than this would only make the last of them wait for the first.
_TOGETHER = 256
# What is told at once is gone on with at once: more of it would keep the event loop too long.
_AT_ONCE = 32


class Shared(Protocol):
    """A store, as far as its calls may share a commit."""

    @property
    def one_writer(self) -> bool: ...

    def in_one_commit(self, calls: Callable[[], None]) -> None: ...


class ThreadExecutor:
    """Threads that run calls of a store; none is started before the first call.

    `run` is for any call. `join` is for short ones that do nothing but read and write: where the
    database has one writer, those that wait at a moment go to one thread together, share a commit,
    and come back together. A hop for each of them would cost more than the call itself.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tertulia")
        self._joint: CommitBatcher | None = None

    def share(self, store: Shared) -> None:
        """Let short calls share hops and commits from now on, if the database is one for that."""
        if store.one_writer:
            self._joint = CommitBatcher(store, self._pool)

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, partial(call, *args, **kwargs))

    def run_batched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        if self._joint is None:
            return self.run(call, *args, **kwargs)
        return self._joint.put(partial(call, *args, **kwargs))

    def stop(self) -> None:
        self._pool.shutdown(wait=False)


class _Call:
    """A call that waits for its thread, then for its commit."""

    __slots__ = ("call", "future", "problem", "result")

    def __init__(self, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future
        self.result: Any = None
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as problem:  # noqa: BLE001 — raised again where it is awaited
            self.problem = problem

    def settle(self) -> None:
        if self.future.done():
            return  # whoever waited for it is gone
        if self.problem is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.problem)


class CommitBatcher:
    """The calls that wait for one thread. It is one of the pool, as long as there are any."""

    def __init__(self, store: Shared, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []
        self._is_busy = False

    def put(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append(_Call(call, future))
            begins = not self._is_busy
            self._is_busy = True
        if begins:
            self._begin()
        return future

    def _begin(self) -> None:
        try:
            self._pool.submit(self._work)
        except RuntimeError:  # the store is closed
            with self._lock:
                self._waiting.clear()
                self._is_busy = False
            raise

    def _work(self) -> None:
        while batch := self._take():
            try:
                self._store.in_one_commit(partial(_run, batch))
            except BaseException as problem:  # noqa: BLE001 — whoever waits must hear of it
                for one in batch:
                    one.problem = one.problem or problem
            _settle(batch)

    def _take(self) -> list[_Call]:
        with self._lock:
            batch, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
            self._is_busy = bool(batch)
            return batch


def _run(batch: Sequence[_Call]) -> None:
    for one in batch:
        if not one.future.cancelled():  # not begun yet: then it is not done at all
            one.run()


def _settle(batch: Sequence[_Call]) -> None:
    """Give the results to the event loop in one go."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for one in batch:
        by_loop.setdefault(one.future.get_loop(), []).append(one)
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # it is closed, and nobody waits any more
            loop.call_soon_threadsafe(_tell, loop, own)


def _tell(loop: asyncio.AbstractEventLoop, batch: Sequence[_Call]) -> None:
    for one in batch[:_AT_ONCE]:
        one.settle()
    if len(batch) > _AT_ONCE:
        loop.call_soon(_tell, loop, batch[_AT_ONCE:])
