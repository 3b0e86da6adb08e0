"""Four gateways on one PostgreSQL and one Telegram bot: one listens, whatever happens to it.

No update is lost or answered twice, and no two nodes fight for the bot: two polls at once would be
a conflict, which Telegram answers with 409.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import tertulia
from tests.crash.telegram_process import SETTINGS
from tests.crash.test_telegram_killed import PATIENCE, drain, node, wait_settled
from tests.servers.postgres import Server
from tests.servers.proxy import proxy
from tests.servers.telegram import TelegramServer

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

NODES = 4
LEASE = 15.0  # that of production: another node listens within 20 s
Node = subprocess.Popen[str]


@contextmanager
def cluster(where: str, server: TelegramServer) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(node(where, server, lease=LEASE)) for _ in range(NODES)]
        server.wait(lambda: server.polls > 1)
        yield nodes


def listener_of(where: str, nodes: list[Node]) -> Node:
    """Return the node that listens now."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            listening = {
                int(connection.node.split(":")[1])
                for connection in store.listeners.connections()
                if connection.listening
            }
            alive = [child for child in nodes if child.pid in listening and child.poll() is None]
            if len(alive) == 1:
                return alive[0]
            time.sleep(0.1)
    raise AssertionError("no node says that it listens")


def write_and_wait(server: TelegramServer, first: int, count: int) -> float:
    """Let people write, and wait for all answers; return the seconds until the first one."""
    began, before = time.monotonic(), len(server.sent)
    for number in range(first, first + count):
        server.write(42 + number % 5, f"m{number}")
    server.wait(lambda: len(server.sent) > before, PATIENCE)
    seconds = time.monotonic() - began
    server.wait(lambda: len(server.sent) >= before + count, PATIENCE)
    return seconds


def check(
    where: str,
    server: TelegramServer,
    messages: int,
    outcomes: frozenset[str] = frozenset({"sent"}),
) -> None:
    states = wait_settled(where, server, messages)
    assert Counter(server.texts) == {f"re m{number}": 1 for number in range(messages)}
    assert set(states.values()) <= outcomes
    assert server.violations == []


@pytest.mark.parametrize(
    "trouble", ["killed", "stopped", pytest.param("drained", marks=pytest.mark.slow)]
)
def test_another_node_listens_when_the_listener_is_gone(postgres: Server, trouble: str) -> None:
    where = postgres.database(postgres.template)
    with TelegramServer() as server, cluster(where, server) as nodes:
        write_and_wait(server, 0, 10)
        listener = listener_of(where, nodes)
        if trouble == "killed":
            listener.kill()
        elif trouble == "stopped":
            os.kill(listener.pid, signal.SIGSTOP)
        else:
            drain(listener)
        write_and_wait(server, 10, 10)
        listener_of(where, [child for child in nodes if child is not listener])
        if trouble == "stopped":
            os.kill(listener.pid, signal.SIGCONT)
        write_and_wait(server, 20, 10)
        # A node that was killed may have sent an answer and not stored that.
        outcomes = frozenset({"sent", "unknown"} if trouble == "killed" else {"sent"})
        check(where, server, 30, outcomes)
        # The new listener ends the poll that the old one has left open, and that is all.
        assert server.conflicts <= 2
        for child in nodes:
            if child.poll() is None:
                drain(child)
    postgres.drop(where)


def test_no_node_loses_anything_when_telegram_is_cut_off(postgres: Server) -> None:
    where = postgres.database(postgres.template)
    with TelegramServer() as server, cluster(where, server):
        write_and_wait(server, 0, 5)
        wait_settled(where, server, 5)
        server.refuse()
        for number in range(5, 15):
            server.write(42 + number % 5, f"m{number}")
        server.open()
        server.wait(lambda: len(server.sent) >= 15, PATIENCE)
        check(where, server, 15)
        assert server.conflicts == 0
    postgres.drop(where)


def test_another_node_listens_when_the_listener_is_cut_off_from_its_database(
    postgres: Server,
) -> None:
    """It still reaches Telegram, but could store nothing: it has to let go of the bot."""
    where = postgres.database(postgres.template)
    with (
        TelegramServer() as server,
        proxy(where) as line,
        node(line.address, server, lease=LEASE) as cut_off,
    ):
        server.wait(lambda: server.polls > 1)
        write_and_wait(server, 0, 3)
        with node(where, server, lease=LEASE) as other:
            assert listener_of(where, [cut_off, other]) is cut_off
            wait_settled(where, server, 3)
            line.close()
            seconds = write_and_wait(server, 3, 5)
            print(f"answered by another node after {seconds:.1f} s")
            assert listener_of(where, [other]) is other
            check(where, server, 8)
            assert cut_off.poll() is None
            assert server.conflicts <= 2
            drain(other)
    postgres.drop(where)
