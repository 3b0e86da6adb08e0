"""An adapter of a mailbox for tests, alone or in a running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tertulia import aio
from tertulia.agents.base import Agent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Incoming, Update
from tertulia.platforms.email import EmailSettings
from tertulia.platforms.email.adapter import EmailAdapter
from tertulia.platforms.email.wire import MailServerAddress
from tests.gateway.running_gateway import FAST, OPEN, Echo, until
from tests.servers.mail import AUTH_SERVER, PASSWORD, MailServers

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"email": OPEN})


def new_adapter(
    mail: MailServers, address: str, *, account: str = "", password: str = PASSWORD, **options: Any
) -> EmailAdapter:
    """Return an adapter that is not connected yet."""
    fields: dict[str, Any] = {
        "address": address,
        "imap_url": mail.imap_url,
        "smtp_url": mail.smtp_url,
        "auth_server": AUTH_SERVER,
        **options,
    }
    settings = EmailSettings(**fields)
    return EmailAdapter(
        settings,
        password,
        imap=MailServerAddress.parse(settings.imap_url, "imap", "imap_url"),
        smtp=MailServerAddress.parse(settings.smtp_url, "smtp", "smtp_url"),
        account=account,
    )


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, adapter: EmailAdapter) -> None:
        self.adapter = adapter
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    async def receive(self, update: Update) -> None:
        if self.failures and isinstance(update, Incoming):
            raise self.failures.pop()
        self.updates.append(update)

    async def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))
        await self.until(lambda: self.adapter.state.listening)

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)
        cursors = [update.cursor for update in self.updates if update.cursor is not None]
        self.adapter.cursor = cursors[-1] if cursors else self.adapter.cursor

    async def until(self, condition: Callable[[], Any]) -> None:
        await until(condition, "the listener", self.listening)

    async def wait_texts(self, *texts: str) -> None:
        await self.until(lambda: len(self.messages) >= len(texts))
        assert self.texts == list(texts)


def listen(
    mail: MailServers, act: Callable[[Listener, str], Awaitable[None]], **options: Any
) -> Listener:
    """Run `act` with the address of a new mailbox while an adapter listens there."""
    address = mail.add_mailbox()
    listener = Listener(new_adapter(mail, address, **options))

    async def run() -> None:
        async with asyncio.timeout(120):
            await listener.start()
            try:
                await act(listener, address)
            finally:
                await listener.stop()
                await listener.adapter.close()

    asyncio.run(run())
    return listener


@asynccontextmanager
async def mail_gateway(
    where: str,
    mail: MailServers,
    address: str,
    agent: Agent | None = None,
    *,
    settings: GatewaySettings = RULES,
    **options: Any,
) -> AsyncIterator[aio.Store]:
    """Run a gateway with a mailbox until it listens; in the end it is stopped."""
    adapter = new_adapter(mail, address, **options)
    async with aio.open(where, settings=FAST) as store:
        gateway = Gateway(store, agent or Echo(), [adapter], settings=settings)
        serving = asyncio.create_task(gateway.run())
        try:
            async with asyncio.timeout(120):
                await until(lambda: adapter.state.listening, "the mailbox is open", serving)
                yield store
        finally:
            gateway.stop()
            await serving
