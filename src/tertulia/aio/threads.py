"""The one place where the async side waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Callers that wait for the same commit share it, so a few more threads than cores pay off.
_THREADS = 32


class Threads:
    """Threads that run calls of a store; none is started before the first call."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tertulia")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(call, *args, **kwargs))

    def stop(self) -> None:
        self._pool.shutdown(wait=False)
