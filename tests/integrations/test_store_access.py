"""Access to a store from async SDK code."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import tertulia
from tertulia import ConfigError, Policies, ResetPolicy, Store
from tertulia.integrations.store_access import LoopExecutor, get_current_session, unwrap_store
from tertulia.testing import FakeClock
from tests.records.store_inspection import ANA

pytestmark = pytest.mark.check


def test_a_store_gets_the_threads_of_the_running_loop(store: Store) -> None:
    unwrapped, executor = unwrap_store(store)
    assert unwrapped is store

    async def thread_of_call() -> int:
        return await executor.run(threading.get_ident)

    assert isinstance(executor, LoopExecutor)
    assert asyncio.run(thread_of_call()) != threading.get_ident()


def test_an_async_store_keeps_its_own_threads(where: Path) -> None:
    async def unwrap() -> None:
        async with tertulia.aio.open(where) as store:
            unwrapped, executor = unwrap_store(store)
            assert isinstance(unwrapped, Store)
            assert not isinstance(executor, LoopExecutor)
            assert await executor.run(unwrapped.sessions.count) == 0

    asyncio.run(unwrap())


def test_anything_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="not PosixPath"):
        unwrap_store(Path("talk.db"))  # type: ignore[arg-type]


def test_an_expired_session_is_not_current_and_not_touched(where: Path) -> None:
    clock = FakeClock()
    policies = Policies(default=ResetPolicy(mode="idle", idle_minutes=60))
    settings = tertulia.Settings(zone="UTC", durability="fast", policies=policies)
    with tertulia.open(where, settings=settings, clock=clock) as store:
        assert get_current_session(store, ANA) is None
        session = store.sessions.open(ANA)
        clock.forward(minutes=30)
        assert get_current_session(store, ANA) == session
        clock.forward(minutes=31)
        assert get_current_session(store, ANA) is None
        assert store.sessions.require(session.id) == session
