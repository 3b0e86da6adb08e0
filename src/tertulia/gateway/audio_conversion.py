"""Conversion of audio by ffmpeg, where it is installed: for servers that refuse a format."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from typing import Final

from tertulia.private_files import make_private_folder

log = logging.getLogger("tertulia.gateway")

CONVERTED_TYPE: Final = "audio/mpeg"
_SECONDS: Final = 60.0
# Sets limits on the memory and the output of ffmpeg, and then becomes ffmpeg.
_LAUNCHER: Final = """
import os, resource, sys
for name, limit in ((resource.RLIMIT_AS, 10**9), (resource.RLIMIT_FSIZE, 25 * 10**6)):
    resource.setrlimit(name, (limit, limit))
os.execv(sys.argv[1], sys.argv[1:])
"""


async def convert_audio(content: bytes) -> bytes | None:
    """Return audio as a small MP3; None if there is no ffmpeg or it cannot read the audio."""
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tertulia-audio-") as folder:
        make_private_folder(folder)
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target.mp3")
        await asyncio.to_thread(_write, source, content)
        # A file that is a list of addresses must not make ffmpeg fetch them.
        options = ("-nostdin", "-loglevel", "error", "-y", "-protocol_whitelist", "file", "-i",
                   source)  # fmt: skip
        output = ("-vn", "-ac", "1", "-ar", "16000", "-b:a", "48k", "-f", "mp3", target)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", _LAUNCHER, program, *options, *output,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},  # without the keys of the gateway
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                status = await process.wait()
        except TimeoutError:
            log.warning("ffmpeg took longer than %g s, ended", _SECONDS)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return await asyncio.to_thread(_read, target) if status == 0 else None


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read() or None
    except OSError:
        return None
