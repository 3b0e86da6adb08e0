"""A Slack adapter that listens or sends, beside a Slack on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    PlatformUnavailable,
    StoreUnavailable,
)
from tertulia.platforms.base import (
    HttpRequest,
    Incoming,
    Outgoing,
    Update,
)
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.slack.mrkdwn import format_text
from tests.servers.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    Event,
    SlackServer,
)

DM = Source("slack", "D1", user_id="UANA")


async def post(server: SlackServer, adapter: Any, payload: Any, **changes: Any) -> int:
    """Post a signed request as Slack does; return the status, 503 for an error of the store."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    headers = server.sign(body) | changes
    try:
        request = HttpRequest(method="POST", headers=headers, body=body)
        return int((await adapter.respond(request)).status)
    except (StoreUnavailable, PlatformUnavailable):
        return 503


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: SlackServer, **options: Any) -> None:
        options = {"app_token": APP_TOKEN, "connections": 1, **options}
        self.server = server
        self.adapter = SlackAdapter(
            options.pop("token", BOT_TOKEN), base_url=f"{server.url}/api", **options
        )
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    async def receive(self, update: Update) -> None:
        if self.failures:
            raise self.failures.pop()
        self.updates.append(update)
        self.server.notify()

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    async def wait(self, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(self.server.wait, condition)

    async def wait_texts(self, *texts: str) -> None:
        await self.wait(lambda: len(self.messages) >= len(texts))
        assert self.texts == list(texts)

    async def wait_state(self, is_listening: bool) -> None:
        while self.adapter.state.listening is not is_listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def settled(self, *events: Event) -> None:
        await asyncio.to_thread(self.server.wait_settled, *events)

    def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def play(
    server: SlackServer, act: Callable[[Listener], Awaitable[None]], **options: Any
) -> Listener:
    """Run `act` while an adapter listens."""

    async def run() -> Listener:
        listener = Listener(server, **options)
        async with asyncio.timeout(60):
            listener.start()
            try:
                await act(listener)
            finally:
                await listener.stop()
                await listener.adapter.close()
        return listener

    return asyncio.run(run())


def call(server: SlackServer, act: Callable[[SlackAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""
    server.add_channel("D1")
    server.add_channel("C1")

    async def run() -> Any:
        adapter = SlackAdapter(BOT_TOKEN, app_token=APP_TOKEN, base_url=f"{server.url}/api")
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": "D1", "text": text, **fields})


def formatted(markdown: str, **fields: Any) -> Outgoing:
    (part,) = format_text(markdown)
    return outgoing(part.text, spans=part.spans, **fields)


async def read_all(adapter: SlackAdapter, media: Media) -> bytes:
    return b"".join([piece async for piece in adapter.fetch(media)])
