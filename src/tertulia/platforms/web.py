"""Web pages: a page posts messages and reads events from a stream.

This is the adapter; `tertulia.http.web` has its URLs. A message counts as sent when at least one
stream of its chat has accepted it; while no page is open it waits. A page that reconnects sends the
id of the last event it has, and gets every delivery after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tertulia.core.source import Source
from tertulia.errors import RecipientAway
from tertulia.platforms.base import Adapter, Outgoing, StreamUpdate
from tertulia.platforms.definition import BuildContext, PlatformDefinition
from tertulia.platforms.push import PushAdapter

Chat = tuple[str, str]
# Events that may wait for a page that does not read; with more, the page counts as gone.
_MAX_WAITING = 1000


class PageStream:
    """The events that one open page has not read yet."""

    def __init__(self) -> None:
        # One slot more than events may use, so that the end marker always fits.
        self._waiting: asyncio.Queue[Outgoing | StreamUpdate | None] = asyncio.Queue(
            _MAX_WAITING + 1
        )
        self._received: set[str] = set()
        self._is_ended = False

    def begin_replay(self, deliveries: Collection[str]) -> None:
        """Note that the page is sent these deliveries now, by their keys; none is sent again.

        What waits for the page and would repeat them is dropped: the deliveries themselves, and
        pieces of answers, because one of the deliveries may be the whole answer.
        """
        self._received.update(deliveries)
        if not deliveries:
            return
        for _ in range(self._waiting.qsize()):
            event = self._waiting.get_nowait()
            if not _repeats(event, deliveries):
                self._waiting.put_nowait(event)

    def put(self, event: Outgoing | StreamUpdate) -> bool:
        """Queue an event for the page; return whether the page accepts it."""
        if isinstance(event, Outgoing) and event.delivery in self._received:
            return True
        if self._is_ended or self._waiting.qsize() >= _MAX_WAITING:
            return False
        if isinstance(event, Outgoing):
            self._received.add(event.delivery)
        self._waiting.put_nowait(event)
        return True

    def end(self) -> None:
        """Accept nothing more and end the stream; the page then reconnects."""
        if not self._is_ended:
            self._is_ended = True
            self._waiting.put_nowait(None)

    async def next(self) -> Outgoing | StreamUpdate | None:
        """Wait for the next event and return it; None at the end of the stream."""
        return await self._waiting.get()


def _repeats(event: Outgoing | StreamUpdate | None, deliveries: Collection[str]) -> bool:
    """Return whether an event would show a part of these deliveries a second time."""
    if isinstance(event, Outgoing):
        return event.delivery in deliveries
    return event is not None and event.kind == "delta"


# The arguments and results of tools are not for everybody who opens a page.
_SHOWN_KINDS = frozenset({"began", "delta", "tool", "ended"})


class WebAdapter(PushAdapter):
    """The adapter of pages in browsers."""

    name = "web"
    account = None  # each caller of the HTTP API is an account of its own

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[Chat, set[PageStream]] = {}

    @contextmanager
    def open_stream(self, source: Source) -> Iterator[PageStream]:
        """Open a stream of the events of a chat for the time of the block."""
        chat = source.account, source.chat_id
        stream = PageStream()
        self._streams.setdefault(chat, set()).add(stream)
        try:
            yield stream
        finally:
            self._streams[chat].discard(stream)
            if not self._streams[chat]:
                del self._streams[chat]

    async def send(self, message: Outgoing) -> str | None:
        """Send a message to every open page of its chat; raise if no page accepts it."""
        open_pages = self._streams.get((message.account, message.chat_id or ""), ())
        if not [page for page in open_pages if page.put(message)]:
            raise RecipientAway(
                "No page of this chat is open.", hint="It is sent when a page is opened."
            )
        return None

    def end_streams(self) -> None:
        """End the streams of all pages; they reconnect to the process that serves then."""
        for pages in self._streams.values():
            for page in pages:
                page.end()

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Send the progress of a turn to the open pages of its chat."""
        if update.kind in _SHOWN_KINDS:
            for page in tuple(self._streams.get((source.account, source.chat_id), ())):
                page.put(update)
        return None


def build(context: BuildContext) -> Adapter:
    """Return the adapter of web pages."""
    return WebAdapter()


PLATFORM = PlatformDefinition(
    "web",
    "Web",
    length_limit=None,
    markdown="markdown",
    edits=True,
    typing=True,
    media=True,
    build=build,
)
