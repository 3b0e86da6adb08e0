"""The process between a gateway and the program of an MCP server: it ends with either of them.

    python -I -S child_guard.py COMMAND ARGUMENT…

It starts the command, which inherits its standard streams, and waits. When the program ends, or the
gateway is gone, or on SIGTERM, it ends every process that the program has started, also those that
have left its process group: on Linux it adopts orphans, so that none escapes by forking. It uses
only the standard library and none of this package, so that it starts in an instant.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PARENT_DEATH_SIGNAL = 1
_SUBREAPER = 36
_GRACE_SECONDS = 2.0
_KILL_ROUNDS = 100
_ROUND_SECONDS = 0.02
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(command: list[str]) -> int:
    """Run a command until it or the parent ends; return the exit code."""
    parent = os.getppid()
    _prctl(_SUBREAPER, 1)
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if os.getppid() != parent:
        return 0
    pid = os.fork()
    if pid == 0:
        _execute(command)
    # The program alone holds the streams: their end is the end of the program.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    code: int | None = None
    while code is None and os.getppid() == parent:
        received = signal.sigtimedwait(_SIGNALS, 1.0) if hasattr(signal, "sigtimedwait") else None
        if received is None and not hasattr(signal, "sigtimedwait"):
            time.sleep(0.2)
        code = _reap(pid)
        if received is not None and received.si_signo != signal.SIGCHLD:
            break
    _end_all(pid)
    return 1 if code is None else code


def _execute(command: list[str]) -> None:
    """Become the program, in a process group of its own."""
    os.setsid()
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        os.execvp(command[0], command)  # noqa: S606 — the command of the configuration
    except OSError as problem:
        os.write(2, f"{command[0]} cannot be started: {problem}\n".encode())
    os._exit(127)


def _reap(program: int) -> int | None:
    """Collect every child that has ended; return the exit code of the program if it is one."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == program:
            code = os.waitstatus_to_exitcode(status) & 0xFF


def _end_all(program: int) -> None:
    """End the descendants: ask them first, then kill what is left."""
    _signal_all(program, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    while _descendants() and time.monotonic() < until:
        time.sleep(_ROUND_SECONDS)
        _reap(0)
    for _ in range(_KILL_ROUNDS):
        _signal_all(program, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
        _reap(0)
        if not _descendants():
            return


def _signal_all(program: int, number: int) -> None:
    for pid in (-program, *_descendants()):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _descendants() -> list[int]:
    """Return the processes below this one; none where there is no /proc."""
    parents: dict[int, int] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            parents[int(name)] = int(parent)
    family = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            return sorted(family - {os.getpid()})
        family |= more


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
