"""The buttons of an approval on Slack: blocks, by Socket Mode and by the Events API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.buttons import Button
from tertulia.platforms.slack.adapter import SlackAdapter
from tests.http.served_gateway import ServedGateway
from tests.platforms.approval_buttons import ApprovalButtons, ButtonScene, Person
from tests.servers.slack import (
    ANA,
    APP_TOKEN,
    BOT_TOKEN,
    SIGNING_SECRET,
    Event,
    SlackServer,
    unescape,
)

CHANNEL = "C1"


class SlackScene(ButtonScene):
    """A thread of a channel."""

    platform = "slack"

    def __init__(self, server: SlackServer, *, is_socket: bool) -> None:
        self.server = server
        self._is_socket = is_socket
        self._thread = server.message(CHANNEL, ANA, "the thread")["ts"]
        self._presses: list[Event] = []

    def adapter(self) -> SlackAdapter:
        url = f"{self.server.url}/api"
        if self._is_socket:
            return SlackAdapter(BOT_TOKEN, base_url=url, app_token=APP_TOKEN, connections=1)
        return SlackAdapter(BOT_TOKEN, base_url=url, signing_secret=SIGNING_SECRET)

    def connect(self, gateway: ServedGateway) -> None:
        if not self._is_socket:
            self.server.http_target = f"{gateway.url}/platforms/slack"

    def write(self, text: str) -> None:
        self.server.write(CHANNEL, text, thread=self._thread)

    def press(self, value: str, who: Person = "ana") -> None:
        user = ANA if who == "ana" else "UBEN"
        self._presses.append(self.server.press(CHANNEL, self._question, value, user=user))

    def repeat_press(self) -> None:
        self._presses.append(self.server.push_payload(self._presses[-1].payload))

    def texts(self) -> list[str]:
        assert {message.thread for message in self.server.sent} <= {self._thread}
        messages = [self.server.messages[CHANNEL, message.ts] for message in self.server.sent]
        return [unescape(message["text"]) for message in messages]

    def buttons(self) -> list[Button]:
        if not self._question:
            return []
        return [Button(*button) for button in self.server.buttons(CHANNEL, self._question)]

    def count_unacknowledged(self) -> int:
        return sum(event.state != "acknowledged" for event in self._presses)

    @property
    def _question(self) -> str:
        questions = [message for message in self.server.sent if message.has_buttons]
        return questions[-1].ts if questions else ""


class TestSocketModeApprovals(ApprovalButtons):
    @contextmanager
    def scene(self) -> Iterator[SlackScene]:
        with SlackServer() as server:
            yield SlackScene(server, is_socket=True)
        assert server.violations == []
        assert server.pings == []


class TestEventsApiApprovals(ApprovalButtons):
    @contextmanager
    def scene(self) -> Iterator[SlackScene]:
        with SlackServer() as server:
            server.pauses = (0.05,) * 200  # while the gateway is down
            yield SlackScene(server, is_socket=False)
        assert server.violations == []
        assert server.pings == []
