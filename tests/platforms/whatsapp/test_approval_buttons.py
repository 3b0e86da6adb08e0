"""The buttons of an approval on WhatsApp: reply buttons, which cannot be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tertulia.core.buttons import Button
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.http.served_gateway import ServedGateway
from tests.platforms.approval_buttons import ApprovalButtons, ButtonScene, Person
from tests.servers.whatsapp import (
    ANA,
    APP_SECRET,
    NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    WhatsAppServer,
    contact,
)

BEN = "34600333444"
PREFIX = "tertulia:"


class WhatsAppScene(ButtonScene):
    """A private chat; Ben has got hold of the values of its buttons."""

    platform = "whatsapp"
    edits = False
    labels = ("Approve once", "This session", "Deny")

    def __init__(self, server: WhatsAppServer) -> None:
        self.server = server
        self._newest: dict[str, Any] = {}

    def adapter(self) -> WhatsAppAdapter:
        return WhatsAppAdapter(
            TOKEN, app_secret=APP_SECRET, verify_token=VERIFY_TOKEN, phone_number_id=NUMBER_ID,
            base_url=f"{self.server.url}/v23.0",
        )  # fmt: skip

    def connect(self, gateway: ServedGateway) -> None:
        self.server.webhook = f"{gateway.url}/platforms/whatsapp"

    def write(self, text: str) -> None:
        self.server.write(ANA, text)

    def press(self, value: str, who: Person = "ana") -> None:
        number = ANA if who == "ana" else BEN
        (question,) = [message for message in self.server.sent if message.buttons]
        self._newest = self.server.press(question, f"{PREFIX}{value}", number=number)

    def repeat_press(self) -> None:
        self.server.notify_app(messages=[self._newest], contacts=[contact(ANA)])

    def texts(self) -> list[str]:
        return self.server.texts

    def buttons(self) -> list[Button]:
        return [
            Button(label, value.removeprefix(PREFIX))
            for message in self.server.sent
            for label, value in message.buttons
        ]

    def count_unacknowledged(self) -> int:
        return sum(not pushed.is_accepted for pushed in self.server.notifications)


class TestWhatsAppApprovals(ApprovalButtons):
    @contextmanager
    def scene(self) -> Iterator[WhatsAppScene]:
        with WhatsAppServer() as server:
            yield WhatsAppScene(server)
        assert server.violations == []
