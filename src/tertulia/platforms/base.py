"""The contract of an adapter: what stands between one chat app and the gateway.

An adapter promises:

1.  **Accepted before acknowledged.** `listen` hands each message to `receive`, and tells the
    platform "received" only when that has returned. If it raises, the platform is not told, so that
    it sends the message again.
2.  **The same message has the same id.** `message_id` is the platform's own, so that what comes
    twice is known. Where a platform has none, the adapter makes one from what does not change.
3.  **Nothing of the platform goes further.** What it sent becomes `Source` and text here; nobody
    past the adapter sees its JSON. Names and texts are given as they are; others make them inert.
4.  **Messages of one chat are handed over in their order**, one after the other.
5.  **`send` says what became of it.** It returns when the platform has taken the message, or raises
    a `PlatformError`: `RateLimited` and `PlatformUnavailable` where it was certainly not taken and
    may be tried again, `TooLarge` and `Refused` where it never will be, `OutcomeUnknown` where
    nobody can say. Nothing is tried again here.
6.  **`is_idempotent` is a promise**: a delivery that is sent again under the same key arrives once.
7.  **`listen` ends when it is cancelled**, and `close` lets go of everything. A connection that
    breaks is made again by `listen` itself.
8.  **`show` never fails and never waits long**: it is for what may be missed.

Whoever runs an adapter (the gateway) promises that `listen` is called once, that `send` is called
for one message of a chat at a time and in their order, and that `close` is called once, at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from tertulia.core.source import Source


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message that somebody wrote. `is_addressed` says that it is meant for the agent: in a
    private chat, by a mention, or as an answer to what the agent wrote."""

    source: Source
    text: str | None
    message_id: str | None = None
    media: tuple[Any, ...] = ()
    is_addressed: bool = True


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send. `delivery` is its idempotency key."""

    delivery: str
    chat_id: str | None
    text: str
    account: str = ""
    thread_id: str | None = None


class StreamUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of a turn under way: it began, a piece of the answer, a tool, its end."""

    kind: Literal["began", "delta", "tool", "ended"]
    turn: str
    text: str = ""


class MenuEntry(msgspec.Struct, frozen=True):
    """A command, for platforms that have a menu of them."""

    name: str
    description: str


Receive = Callable[[Incoming], Awaitable[None]]


class Adapter(ABC):
    """One chat app; the promises stand at the head of this module."""

    name: str
    is_idempotent: bool = False

    @abstractmethod
    async def listen(self, receive: Receive) -> None:
        """Hand over what people write, until cancelled."""

    @abstractmethod
    async def send(self, message: Outgoing) -> None:
        """Send one message."""

    async def show(self, source: Source, shown: StreamUpdate) -> None:
        """Let people see a turn under way, where the platform can."""
        return

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Tell the platform which commands there are."""
        return

    async def close(self) -> None:
        """Let go of connections."""
        return
