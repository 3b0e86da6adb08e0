"""Messages that people write while a turn of their conversation is in progress.

They wait in the inbox. The setting `meanwhile` decides whether such a message stays there
(`queue`), ends the turn (`interrupt`) or becomes part of it (`steer`); `/stop` always ends the
turn. A message that this node accepted is noticed at once. Messages that other nodes accepted are
found by polling the database, with one query for all turns of this node.
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
from tertulia.gateway import commands, replies
from tertulia.gateway.access import CALLERS
from tertulia.gateway.settings import GatewaySettings
from tertulia.records.queues.inbox import InboxItem

log = logging.getLogger("tertulia.gateway")

_POLL_SECONDS = 0.25
_PAGE = 500
# On PostgreSQL an item with a smaller id may be committed after one with a larger id, so each poll
# starts at the id that was the newest this many polls ago. On SQLite ids are committed in order,
# and reading the last items again changes nothing.
_OVERLAP = 4


class TurnSignals:
    """The signals that a turn in progress listens to."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()


class Interrupts:
    """The turns in progress on this node, by conversation, and the messages that stop them."""

    def __init__(self, store: aio.Store, settings: GatewaySettings) -> None:
        self._store = store
        self._settings = settings
        self._signals: dict[str, TurnSignals] = {}
        self._has_turns = asyncio.Event()
        self._newest_ids: deque[int] = deque([0], maxlen=_OVERLAP)

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[TurnSignals]:
        """Register a turn of a conversation for the time of the block; yield its signals."""
        signals = self._signals[key] = TurnSignals()
        self._has_turns.set()
        try:
            yield signals
        finally:
            if self._signals.get(key) is signals:
                del self._signals[key]
            if not self._signals:
                self._has_turns.clear()

    def __len__(self) -> int:
        return len(self._signals)

    async def run(self) -> None:
        """Poll for messages that other nodes accepted, while a turn is in progress here."""
        while True:
            await self._has_turns.wait()
            try:
                await self.poll()
            except Error as problem:
                log.warning(
                    "polling for interrupts failed, retrying in %g s: %s", _POLL_SECONDS, problem
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def poll(self) -> None:
        """Notice the messages since the last polls; at most a page, the next poll reads on."""
        position = cursor.encode(self._newest_ids[0])
        page = await self._store.inbox.find(state="waiting", limit=_PAGE, cursor=position)
        for item in page.items:
            await self.notice(item)
        newest = page.items[-1].id if page.items else 0
        if page.next is not None:
            # Far behind the newest item: everything up to here was committed long ago, so nothing
            # has to be read again.
            self._newest_ids.clear()
        self._newest_ids.append(max(newest, self._newest_ids[-1] if self._newest_ids else 0))

    async def notice(self, item: InboxItem) -> None:
        """Stop the turn in progress in the conversation of a waiting message, if it says so."""
        signals = self._signals.get(item.key)
        if signals is None or item.state != "waiting" or item.resumes:
            return
        command = commands.parse(item.text)
        if command is not None and command.name == "stop":
            signals.stop.set()
            await self._settle_stop(item)
        elif command is None and self._settings.meanwhile == "interrupt":
            signals.stop.set()

    async def _settle_stop(self, item: InboxItem) -> None:
        """Answer and settle a /stop that had its effect: it must not end the next turn too."""
        if item.source.platform != CALLERS:
            await self._store.outbox.put(
                replies.STOPPED, "origin", origin=item.source, delivery=replies.reply_key(item),
                node=item.node,
            )  # fmt: skip
        with contextlib.suppress(StaleWrite):
            await self._store.inbox.dismiss(item)
