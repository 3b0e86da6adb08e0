"""A gateway with a Discord bot that is killed with -9, at each station of a message.

Each message is answered once. Discord remembers the key of a delivery, so one whose process died
around its send is sent again and arrives once. The next process resumes the session of the last, or
reads the channels if Discord has forgotten it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import tertulia
from tests.crash.chat_node import PATIENCE, chat_node, drain, exit_code
from tests.crash.chat_process import SETTINGS, STEPS
from tests.servers.discord import DM, THREAD, DiscordServer
from tests.servers.postgres import Server

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)


def wait_settled(where: str, texts: set[str]) -> dict[str, str]:
    """Wait until every text was delivered, or is unknown; return the state of each."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            page = store.outbox.find(limit=500)
            states: dict[str, str] = {item.body["text"]: item.state for item in page.items}
            if states.keys() == texts and not {"waiting", "sending"} & {*states.values()}:
                return states
            time.sleep(0.1)  # the database has no other way to tell another process's progress
    raise AssertionError(f"not settled: {states}")


def wait_stored(where: str, messages: int) -> None:
    """Wait until so many messages were accepted."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while len(store.inbox.find(limit=500).items) < messages:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # the database has no other way to tell another process's progress


def kill_at(where: str, step: str, *, expires: bool = False) -> None:
    """Kill a gateway at a step of a message, and look what becomes of the message."""
    with DiscordServer() as server:
        # With the lease of production: a shorter one ends in a busy process, which then begins a
        # session once more. Nobody waits for its end, because the dead process is noticed.
        with chat_node("discord", where, server.url, step, lease=15.0) as child:
            server.wait_connected()
            server.write(DM, "hola")
            assert exit_code(child) == -9
        if expires:
            server.expire_sessions()
        server.write(THREAD, "<@900> meanwhile", mentions_bot=True)
        with chat_node("discord", where, server.url, lease=15.0) as child:
            wait_settled(where, {"re hola", "re <@900> meanwhile"})
            # The bot works on, whatever became of that message.
            server.write(DM, "and then")
            answers = {"re hola", "re <@900> meanwhile", "re and then"}
            states = wait_settled(where, answers)
            drain(child)
        assert server.violations == []
        assert server.identifies == (2 if expires else 1)
        assert Counter(server.texts) == dict.fromkeys(answers, 1)
    assert set(states.values()) == {"sent"}


@pytest.mark.parametrize(("step", "expires"), [("stored", True), ("sent", True)])
def test_message_is_answered_once_after_a_kill(tmp_path: Path, step: str, expires: bool) -> None:
    kill_at(str(tmp_path / "talk.db"), step, expires=expires)


@pytest.mark.slow
@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_twenty_kills_at_each_station(tmp_path: Path, step: str, expires: bool) -> None:
    for number in range(20):
        kill_at(str(tmp_path / f"talk-{number}.db"), step, expires=expires)


@pytest.mark.parametrize(
    "trouble",
    ["killed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("stopped", "drained"))],
)
def test_another_node_goes_on_with_the_session(postgres: Server, trouble: str) -> None:
    """Two gateways on one PostgreSQL and one bot: the session is taken over, none is begun."""
    where = postgres.database(postgres.template)
    with (
        DiscordServer() as server,
        chat_node("discord", where, server.url, lease=15.0) as first,
    ):
        server.wait_connected()
        server.write(DM, "m0")
        wait_settled(where, {"re m0"})
        with chat_node("discord", where, server.url, lease=15.0) as second:
            if trouble == "killed":
                first.kill()
            elif trouble == "stopped":
                os.kill(first.pid or 0, signal.SIGSTOP)
            else:
                drain(first)
            began = time.monotonic()
            server.write(DM, "m1")
            wait_stored(where, 2)
            print(f"{trouble}: stored by the other node after {time.monotonic() - began:.1f} s")
            server.wait(lambda: "re m1" in server.texts, PATIENCE)
            if trouble == "stopped":
                os.kill(first.pid or 0, signal.SIGCONT)
            server.write(DM, "m2")
            answers = {"re m0", "re m1", "re m2"}
            states = wait_settled(where, answers)
            drain(second)
            if trouble == "stopped":
                drain(first)
        assert Counter(server.texts) == dict.fromkeys(answers, 1)
        assert set(states.values()) == {"sent"}
        assert server.identifies == 1
        assert server.violations == []
    postgres.drop(where)
