"""Access to a store from async SDK code: the store, its executor and the current session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from tertulia import aio
from tertulia.aio.executor import ThreadExecutor
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.records.links import linked_key
from tertulia.records.store_context import StoreContext
from tertulia.records.write_guard import WriteGuard
from tertulia.store import Store

P = ParamSpec("P")
T = TypeVar("T")

AnyStore = Store | aio.Store


class LoopExecutor(ThreadExecutor):
    """The default threads of the running event loop, for a store opened without an executor."""

    def __init__(self) -> None:
        """Make no pool: the event loop has one."""

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the SDK runs on another event loop, such as trio's
            return _run_with_anyio(partial(call, *args, **kwargs))
        return asyncio.to_thread(call, *args, **kwargs)

    def stop(self) -> None:
        pass


async def _run_with_anyio(call: Callable[[], T]) -> T:
    # SDKs that support other event loops than asyncio's do so with this package.
    from anyio import to_thread

    return await to_thread.run_sync(call)


async def write_or_call_off(
    executor: ThreadExecutor, write: Callable[[StoreContext], T], context: StoreContext
) -> T:
    """Run a call that writes; if this task is cancelled before the write begins, it never does.

    A write that has begun is awaited to its end, and then the task is cancelled.
    """
    guard = WriteGuard()
    writing = asyncio.ensure_future(executor.run(write, guard.context(context)))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        if guard.call_off():
            writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            await asyncio.wait([writing])
        raise


def unwrap_store(store: AnyStore) -> tuple[Store, ThreadExecutor]:
    """Return the synchronous store and the executor for its calls.

    Raises `ConfigError` if `store` is not a store.
    """
    value: object = store  # callers without a type checker may pass anything
    if isinstance(value, aio.Store):
        return value.sync, value.executor
    if isinstance(value, Store):
        return value, LoopExecutor()
    raise ConfigError(
        f"Expected a store, not {type(store).__name__}.",
        hint="Pass the result of tertulia.open(…) or await tertulia.aio.open(…).",
        field="store",
    )


def get_current_session(store: Store, source: Source) -> Session | None:
    """Return the current session of a source; None if there is none or its policy has expired it.

    Reading is not activity: the session is not touched.
    """
    context = store.context
    key = store.sessions.key(source)
    session = store.sessions.current(context.read(lambda tx: linked_key(tx, source, key)))
    if session is None:
        return None
    policy = context.settings.policies.for_chat(session.origin.platform, session.origin.chat_type)
    is_over = policy.decide(session, context.clock.now(), zone=context.zone)
    return None if is_over else session
