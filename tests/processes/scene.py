"""Programs of a store in a folder, and the few words their tests are told in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tertulia
from tertulia import Settings, Source, Store
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.processes.registry import ProcessRegistry
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
BEN = Source("telegram", "43", user_id="43", user_name="Ben")
SETTINGS = Settings(
    zone="UTC",
    durability="fast",
    policies=Policies(default=ResetPolicy(mode="idle", idle_minutes=60)),
)
# So long a test waits for something that is bound to happen, however busy the machine.
PATIENCE = 60.0


class Scene:
    """A store, its registry, and one conversation."""

    def __init__(self, store: Store, registry: ProcessRegistry, clock: FakeClock) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.key = store.sessions.open(ANA).key

    def spawn(self, command: str | list[str], **more: Any) -> str:
        more.setdefault("origin", ANA)
        return self.registry.spawn(command, key=self.key, **more).id

    def text(self, process_id: str) -> str:
        return self.registry.log(process_id).output.text

    def shows(self, process_id: str, wanted: str) -> None:
        """Wait until a program has written something."""
        until(lambda: wanted in self.text(process_id), f"{wanted!r} is shown")

    def finished(self, process_id: str) -> str:
        """Wait until a program has ended; all it wrote."""
        assert not self.registry.wait(process_id, PATIENCE).process.is_alive
        return self.text(process_id)

    def told(self) -> list[str]:
        return [parcel.body["text"] for parcel in self.store.outbox.find(limit=100).items]


@contextmanager
def scene(where: str, folder: Path, **more: Any) -> Iterator[Scene]:
    clock = FakeClock()
    with tertulia.open(where, settings=SETTINGS, clock=clock) as store:
        registry = ProcessRegistry(store, folder / "programs", **more)
        try:
            yield Scene(store, registry, clock)
        finally:
            for process in store.processes.of_node(registry.node):
                registry.remove(process.id)


async def comes(is_so: Callable[[], object], what: str) -> None:
    """The same as `until`, awaited."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"it never came to pass that {what}"
        await asyncio.sleep(0.02)


def until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"it never came to pass that {what}"
        time.sleep(0.02)
