"""A conversation with background programs for the tests, and functions that wait."""

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
# Maximum time for an event that must happen, however busy the machine is.
TIMEOUT_SECONDS = 60.0


class Conversation:
    """A conversation with its store and the registry of its programs."""

    def __init__(self, store: Store, registry: ProcessRegistry, clock: FakeClock) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.key = store.sessions.open(ANA).key

    def spawn(self, command: str | list[str], **options: Any) -> str:
        """Start a program and return its id."""
        options.setdefault("origin", ANA)
        return self.registry.spawn(command, key=self.key, **options).id

    def output(self, process_id: str) -> str:
        """Return the last page of a program's output."""
        return self.registry.log(process_id).output.text

    def wait_for_output(self, process_id: str, text: str) -> None:
        """Wait until the output of a program contains a text."""
        wait_until(lambda: text in self.output(process_id), f"the output contains {text!r}")

    def wait_for_end(self, process_id: str) -> str:
        """Wait until a program has ended; return its output."""
        assert not self.registry.wait(process_id, TIMEOUT_SECONDS).process.is_alive
        return self.output(process_id)

    def notices(self) -> list[str]:
        """Return the notices that were sent to the conversation."""
        return [delivery.body["text"] for delivery in self.store.outbox.find(limit=100).items]


@contextmanager
def open_conversation(where: str, folder: Path, **options: Any) -> Iterator[Conversation]:
    """Open a conversation with a registry in `folder`; remove its programs at the end."""
    clock = FakeClock()
    with tertulia.open(where, settings=SETTINGS, clock=clock) as store:
        registry = ProcessRegistry(store, folder / "programs", **options)
        try:
            yield Conversation(store, registry, clock)
        finally:
            for process in store.processes.of_node(registry.node):
                registry.remove(process.id)


async def wait_until_async(condition: Callable[[], object], description: str) -> None:
    """Wait until a condition is true, without blocking the event loop."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting: {description}"
        await asyncio.sleep(0.02)


def wait_until(condition: Callable[[], object], description: str) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting: {description}"
        time.sleep(0.02)
