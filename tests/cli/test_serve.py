"""Opening the store for a gateway, and stopping the gateway at signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tertulia.cli import serve
from tertulia.cli.options import CommandOptions
from tertulia.config.schema import Config
from tertulia.processes import supervisor


class RecordingGateway:
    """Counts how often it was stopped."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


def test_open_store_creates_a_private_file(tmp_path: Path) -> None:
    options = CommandOptions()
    options.store = str(tmp_path / "talk.db")

    async def count_sessions() -> int:
        async with serve.open_store(options, Config()) as store:
            return len((await store.sessions.find()).items)

    assert asyncio.run(count_sessions()) == 0
    assert stat.S_IMODE(os.stat(options.store).st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise there")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_stops_the_gateway_and_the_second_ends_the_process(
    number: signal.Signals,
) -> None:
    gateway = RecordingGateway()

    async def receive_one_signal() -> Any:
        serve._stop_at_signals(cast(Any, gateway))
        os.kill(os.getpid(), number)
        while not gateway.stops:  # noqa: ASYNC110  set by the signal handler
            await asyncio.sleep(0.001)
        return signal.getsignal(number)

    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert asyncio.run(receive_one_signal()) == signal.SIG_DFL
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert gateway.stops == 1


def test_the_parrot_saves_no_memories() -> None:
    assert serve._memory_flush(Config(), cast(Any, None), cast(Any, None)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_gateway_cannot_be_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of the agent and MCP servers run as the same user, and could read its keys."""

    class RefusedError(Exception):
        pass

    def refuse() -> None:
        raise RefusedError

    monkeypatch.setattr(supervisor, "refuse_inspection", refuse)
    nothing = cast(Any, None)
    with pytest.raises(RefusedError):
        asyncio.run(
            serve.serve_gateway(CommandOptions(), Config(), nothing, nothing, [], terminal=None)
        )


def test_garbage_collector_runs_rarely_and_leaves_what_the_start_has_made() -> None:
    threshold = gc.get_threshold()
    objects = [[number] for number in range(1_000)]
    frozen = gc.get_freeze_count()
    try:
        serve.tune_garbage_collection()
        assert gc.get_freeze_count() - frozen >= len(objects)
        assert gc.get_threshold() == (10_000, *threshold[1:])
    finally:
        gc.set_threshold(*threshold)
