"""What people write while a turn of theirs is under way.

It waits in the inbox. By the rules it stays there (`queue`), ends the turn (`interrupt`) or is
taken into it (`steer`); `/stop` ends the turn in any case. What comes in on this node is heard at
once; what another node accepted is found by one look at the database for all turns together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator

from tertulia import aio
from tertulia.core import cursor
from tertulia.errors import Error, StaleWrite
from tertulia.gateway import (
    commands,
    replies,
)
from tertulia.gateway.settings import GatewaySettings
from tertulia.records.queues.inbox import InboxItem

log = logging.getLogger("tertulia.gateway")

_LOOK_SECONDS = 0.25
_PAGE = 500
# On PostgreSQL a smaller number may be committed after a larger one: the last looks are repeated.
_LOOKS_AGAIN = 4


class TurnSignals:
    """How a turn under way is told to stop."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()


class Interrupts:
    """The turns of this node that are under way, by conversation, and who interrupts them."""

    def __init__(self, store: aio.Store, rules: GatewaySettings) -> None:
        self._store = store
        self._rules = rules
        self._signals: dict[str, TurnSignals] = {}
        self._is_busy = asyncio.Event()
        self._seen: deque[int] = deque([0], maxlen=_LOOKS_AGAIN)

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[TurnSignals]:
        """A turn of a conversation is under way as long as this lasts."""
        signals = self._signals[key] = TurnSignals()
        self._is_busy.set()
        try:
            yield signals
        finally:
            if self._signals.get(key) is signals:
                del self._signals[key]
            if not self._signals:
                self._is_busy.clear()

    def __len__(self) -> int:
        return len(self._signals)

    async def run(self) -> None:
        """Look for what other nodes have accepted, as long as a turn is under way here."""
        while True:
            await self._is_busy.wait()
            try:
                await self.look()
            except Error as problem:
                log.warning("what waits cannot be looked at now: %s", problem)
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Hear what has come since the last looks; at most a page, the rest with the next."""
        place = cursor.write(self._seen[0])
        page = await self._store.inbox.find(state="waiting", limit=_PAGE, cursor=place)
        for arrival in page.items:
            await self.hear(arrival)
        newest = page.items[-1].id if page.items else 0
        if page.next is not None:
            self._seen.clear()  # far behind: what waits for long was committed long ago
        self._seen.append(max(newest, self._seen[-1] if self._seen else 0))

    async def hear(self, arrival: InboxItem) -> None:
        """Let a message that waits end the turn under way in its conversation, if it does."""
        signals = self._signals.get(arrival.key)
        if signals is None or arrival.state != "waiting":
            return
        command = commands.parse(arrival.text)
        if command is not None and command.name == "stop":
            signals.stop.set()
            await self._settle(arrival)
        elif command is None and self._rules.meanwhile == "interrupt":
            signals.stop.set()

    async def _settle(self, stop: InboxItem) -> None:
        """A /stop that was heard is over: it must not end the next turn too."""
        await self._store.outbox.put(
            replies.STOPPED, "origin", origin=stop.source, delivery=replies.reply_key(stop)
        )
        with contextlib.suppress(StaleWrite):
            await self._store.inbox.dismiss(stop)
