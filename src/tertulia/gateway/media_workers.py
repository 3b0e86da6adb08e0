"""Worker processes that decode files: one job at a time each, limited in time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from typing import Any, Final

import msgspec

from tertulia.gateway import media_decoder

log = logging.getLogger("tertulia.gateway")

_WORKERS: Final = 2
_JOB_SECONDS: Final = 20.0
_JOBS_PER_PROCESS: Final = 50
_MAX_RESULT: Final = 8_000_000

CRASHED: Final = "it cannot be opened"
TOO_SLOW: Final = "it takes too long to open"


class Decoded(msgspec.Struct, frozen=True):
    """What a worker made of a file; `problem` says why there is nothing."""

    fields: dict[str, Any]
    content: bytes = b""

    @property
    def problem(self) -> str | None:
        """Why the file could not be decoded, or None."""
        return self.fields.get("problem")


class MediaWorkers:
    """A few worker processes, started when they are needed first."""

    def __init__(self, *, workers: int = _WORKERS, job_seconds: float = _JOB_SECONDS) -> None:
        self._free: asyncio.Queue[_Worker] = asyncio.Queue()
        self._workers = [_Worker(job_seconds) for _ in range(workers)]
        for worker in self._workers:
            self._free.put_nowait(worker)

    async def decode(self, kind: str, content: bytes, media_type: str) -> Decoded:
        """Decode a file; a file that no decoder accepts gives a `problem`, never an error."""
        worker = await self._free.get()
        try:
            return await worker.run({"kind": kind, "type": media_type}, content)
        finally:
            self._free.put_nowait(worker)

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    async def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            await worker.end()


class _Worker:
    """One process at a time, renewed after a failure and after some jobs."""

    def __init__(self, job_seconds: float) -> None:
        self._job_seconds = job_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._jobs = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self, job: dict[str, Any], content: bytes) -> Decoded:
        """Run one job; end the process if it fails."""
        is_complete = False
        try:
            async with asyncio.timeout(self._job_seconds):
                process = await self._start()
                decoded = await _exchange(process, job, content)
            is_complete = True
        except TimeoutError:
            log.warning("a file took longer than %g s to decode, worker ended", self._job_seconds)
            return Decoded({"problem": TOO_SLOW})
        except (asyncio.IncompleteReadError, ValueError, OSError) as problem:
            log.warning("a worker ended while it decoded a file: %r", problem)
            return Decoded({"problem": CRASHED})
        finally:
            self._jobs += 1
            if not is_complete or self._jobs >= _JOBS_PER_PROCESS:
                await asyncio.shield(self.end())
        return decoded

    async def end(self) -> None:
        """End the process, if there is one."""
        process, self._process, self._jobs = self._process, None, 0
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Reads to the end of the pipe, which closes it now and not when the event loop has ended.
        with contextlib.suppress(ConnectionError):
            await process.communicate()

    async def _start(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", media_decoder.__file__,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, env={}, limit=2**20,
            )  # fmt: skip
        return self._process


async def _exchange(
    process: asyncio.subprocess.Process, job: dict[str, Any], content: bytes
) -> Decoded:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(media_decoder.pack_frame(job, content))
    await process.stdin.drain()
    lengths = await process.stdout.readexactly(media_decoder.FRAME.size)
    head, body = media_decoder.FRAME.unpack(lengths)
    if head + body > _MAX_RESULT:
        raise ValueError(f"the result has {head + body} bytes")
    fields = json.loads(await process.stdout.readexactly(head))
    return Decoded(fields, await process.stdout.readexactly(body))
