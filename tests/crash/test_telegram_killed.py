"""A gateway with a Telegram bot that is killed with -9, at each station of a message.

Each message is answered once. Only if the process died around a send, nobody can tell whether the
answer arrived: then the delivery is `unknown`, which is shown, and it is not sent again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tertulia
from tests.crash.telegram_process import SETTINGS, STEPS
from tests.servers.telegram import TelegramServer

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

_ROOT = Path(__file__).parents[2]
PATIENCE = 180.0


@contextmanager
def node(
    where: str, server: TelegramServer, step: str = "none", lease: float = 2.0
) -> Iterator[subprocess.Popen[str]]:
    """Run a gateway; in the end it is killed if it still runs."""
    program = [sys.executable, "-m", "tests.crash.telegram_process"]
    child = subprocess.Popen(
        [*program, where, server.url, step, str(lease)],
        cwd=_ROOT,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=PATIENCE)


def drain(child: subprocess.Popen[str]) -> None:
    """Stop a gateway as a service manager does."""
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE) == 0


def wait_settled(where: str, server: TelegramServer, messages: int) -> dict[str, str]:
    """Wait until every message has an answer; return the state of each answer by its text."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            page = store.outbox.find(limit=500)
            states: dict[str, str] = {item.body["text"]: item.state for item in page.items}
            open_states = [state for state in states.values() if state in ("waiting", "sending")]
            if len(states) == messages and not open_states and not server.pending:
                return states
            time.sleep(0.1)  # the database has no other way to tell another process's progress
    raise AssertionError(f"not settled: {states}, pending {len(server.pending)}")


@pytest.mark.parametrize("step", STEPS)
def test_message_is_answered_once_after_a_kill(where: str, step: str) -> None:
    with TelegramServer() as server:
        server.write(42, "hola")
        with node(where, server, step) as child:
            assert child.wait(PATIENCE) == -9
        with node(where, server) as child:
            states = wait_settled(where, server, 1)
            # The bot works on, whatever became of that message.
            server.write(42, "and then")
            states = wait_settled(where, server, 2)
            drain(child)
        assert server.violations == []
        texts = Counter(server.texts)
    assert texts["re and then"] == 1
    if states["re hola"] == "unknown":
        assert step in ("sending", "sent", "answered")
        assert texts["re hola"] <= 1
        assert step != "sending" or texts["re hola"] == 0
    else:
        assert (states["re hola"], texts["re hola"]) == ("sent", 1)
        assert step not in ("sending", "sent")


def test_drained_gateway_leaves_nothing_unknown(where: str) -> None:
    with TelegramServer() as server:
        for number in range(20):
            server.write(42 + number % 5, f"m{number}")
        with node(where, server) as child:
            server.wait_sent(3)
            drain(child)
        polls = server.polls
        with node(where, server) as child:
            server.wait(lambda: server.polls > polls)  # it handles signals by then
            states = wait_settled(where, server, 20)
            drain(child)
        assert Counter(server.texts) == {f"re m{number}": 1 for number in range(20)}
        assert set(states.values()) == {"sent"}


def kill_at_random(where: str, kills: int, seed: int) -> None:
    """Kill a gateway at random moments while people write; check every answer in the end."""
    chance = random.Random(seed)
    messages = 0
    with TelegramServer() as server:
        for _ in range(kills):
            with node(where, server, "none") as child:
                server.wait(lambda: server.polls > 0)
                for _ in range(chance.randint(1, 4)):
                    server.write(42 + messages % 7, f"m{messages}")
                    messages += 1
                goal = len(server.sent) + chance.randint(0, 3)
                deadline = time.monotonic() + chance.random() * 2
                while len(server.sent) < goal and time.monotonic() < deadline:
                    time.sleep(0.005)
                child.kill()
                assert child.wait(PATIENCE) == -9
        polls = server.polls
        with node(where, server) as child:
            server.wait(lambda: server.polls > polls)  # it handles signals by then
            states = wait_settled(where, server, messages)
            drain(child)
        texts = Counter(server.texts)
        assert server.violations == []
    for number in range(messages):
        text = f"re m{number}"
        if states[text] == "sent":
            assert texts[text] == 1, text
        else:
            assert states[text] == "unknown", text
            assert texts[text] <= 1, text


def test_random_kills_lose_and_double_nothing(where: str) -> None:
    kill_at_random(where, kills=3, seed=random.randrange(2**32))


@pytest.mark.slow
def test_a_hundred_random_kills_lose_and_double_nothing(where: str) -> None:
    kill_at_random(where, kills=100, seed=random.randrange(2**32))
