"""A gateway that is killed with -9: each message is answered once, because sends are idempotent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tests.crash.gateway_process import SETTINGS
from tests.matrix.gateway_process import STEPS
from tests.matrix.people import PATIENCE, people
from tests.servers.synapse import ROOT, Synapse

pytestmark = pytest.mark.check


def start(where: str, base_url: str, token: str, step: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.matrix.gateway_process", where, base_url, step]
    environ = {**os.environ, "MATRIX_TOKEN": token}
    return subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL)


# Two processes for each step: the others run with the slow tests.
_QUICK = ("stored", "drafted", "sent")


@pytest.mark.parametrize(
    "step",
    [step if step in _QUICK else pytest.param(step, marks=pytest.mark.slow) for step in STEPS],
)
def test_message_is_answered_once_after_a_kill(synapse: Synapse, tmp_path: Path, step: str) -> None:
    where = str(tmp_path / "talk.db")

    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent)
            await ana.send(room, "hello")
            killed = start(where, synapse.base_url, agent.token, step)
            assert await asyncio.to_thread(killed.wait, PATIENCE) == -signal.SIGKILL
            node = start(where, synapse.base_url, agent.token, "none")
            try:
                # The draft of the dead process counts as a message; in the end it is the answer.
                while "re hello" not in await ana.texts(room, agent.id):
                    assert node.poll() is None
                    await asyncio.sleep(0.1)
                await ana.send(room, "again")
                while "re again" not in await ana.texts(room, agent.id):
                    assert node.poll() is None
                    await asyncio.sleep(0.1)
            finally:
                node.send_signal(signal.SIGTERM)
                await asyncio.to_thread(node.wait, PATIENCE)
            assert node.returncode == 0
            assert await ana.texts(room, agent.id) == ["re hello", "re again"]

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    with tertulia.open(where, settings=SETTINGS) as store:
        assert store.check() == []
        assert [delivery.state for delivery in store.outbox.find().items] == ["sent", "sent"]
        assert {item.state for item in store.inbox.find().items} == {"done"}
