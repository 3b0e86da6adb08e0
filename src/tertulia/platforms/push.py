"""An adapter to which messages are brought: over HTTP, it is the others who call."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from tertulia.errors import PlatformUnavailable
from tertulia.platforms.base import Adapter, Incoming, Receive


class PushAdapter(Adapter):
    """Hands over what it is brought while it listens, one after the other for each chat."""

    def __init__(self) -> None:
        self._receive: Receive | None = None
        self._queues: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def listen(self, receive: Receive) -> None:
        """Take what is brought, until cancelled."""
        self._receive = receive
        try:
            await asyncio.Event().wait()
        finally:
            self._receive = None

    async def accept(self, incoming: Incoming) -> None:
        """Hand a message over; when this returns, whoever brought it may be told so."""
        chat = incoming.source.account, incoming.source.chat_id
        async with self._queues.setdefault(chat, asyncio.Lock()):
            if self._receive is None:
                raise PlatformUnavailable(
                    f"{self.name} takes no messages now.", hint="Try again in a moment."
                )
            await self._receive(incoming)
