"""The buttons of an approval on Telegram: inline keyboards and callback queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.buttons import Button
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tests.platforms.approval_buttons import ApprovalButtons, ButtonScene, Person
from tests.servers.telegram import ANA, TOKEN, TelegramServer

GROUP = -100
TOPIC = 7
BEN = {"id": 43, "is_bot": False, "first_name": "Ben"}


class TelegramScene(ButtonScene):
    """A topic of a forum."""

    platform = "telegram"

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        server.forum(GROUP, TOPIC)

    def adapter(self) -> TelegramAdapter:
        return TelegramAdapter(TOKEN, base_url=self.server.url)

    def write(self, text: str) -> None:
        self.server.write(GROUP, text, thread=TOPIC)

    def press(self, value: str, who: Person = "ana") -> None:
        user = ANA if who == "ana" else BEN
        self.server.press((GROUP, self._question), user=user, data=value)

    def repeat_press(self) -> None:
        self.server.push(self.server.pressed[-1])

    def texts(self) -> list[str]:
        assert {message.thread_id for message in self.server.sent} <= {TOPIC}
        ids = [message.message_id for message in self.server.sent]
        return [self.server.messages[GROUP, number]["text"] for number in ids]

    def buttons(self) -> list[Button]:
        return [Button(*button) for button in self.server.buttons((GROUP, self._question))]

    def count_unacknowledged(self) -> int:
        return list(self.server.presses.values()).count(False)

    @property
    def _question(self) -> int:
        questions = [message for message in self.server.sent if message.buttons]
        return questions[-1].message_id if questions else 1


class TestTelegramApprovals(ApprovalButtons):
    @contextmanager
    def scene(self) -> Iterator[TelegramScene]:
        with TelegramServer() as server:
            yield TelegramScene(server)
        assert server.violations == []
