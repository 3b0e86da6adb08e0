"""The buttons of an approval on Discord: components and interactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.buttons import Button
from tertulia.platforms.discord.adapter import DiscordAdapter
from tests.http.served_gateway import ServedGateway
from tests.platforms.approval_buttons import ApprovalButtons, ButtonScene, Person
from tests.servers.discord import ANA, THREAD, TOKEN, DiscordServer, shown

BEN = {**ANA, "id": "43", "username": "ben", "global_name": "Ben"}


class DiscordScene(ButtonScene):
    """A thread of a server."""

    platform = "discord"

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        self._newest: dict[str, object] = {}

    def adapter(self) -> DiscordAdapter:
        return DiscordAdapter(TOKEN, base_url=self.server.base_url)

    def connect(self, gateway: ServedGateway) -> None:
        self.server.wait_connected()

    def write(self, text: str) -> None:
        self.server.write(THREAD, text)

    def press(self, value: str, who: Person = "ana") -> None:
        user = ANA if who == "ana" else BEN
        self._newest = self.server.press(self._question, value, user=user)

    def repeat_press(self) -> None:
        self.server.dispatch("INTERACTION_CREATE", self._newest)

    def texts(self) -> list[str]:
        assert {message.channel for message in self.server.sent} <= {THREAD}
        ids = [message.message_id for message in self.server.sent]
        return [shown(self.server.messages[number]["content"]) for number in ids]

    def buttons(self) -> list[Button]:
        if not self._question:
            return []
        return [Button(*button) for button in self.server.buttons(self._question)]

    def count_unacknowledged(self) -> int:
        return [item["state"] for item in self.server.interactions.values()].count("new")

    @property
    def _question(self) -> str:
        questions = [message for message in self.server.sent if message.has_buttons]
        return questions[-1].message_id if questions else ""


class TestDiscordApprovals(ApprovalButtons):
    @contextmanager
    def scene(self) -> Iterator[DiscordScene]:
        with DiscordServer() as server:
            yield DiscordScene(server)
        assert server.violations == []
        assert server.pings == []
