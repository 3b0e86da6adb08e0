"""A gateway with a Signal account that is killed with -9, at each station of a message.

Signal gives a message once: one that is handed over when the only process dies is lost, which the
documentation says. From the moment it is stored it is answered once; a send around which the
process died is unknown, which is shown, and it is not sent again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

import tertulia
from tests.crash.chat_node import PATIENCE, chat_node, drain, exit_code
from tests.crash.chat_process import SETTINGS, STEPS
from tests.servers.signal import SignalServer

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)


def wait_settled(where: str, last: str) -> dict[str, str]:
    """Wait until the last answer and all before it are settled; return the state of each."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            page = store.outbox.find(limit=500)
            states: dict[str, str] = {item.body["text"]: item.state for item in page.items}
            if last in states and not {"waiting", "sending"} & {*states.values()}:
                return states
            time.sleep(0.1)  # the database has no other way to tell another process's progress
    raise AssertionError(f"not settled: {states}")


def kill_at(where: str, step: str) -> None:
    """Kill a gateway at a step of a message, and look what becomes of the message."""
    with SignalServer() as server:
        with chat_node("signal", where, server.url, step) as child:
            server.wait_listening()
            server.write("hola")
            assert exit_code(child) == -9
        server.cut()  # the daemon notices only when it writes that the listener is gone
        server.wait(lambda: not server.listeners, PATIENCE)
        server.write("while nobody listens")
        with chat_node("signal", where, server.url) as child:
            wait_settled(where, "re while nobody listens")
            server.write("and then")
            states = wait_settled(where, "re and then")
            drain(child)
        assert server.violations == []
        texts = Counter(server.texts)
    assert (texts["re while nobody listens"], texts["re and then"]) == (1, 1)
    if step == "received":
        assert "re hola" not in states  # Signal has forgotten it, and nobody had stored it
    elif states["re hola"] == "unknown":
        assert step in ("sending", "sent", "answered")
        assert texts["re hola"] <= 1
    else:
        assert (states["re hola"], texts["re hola"]) == ("sent", 1)
        assert step not in ("sending", "sent")


@pytest.mark.parametrize("step", ["stored", pytest.param("sent", marks=pytest.mark.slow)])
def test_message_is_answered_once_after_a_kill(tmp_path: Path, step: str) -> None:
    kill_at(str(tmp_path / "talk.db"), step)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_twenty_kills_at_each_station(tmp_path: Path, step: str) -> None:
    for number in range(20):
        kill_at(str(tmp_path / f"talk-{number}.db"), step)
