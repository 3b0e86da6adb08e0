"""Adapters whose messages are pushed: others call them over HTTP, they do not poll."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from tertulia.errors import PlatformUnavailable
from tertulia.platforms.base import Adapter, Incoming, Receive


class PushAdapter(Adapter):
    """Hands pushed messages to the gateway while it listens, one at a time for each chat."""

    needs_http = True
    refuses_senders = True

    def __init__(self) -> None:
        self._receive: Receive | None = None
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def listen(self, receive: Receive) -> None:
        """Accept pushed messages until cancelled."""
        self._receive = receive
        self.mark_listening()
        try:
            await asyncio.Event().wait()
        finally:
            self._receive = None
            self.mark_problem(None)

    async def accept(self, incoming: Incoming) -> None:
        """Hand a message over; when this returns, the sender may be told "received".

        Raises `PlatformUnavailable` while nothing listens, and `LimitExceeded` or `TooLarge` for a
        message beyond a limit.
        """
        chat = incoming.source.account, incoming.source.chat_id
        async with self._locks.setdefault(chat, asyncio.Lock()):
            if self._receive is None:
                raise PlatformUnavailable(
                    f"{self.name} accepts no messages now.", hint="Try again in a moment."
                )
            self.mark_heard()
            await self._receive(incoming)
