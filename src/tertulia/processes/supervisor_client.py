"""The registry's side of a supervisor: start one, and send requests to its input pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from tertulia.errors import IllegalMove, NotFound
from tertulia.processes import supervisor
from tertulia.records.processes import Identity, Process

_START_SECONDS = 30.0  # for a supervisor to start its program
_INPUT_SECONDS = 5.0  # for a program to read a part of its input
_POLL_SECONDS = 0.05


def start_supervisor(spec: dict[str, Any]) -> Identity:
    """Start a supervisor with its program, and return their pids and marks.

    Raise `NotFound` if the program cannot be started, `IllegalMove` if the supervisor cannot.
    """
    command = [sys.executable, "-I", "-S", supervisor.__file__]
    # Without the variables of the gateway: a program can read those of its parent in /proc.
    child = subprocess.Popen(  # noqa: S603 — our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
        env={"PATH": os.defpath},
    )  # fmt: skip
    try:
        output, _ = child.communicate(json.dumps(spec).encode(), timeout=_START_SECONDS)
        reply = json.loads(output)
    except (subprocess.TimeoutExpired, ValueError) as problem:
        child.kill()
        child.communicate()
        raise IllegalMove("The program could not be started.", hint="Try again.") from problem
    if "problem" in reply:
        name = reply.get("file") or spec["argv"][0]
        raise NotFound(f"{name!r} cannot be started: {reply['problem']}.")
    return Identity(**reply)


def send_requests(process: Process, requests: list[dict[str, Any]]) -> None:
    """Send requests to the supervisor of a program; each is written whole or not at all.

    Raise `IllegalMove` if the program has ended, or reads nothing for some seconds.
    """
    try:
        pipe = os.open(os.path.join(process.folder, supervisor.INPUT), os.O_WRONLY | os.O_NONBLOCK)
    except OSError as problem:
        raise IllegalMove(f"{process.id} does not read any more: it has ended.") from problem
    try:
        for number, request in enumerate(requests):
            # The limit restarts with each request: a long input may take long while it progresses.
            until = time.monotonic() + _INPUT_SECONDS
            line = json.dumps(request).encode() + b"\n"
            while not _has_written(pipe, line):
                if time.monotonic() > until:
                    raise IllegalMove(
                        f"{process.id} does not read: {number} of {len(requests)} parts were sent.",
                        hint="Check its output; it may be waiting for something else.",
                    )
                time.sleep(_POLL_SECONDS)
    finally:
        os.close(pipe)


def _has_written(pipe: int, line: bytes) -> bool:
    """Write a line to a pipe; return False if the pipe is full."""
    try:
        os.write(pipe, line)
    except BlockingIOError:
        return False
    return True
