"""A page in a browser: messages are posted, and events are read from a stream.

This is the adapter; `tertulia.http.web` has its addresses. A message is taken when a stream of its
chat has taken it. Whoever connects again says which event was the last one seen, and is given what
the transcript has after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.source import Source
from tertulia.errors import PlatformUnavailable
from tertulia.platforms.base import Outgoing, StreamUpdate
from tertulia.platforms.push import PushAdapter

Chat = tuple[str, str]
# What a page that does not read may leave lying; then it counts as gone.
_LONGEST = 1000


class PageStream:
    """What one open page is yet to be sent."""

    def __init__(self) -> None:
        # One place more than is filled, so that the end always fits.
        self._waiting: asyncio.Queue[Outgoing | StreamUpdate | None] = asyncio.Queue(_LONGEST + 1)
        self._had: Counter[str] = Counter()
        self._is_over = False

    def had(self, text: str) -> None:
        """The page was given this from the transcript; a delivery of the same is not repeated."""
        self._had[text] += 1

    def put(self, event: Outgoing | StreamUpdate) -> bool:
        """Whether the page takes it."""
        if isinstance(event, Outgoing) and self._had[event.text] > 0:
            self._had[event.text] -= 1
            return True
        if self._is_over or self._waiting.qsize() >= _LONGEST:
            return False
        self._waiting.put_nowait(event)
        return True

    def end(self) -> None:
        """Take nothing more; the page connects again."""
        if not self._is_over:
            self._is_over = True
            self._waiting.put_nowait(None)

    async def next(self) -> Outgoing | StreamUpdate | None:
        """What comes next, None at the end."""
        return await self._waiting.get()


class WebAdapter(PushAdapter):
    """Pages in browsers."""

    name = "web"

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[Chat, set[PageStream]] = {}

    @contextmanager
    def connected(self, source: Source) -> Iterator[PageStream]:
        """A page that reads the events of a chat, as long as the block lasts."""
        chat = source.account, source.chat_id
        stream = PageStream()
        self._streams.setdefault(chat, set()).add(stream)
        try:
            yield stream
        finally:
            self._streams[chat].discard(stream)
            if not self._streams[chat]:
                del self._streams[chat]

    async def send(self, message: Outgoing) -> None:
        """Give a message to every open page of its chat."""
        open_pages = self._streams.get((message.account, message.chat_id or ""), ())
        if not [page for page in open_pages if page.put(message)]:
            raise PlatformUnavailable(
                "No page of this chat is open.", hint="It is sent when somebody opens it."
            )

    def end_streams(self) -> None:
        """Let every page go: it connects again, to whoever serves then."""
        for pages in self._streams.values():
            for page in pages:
                page.end()

    async def show(self, source: Source, shown: StreamUpdate) -> None:
        """Let open pages see a turn under way."""
        for page in tuple(self._streams.get((source.account, source.chat_id), ())):
            page.put(shown)
