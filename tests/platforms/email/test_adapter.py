"""The adapter of a mailbox against real servers: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import imaplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.platforms.email.mail_gateway import new_adapter
from tests.servers.mail import ANA, MailServers

pytestmark = pytest.mark.check


class EmailScene(AdapterFixture):
    chat = ANA
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, mail: MailServers) -> None:
        self.mail = mail
        self.address = mail.add_mailbox()
        self.adapter = adapter = new_adapter(mail, self.address)
        self._ids: dict[str, str] = {}
        self._client: imaplib.IMAP4 | None = None
        self._rejected = 0
        pause = adapter._pause

        async def count_and_pause(reason: str, attempts: int) -> None:
            self._rejected += 1
            await pause(reason, attempts)

        adapter._pause = count_and_pause  # type: ignore[method-assign]

    async def write(self, text: str, message_id: str) -> bool:
        while not self.adapter.state.listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        rejected = self._rejected
        if message_id not in self._ids:
            mail = await asyncio.to_thread(self.mail.write, self.address, text)
            self._ids[message_id] = str(mail["Message-ID"])
        while not await asyncio.to_thread(self._is_seen, self._ids[message_id]):
            if self._rejected > rejected:
                return False
            await asyncio.sleep(0.01)
        return True

    def _is_seen(self, message_id: str) -> bool:
        return self.mail.is_seen(self.address, message_id)

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.mail.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        smtp = self.mail.smtp
        if mishap == "unavailable":
            smtp.refuse()
            smtp.tries = 0
            return
        station, answer = {
            "rate_limited": ("RCPT", "451 4.7.1 Greylisted, please come back"),
            "refused": ("RCPT", "550 5.1.1 No such user"),
            "too_large": ("DATA", "552 5.3.4 Message too big"),
            "unknown": ("DATA", "cut"),
        }[mishap]
        smtp.spoil(station, answer)

    def tries(self) -> int:
        return self.mail.smtp.tries


class TestEmailAdapter(AdapterContract):
    @pytest.fixture(autouse=True)
    def _servers(self, mail: MailServers) -> None:
        self.mail = mail

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        try:
            yield EmailScene(self.mail)
        finally:
            if self.mail.smtp._listener is None:
                self.mail.smtp.open()
