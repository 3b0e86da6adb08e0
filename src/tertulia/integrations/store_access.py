"""Which conversation of the store an SDK means, and how async code reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from tertulia import aio
from tertulia.aio.executor import ThreadExecutor
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.records.people import linked_key
from tertulia.store import Store

P = ParamSpec("P")
T = TypeVar("T")

AnyStore = Store | aio.Store


class LoopThreads(ThreadExecutor):
    """The threads of whatever loop is running, for a store that was opened without any."""

    def __init__(self) -> None:
        self._joint = None

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return asyncio.to_thread(call, *args, **kwargs)

    def stop(self) -> None:
        pass


def opened(store: AnyStore) -> tuple[Store, ThreadExecutor]:
    """The store itself, and the threads its calls run in."""
    given: object = store  # callers without a type checker hand in anything
    if isinstance(given, aio.Store):
        return given.sync, given._executor
    if isinstance(given, Store):
        return given, LoopThreads()
    raise ConfigError(
        f"A store is needed here, not {type(store).__name__}.",
        hint="Give what tertulia.open(…) or await tertulia.aio.open(…) returned.",
        field="store",
    )


def current(store: Store, source: Source) -> Session | None:
    """The session a source is in; None if there is none, or if its policy says that it is over.

    Nothing is touched: whoever only looks is not active.
    """
    context = store.context
    key = store.sessions.key(source)
    found = store.sessions.current(context.db.read(lambda tx: linked_key(tx, source, key)))
    if found is None:
        return None
    policy = context.settings.policies.for_chat(found.origin.platform, found.origin.chat_type)
    is_over = policy.decide(found, context.clock.now(), zone=context.zone)
    return None if is_over else found
