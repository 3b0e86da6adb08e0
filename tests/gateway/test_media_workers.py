"""Worker processes: limited, renewed, and a job that kills one costs that job only."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tertulia.gateway.media_workers import CRASHED, TOO_SLOW, MediaWorkers
from tests.gateway import media_samples as samples

SMALL = samples.image("PNG")


def check_limits(process: Path) -> None:
    limits = (process / "limits").read_text().splitlines()
    assert "1000000000" in next(line for line in limits if line.startswith("Max address space"))
    assert not (process / "environ").read_bytes().strip(b"\0")


def test_worker_is_limited_and_renewed_after_50_jobs() -> None:
    async def play() -> None:
        workers = MediaWorkers(workers=1)
        try:
            pids = set()
            for _ in range(51):
                decoded = await workers.decode("image", SMALL, "image/png")
                assert decoded.problem is None
                pids |= set(workers.pids)
            assert len(pids) == 2
            (pid,) = workers.pids
            if sys.platform == "linux":
                check_limits(Path(f"/proc/{pid}"))
        finally:
            await workers.close()
        assert not any(map(psutil.pid_exists, pids))

    asyncio.run(play())


def test_job_that_takes_too_long_ends_its_worker() -> None:
    async def play() -> None:
        workers = MediaWorkers(workers=1, job_seconds=0)
        try:
            decoded = await workers.decode("image", SMALL, "image/png")
            assert decoded.problem == TOO_SLOW
            assert workers.pids == []
        finally:
            await workers.close()

    asyncio.run(play())


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_dead_worker_costs_one_job() -> None:
    async def play() -> None:
        workers = MediaWorkers(workers=1)
        try:
            await workers.decode("image", SMALL, "image/png")
            os.kill(workers.pids[0], signal.SIGKILL)
            first = await workers.decode("image", SMALL, "image/png")
            assert first.problem in (None, CRASHED)
            assert (await workers.decode("image", SMALL, "image/png")).problem is None
        finally:
            await workers.close()

    asyncio.run(play())


def test_jobs_share_the_workers() -> None:
    async def play() -> None:
        workers = MediaWorkers(workers=2)
        try:
            jobs = [workers.decode("image", SMALL, "image/png") for _ in range(6)]
            assert all(decoded.problem is None for decoded in await asyncio.gather(*jobs))
            assert len(workers.pids) <= 2
        finally:
            await workers.close()

    asyncio.run(play())
