"""The contract of an adapter, which connects one chat app to the gateway.

An adapter promises:

1.  **Accept before acknowledging.** `listen` calls `receive` with each message, and tells the
    platform "received" only after `receive` has returned. If `receive` raises, the platform is not
    told, so that it sends the message again.
2.  **The same message has the same id.** `message_id` is the platform's own id, so that a message
    that is sent twice is recognised. If the platform has no ids, the adapter derives one from data
    that does not change.
3.  **No platform data goes beyond the adapter.** The adapter turns it into a `Source` and a text;
    no other code sees the platform's JSON. Names and texts are passed on unchanged; other code
    makes them safe to show.
4.  **Messages of one chat are handed over in order**, one after the other.
5.  **`send` reports the outcome.** It returns when the platform has accepted the message, or raises
    a `PlatformError`: `RateLimited` or `PlatformUnavailable` if the message was certainly not
    accepted and may be sent again, `TooLarge` or `Refused` if it will never be accepted, and
    `OutcomeUnknown` if it cannot be known. The adapter itself does not send again.
6.  **`is_idempotent` is a promise**: a delivery that is sent again under the same key arrives once.
7.  **`listen` ends when it is cancelled**, and `close` releases all resources. `listen` itself
    reconnects when a connection breaks.
8.  **`show` never fails and never waits long**: a missed update does no harm.
9.  **`respond` checks who calls**, if the adapter `needs_http`: requests to /platforms/NAME have
    no token of the gateway, so the adapter verifies the signature or the secret of its platform.

The gateway, which runs the adapter, promises that only one call of `listen` runs at a time (again
after it failed), that `send` is called for one message of a chat at a time and in order, and that
`close` is called once, at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from tertulia.core.source import Source
from tertulia.errors import NotFound


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message from a person.

    `is_addressed`: it is meant for the agent, because it is in a private chat, mentions the agent
    or replies to it.
    """

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
    """An update of a turn in progress: it began, a piece of the answer, a tool call, it ended."""

    kind: Literal["began", "delta", "tool", "ended"]
    turn: str
    text: str = ""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the platform to /platforms/NAME; names of headers are in small letters."""

    method: str
    headers: Mapping[str, str]
    query: Mapping[str, str] = {}
    body: bytes = b""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request of the platform."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class MenuEntry(msgspec.Struct, frozen=True):
    """A command, for platforms that show a menu of commands."""

    name: str
    description: str


Receive = Callable[[Incoming], Awaitable[None]]


class Adapter(ABC):
    """The adapter of one chat app; the module docstring lists its promises.

    `needs_http`: people or the platform reach it through the HTTP server of the gateway.
    """

    name: str
    is_idempotent: bool = False
    needs_http: bool = False

    @abstractmethod
    async def listen(self, receive: Receive) -> None:
        """Call `receive` with each message of people, until cancelled."""

    @abstractmethod
    async def send(self, message: Outgoing) -> None:
        """Send one message; raise a `PlatformError` if it was not accepted."""

    async def show(self, source: Source, update: StreamUpdate) -> None:
        """Show the progress of a turn to people, if the platform can."""
        return

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Tell the platform the list of commands."""
        return

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer a request to /platforms/NAME; raise an `Error` to refuse it."""
        raise NotFound(f"{self.name} takes no requests here.", hint="See docs/http.md.")

    async def close(self) -> None:
        """Close connections and release other resources."""
        return
