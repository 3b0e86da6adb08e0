"""Web pages: every open page of a chat gets its messages, and none is shown twice."""

from __future__ import annotations

import asyncio

import pytest

from tertulia import Source
from tertulia.errors import PlatformUnavailable
from tertulia.platforms import web
from tertulia.platforms.base import Outgoing, StreamUpdate
from tertulia.platforms.web import PageStream, WebAdapter

CHAT = Source("web", "chat-1", account="ana")


def outgoing(text: str, chat: str = "chat-1") -> Outgoing:
    return Outgoing(delivery=f"d-{text}", account="ana", chat_id=chat, text=text)


def test_message_reaches_every_open_page_of_its_chat() -> None:
    async def play() -> None:
        adapter = WebAdapter()
        with adapter.open_stream(CHAT) as first, adapter.open_stream(CHAT) as second:
            await adapter.send(outgoing("hello"))
            assert await first.next() == await second.next() == outgoing("hello")
            with pytest.raises(PlatformUnavailable):
                await adapter.send(outgoing("hello", "chat-2"))
        with pytest.raises(PlatformUnavailable):
            await adapter.send(outgoing("nobody reads this"))

    asyncio.run(play())


def test_update_without_an_open_page_is_dropped() -> None:
    async def play() -> None:
        adapter = WebAdapter()
        update = StreamUpdate(kind="delta", turn="1", text="a")
        await adapter.show(CHAT, update)
        with adapter.open_stream(CHAT) as page:
            await adapter.show(CHAT, update)
            assert await page.next() == update

    asyncio.run(play())


def test_replayed_delivery_counts_as_sent_and_comes_once() -> None:
    async def play() -> None:
        page = PageStream()
        began, delta, ended = (
            StreamUpdate(kind=kind, turn="1", text="") for kind in ("began", "delta", "ended")
        )
        for event in (began, delta, outgoing("hello"), outgoing("other"), ended):
            assert page.put(event)
        page.begin_replay({"d-hello", "d-older"})
        assert page.put(outgoing("hello"))
        assert page.put(outgoing("older"))
        page.end()
        assert [await page.next() for _ in range(4)] == [began, outgoing("other"), ended, None]

    asyncio.run(play())


def test_replay_of_nothing_drops_no_piece_of_an_answer() -> None:
    async def play() -> None:
        page = PageStream()
        delta = StreamUpdate(kind="delta", turn="1", text="a")
        assert page.put(delta)
        page.begin_replay(set())
        assert await page.next() == delta

    asyncio.run(play())


def test_page_that_does_not_read_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        page = PageStream()
        assert [page.put(outgoing(text)) for text in "abc"] == [True, True, False]
        page.end()  # the end marker still fits
        events = [await page.next() for _ in range(3)]
        assert events == [outgoing("a"), outgoing("b"), None]

    monkeypatch.setattr(web, "_MAX_WAITING", 2)
    asyncio.run(play())


def test_ended_streams_accept_nothing_more() -> None:
    async def play() -> None:
        adapter = WebAdapter()
        with adapter.open_stream(CHAT) as page:
            adapter.end_streams()
            assert await page.next() is None
            with pytest.raises(PlatformUnavailable):
                await adapter.send(outgoing("late"))

    asyncio.run(play())
