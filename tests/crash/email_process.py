"""A gateway with a mailbox in a process of its own, which dies at a named step.

    python -m tests.crash.email_process STORE IMAP_URL SMTP_URL ADDRESS STEP LEASE

LEASE is how many seconds this node may listen without renewing it. It runs until it is killed, or
drains after SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from tertulia import aio
from tertulia.gateway import listening
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Outgoing, Receive, Update
from tertulia.platforms.email import EmailSettings
from tertulia.platforms.email.adapter import EmailAdapter
from tertulia.platforms.email.imap import ImapConnection
from tertulia.platforms.email.wire import MailServerAddress
from tertulia.platforms.settings import PlatformSettings
from tertulia.records import listeners
from tests.crash.gateway_process import Death
from tests.crash.telegram_process import SETTINGS, Echo
from tests.servers.mail import AUTH_SERVER, PASSWORD

RULES = GatewaySettings(
    gather_seconds=0,
    waiting_per_person=10_000,
    platforms={"email": PlatformSettings(admission="everyone")},
)
# The stations of a mail; in the last two the SMTP server may or may not have the answer.
STEPS = ("received", "stored", "seen", "answering", "answered", "sending", "sent")


class DyingAdapter(EmailAdapter):
    """A mailbox whose process dies at a step of a mail."""

    death: Death

    async def listen(self, receive: Receive) -> None:
        async def dying(update: Update) -> None:
            is_mail = type(update).__name__ == "Incoming"
            if is_mail:
                self.death.at("received")
            await receive(update)
            if is_mail:
                self.death.at("stored")

        await super().listen(dying)

    async def _acknowledge(self, imap: ImapConnection, uid: int) -> None:
        await super()._acknowledge(imap, uid)
        self.death.at("seen")

    async def send(self, message: Outgoing) -> str | None:
        self.death.at("sending")
        message_id = await super().send(message)
        self.death.at("sent")
        return message_id


async def serve(
    where: str, imap_url: str, smtp_url: str, address: str, step: str, lease: str
) -> None:
    listeners.LEASE_SECONDS = float(lease)
    listening._RENEW_SECONDS = float(lease) / 3
    death = Death(step)
    settings = EmailSettings(
        address=address, imap_url=imap_url, smtp_url=smtp_url, auth_server=AUTH_SERVER
    )
    adapter = DyingAdapter(
        settings,
        PASSWORD,
        imap=MailServerAddress.parse(imap_url, "imap", "imap_url"),
        smtp=MailServerAddress.parse(smtp_url, "smtp", "smtp_url"),
    )
    adapter.death = death
    async with aio.open(where, settings=SETTINGS) as store:
        gateway = Gateway(store, Echo(death), [adapter], settings=RULES)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
        await gateway.run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
