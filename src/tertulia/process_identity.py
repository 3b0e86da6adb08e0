"""Identities of processes: another process of the same machine can tell that one has ended.

An identity has the host for people, the pid, the scope of the pid, and when the process began, so
that it never stands for a later process with the same pid. A pid has a meaning only in its scope:
the running system, its pid namespace (a container has its own), and its time namespace, by which
the beginning is counted. An identity of another scope tells nothing, nor does any where the system
does not tell the scope, as only Linux does: such a process counts as running (decision 0051).
"""

from __future__ import annotations

import hashlib
import os
import socket
from functools import lru_cache
from typing import NamedTuple


class _Stat(NamedTuple):
    state: str
    threads: int
    began: str  # in clock ticks since the boot, which setting the clock does not change


def own_identity() -> str:
    """Return the identity of this process: HOST:PID:SCOPE:BEGAN."""
    return _identity(os.getpid())


def has_ended(identity: str) -> bool:
    """Return whether the process with that identity has certainly ended."""
    if identity == own_identity():
        return False
    _, pid, scope, began = _parts(identity)
    if not scope or scope != _parts(own_identity())[2] or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it runs, as another user
    stat = _stat(int(pid))
    if stat is None:  # it runs, and this user may not look at it
        return False
    # The first thread of a killed process can end before the others.
    is_zombie = stat.state in ("Z", "X") and stat.threads <= 1
    return is_zombie or stat.began != began


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    stat = _stat(pid)
    scope = "" if stat is None else _scope(pid)
    return f"{socket.gethostname()}:{pid}:{scope}:{'' if stat is None else stat.began}"


def _parts(identity: str) -> list[str]:
    """Return host, pid, scope and beginning; empty texts if it is no identity."""
    parts = identity.rsplit(":", 3)
    return parts if len(parts) == 4 else [""] * 4


def _scope(pid: int) -> str:
    """Return a hash that only processes with the same meaning of pids share, or "" if unknown."""
    try:
        if os.readlink("/proc/self") != str(pid):  # this /proc is that of another pid namespace
            return ""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
    except (OSError, ValueError):
        return ""
    scope = "\n".join([socket.gethostname(), boot, *namespaces])
    return hashlib.sha256(scope.encode()).hexdigest()[:16]


def _stat(pid: int) -> _Stat | None:
    """Return what the system tells about a process, or None if it tells nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().decode("ascii", "replace").rpartition(")")[2].split()
        return _Stat(state=fields[0], threads=int(fields[17]), began=fields[19])
    except (OSError, ValueError, IndexError):
        return None
