"""The poller: one recovery, then checks at an interval, also after errors."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tertulia.errors import StoreUnavailable
from tertulia.processes.poller import ProcessPoller
from tests.processes.process_fixtures import wait_until_async


class FakeRegistry:
    """Records the calls of the poller; some of them fail."""

    def __init__(self, *failures: bool) -> None:
        self.calls: list[str] = []
        self._failures = list(failures)

    def recover(self) -> None:
        self._record("recover")

    def check_all(self) -> None:
        self._record("check_all")

    def _record(self, name: str) -> None:
        self.calls.append(name)
        if self._failures and self._failures.pop(0):
            raise StoreUnavailable("The store is locked.")


def run_poller(registry: Any, calls: int) -> None:
    """Run a poller until it has made so many calls."""

    async def run() -> None:
        polling = asyncio.create_task(ProcessPoller(registry, every=0.001).run())
        await wait_until_async(lambda: len(registry.calls) >= calls, "the calls are made")
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling

    asyncio.run(run())


def test_recovers_once_then_checks() -> None:
    registry = FakeRegistry()
    run_poller(registry, 3)
    assert registry.calls[:3] == ["recover", "check_all", "check_all"]


def test_failed_recovery_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tertulia.processes")
    registry = FakeRegistry(True, False, True)
    run_poller(registry, 4)
    assert registry.calls[:4] == ["recover", "recover", "check_all", "check_all"]
    assert caplog.text.count("process check failed, retrying in 0.001 s") == 2


def test_without_a_registry_it_only_waits() -> None:
    async def run() -> None:
        polling = asyncio.create_task(ProcessPoller(None).run())
        _, pending = await asyncio.wait([polling], timeout=0.01)
        assert pending == {polling}
        polling.cancel()

    asyncio.run(run())
