"""State and termination of a program and its descendants on this machine.

A process is never signalled by its pid alone: the pid may belong to another program by now.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from tertulia.errors import ConfigError
from tertulia.install_command import install_command
from tertulia.processes import supervisor
from tertulia.records.processes import Identity, Process

if TYPE_CHECKING:
    import psutil

_GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
_KILL_ROUNDS = 50  # each round also finds processes that were started since the last one
_SUPERVISOR_SECONDS = 5.0  # for the supervisor to record the end and exit


def has_supervisor(process: Process) -> bool:
    """Return whether the supervisor of a program is running."""
    return _is_same(process.keeper_pid, process.keeper_mark)


def read_identity(folder: str) -> Identity | None:
    """Return the pids that a supervisor has recorded, or None if it has not yet."""
    fields = _read_json(folder, supervisor.BEGAN)
    return Identity(**fields) if fields else None


def read_end(folder: str) -> dict[str, Any]:
    """Return the exit code and time that a supervisor has recorded; empty if it has not yet."""
    return _read_json(folder, supervisor.ENDED)


def terminate(process: Process) -> int:
    """Terminate a program and all its descendants; return their number.

    Descendants that left its process group are included.
    """
    first = _find_family(process)
    _signal(first, is_gentle=True)
    until = time.monotonic() + _GRACE_SECONDS
    while _find_family(process) and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(_KILL_ROUNDS):
        left = _find_family(process)
        if not left:
            break
        _signal(left, is_gentle=False)
        time.sleep(0.02)
    # The supervisor exits when no child is left, after it has recorded the end of its program.
    until = time.monotonic() + _SUPERVISOR_SECONDS
    while has_supervisor(process) and time.monotonic() < until:
        time.sleep(0.02)
    return len(first)


def _is_same(pid: int, mark: str) -> bool:
    """Return whether the process with a pid runs and is the one that had this mark."""
    return pid > 0 and mark != "" and supervisor.mark(pid) == mark


def _find_family(process: Process) -> list[psutil.Process]:
    """Return the running processes of a program, children before their parents.

    Raise `ConfigError` if psutil is not installed.
    """
    try:
        import psutil
    except ImportError as problem:
        raise ConfigError(
            "Ending a program needs the package psutil, which is not installed.",
            hint=f"Install it: {install_command('processes')}",
        ) from problem
    family: dict[int, psutil.Process] = {}
    # A process that loses its parent becomes a child of the supervisor: none escapes by forking.
    for pid, mark, is_program in (
        (process.keeper_pid, process.keeper_mark, False),
        (process.pid, process.mark, True),
    ):
        if not _is_same(pid, mark):
            continue
        try:
            parent = psutil.Process(pid)
            children = parent.children(recursive=True)
        except psutil.Error:
            continue
        if _is_same(pid, mark):  # it was still the same process when its children were listed
            family |= {child.pid: child for child in reversed(children)}
            family |= {pid: parent} if is_program else {}
    if not has_supervisor(process):
        family |= {member.pid: member for member in _find_by_variable(process.id)}
    return [member for member in family.values() if _is_running(member)]


def _find_by_variable(process_id: str) -> list[psutil.Process]:
    """Return the processes with an id in their environment.

    Needed when the supervisor is gone or cannot adopt orphans.
    """
    import psutil

    matches = []
    for candidate in psutil.process_iter():
        try:
            if candidate.environ().get(supervisor.VARIABLE) == process_id:
                matches.append(candidate)
        except (psutil.Error, OSError):
            continue  # it belongs to another user, or is gone
    return matches


def _is_running(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(processes: list[psutil.Process], *, is_gentle: bool) -> None:
    """Send SIGTERM if `is_gentle`, else SIGKILL."""
    import psutil

    for process in processes:
        try:
            # psutil itself checks that the pid still belongs to the same process.
            process.terminate() if is_gentle else process.kill()
        except psutil.Error:
            continue


def _read_json(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            value: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return value
