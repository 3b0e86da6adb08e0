"""A gateway with a Slack app or a WhatsApp number that is killed with -9, at each station.

Each message is answered once. Only if the process died around a send, nobody can tell whether the
answer arrived: then the delivery is `unknown`, which is shown, and it is not sent again.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import tertulia
from tests.crash.chat_node import PATIENCE, Node, chat_node, drain, exit_code
from tests.crash.chat_process import SETTINGS, STEPS
from tests.servers.ports import free_port
from tests.servers.slack import SlackServer
from tests.servers.whatsapp import ANA, WhatsAppServer

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

PLATFORMS = ("slack", "whatsapp")
Server = SlackServer | WhatsAppServer


class Scene:
    """A server of a platform, and the gateways that it reaches."""

    def __init__(self, platform: str, server: Server, where: str) -> None:
        self.platform = platform
        self.server = server
        self.where = where
        self.port = free_port()
        if isinstance(server, WhatsAppServer):
            server.webhook = f"http://127.0.0.1:{self.port}/platforms/whatsapp"
        else:
            # Repeated for as long as it takes a gateway to start on a busy machine.
            server.pauses = (0.2,) * 1000
            server.ack_seconds = 3.0

    def write(self, text: str) -> None:
        if isinstance(self.server, WhatsAppServer):
            self.server.write(ANA, text)
        else:
            self.server.write("D1", text)

    def aim(self, port: int) -> None:
        """Let WhatsApp call the node at a port; Slack chooses one of the connections itself."""
        if isinstance(self.server, WhatsAppServer):
            self.server.webhook = f"http://127.0.0.1:{port}/platforms/whatsapp"

    def wait_for_both(self, port: int) -> None:
        """Wait until this node and the one at `port` accept messages."""
        if isinstance(self.server, SlackServer):
            self.server.wait_sockets(2)
            return
        for number in (self.port, port):
            deadline = time.monotonic() + PATIENCE
            while not _is_open(number) and time.monotonic() < deadline:
                time.sleep(0.1)  # another process has no other way to tell that it listens

    @property
    def is_acknowledged(self) -> bool:
        if isinstance(self.server, WhatsAppServer):
            return all(pushed.is_accepted for pushed in self.server.notifications)
        return all(event.state == "acknowledged" for event in self.server.events)

    def node(self, step: str = "none", port: int | None = None) -> AbstractContextManager[Node]:
        """Run a gateway; in the end it is killed if it still runs."""
        port = port or self.port
        return chat_node(self.platform, self.where, self.server.url, step, port=port)

    def wait_settled(self, messages: int) -> dict[str, str]:
        """Wait until every message has an answer; return the state of each by its text."""
        deadline = time.monotonic() + PATIENCE
        with tertulia.open(self.where, settings=SETTINGS) as store:
            while time.monotonic() < deadline:
                page = store.outbox.find(limit=500)
                states: dict[str, str] = {item.body["text"]: item.state for item in page.items}
                is_open = {"waiting", "sending"} & {*states.values()}
                if len(states) == messages and not is_open and self.is_acknowledged:
                    return states
                time.sleep(0.1)  # the database has no other way to tell another's progress
        raise AssertionError(f"not settled: {states}")


@contextmanager
def scene(platform: str, where: str) -> Iterator[Scene]:
    with (SlackServer if platform == "slack" else WhatsAppServer)() as server:
        yield Scene(platform, server, where)
        assert server.violations == []


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def kill_at(platform: str, where: str, step: str) -> None:
    """Kill a gateway at a step of a message, and look what becomes of the message."""
    with scene(platform, where) as play:
        play.write("hola")
        with play.node(step) as child:
            assert exit_code(child) == -9
        with play.node() as child:
            play.wait_settled(1)
            # The account works on, whatever became of that message.
            play.write("and then")
            states = play.wait_settled(2)
            drain(child)
        texts = Counter(play.server.texts)
    assert texts["re and then"] == 1
    if states["re hola"] == "unknown":
        assert step in ("sending", "sent", "answered")
        assert texts["re hola"] <= 1
        assert step != "sending" or texts["re hola"] == 0
    else:
        assert (states["re hola"], texts["re hola"]) == ("sent", 1)
        assert step not in ("sending", "sent")


@pytest.mark.parametrize(
    ("platform", "step"),
    [("slack", "stored"), pytest.param("whatsapp", "sent", marks=pytest.mark.slow)],
)
def test_message_is_answered_once_after_a_kill(where: str, platform: str, step: str) -> None:
    kill_at(platform, where, step)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_twenty_kills_at_each_station(tmp_path: Path, platform: str, step: str) -> None:
    for number in range(20):
        kill_at(platform, str(tmp_path / f"talk-{number}.db"), step)


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
def test_two_nodes_answer_once_and_one_goes_on_without_the_other(where: str, platform: str) -> None:
    with scene(platform, where) as play:
        port = free_port()
        with play.node() as first, play.node(port=port) as second:
            play.wait_for_both(port)
            for number in range(15):
                play.aim(port if number % 2 else play.port)
                play.write(f"m{number}")
            play.server.wait_sent(3)
            first.kill()
            assert exit_code(first) == -9
            play.aim(port)  # a load balancer notices that a node is gone
            for number in range(15, 30):
                play.write(f"m{number}")
            states = play.wait_settled(30)
            drain(second)
        texts = Counter(play.server.texts)
    for number in range(30):
        text = f"re m{number}"
        # What the first node was sending when it died may have arrived, and is not sent again.
        is_unknown = number < 15 and (states[text], texts[text]) in (("unknown", 0), ("unknown", 1))
        assert is_unknown or (states[text], texts[text]) == ("sent", 1), text
