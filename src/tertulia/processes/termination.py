"""Whether a program still runs, how it ended, and ending it with everything it has started.

Nobody is touched whose pid alone is known: a pid may belong to another program by now.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from tertulia.errors import ConfigError
from tertulia.processes import supervisor
from tertulia.records.processes import Identity, Process

if TYPE_CHECKING:
    import psutil

_GRACE_SECONDS = 2.0  # for a program to end as it likes, before it is ended
_ROUNDS = 50  # of looking for those who were started meanwhile
_NOTED_SECONDS = 5.0


def is_kept(process: Process) -> bool:
    """Whether the keeper of a program is there."""
    return _is(process.keeper_pid, process.keeper_mark)


def began(folder: str) -> Identity | None:
    """Who a keeper has said that it and its program are."""
    told = _read(folder, supervisor.BEGAN)
    return Identity(**told) if told else None


def ended(folder: str) -> dict[str, Any]:
    """How a keeper has said that its program ended; empty if it has not."""
    return _read(folder, supervisor.ENDED)


def end(process: Process) -> int:
    """End a program and all below it, also who has left its group; how many there were."""
    first = _victims(process)
    _signal(first, is_gentle=True)
    until = time.monotonic() + _GRACE_SECONDS
    while _victims(process) and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(_ROUNDS):
        left = _victims(process)
        if not left:
            break
        _signal(left, is_gentle=False)
        time.sleep(0.02)
    # The keeper goes when nobody is left, and has written down how its program ended.
    until = time.monotonic() + _NOTED_SECONDS
    while is_kept(process) and time.monotonic() < until:
        time.sleep(0.02)
    return len(first)


def _is(pid: int, mark: str) -> bool:
    return pid > 0 and mark != "" and supervisor.mark(pid) == mark


def _victims(process: Process) -> list[psutil.Process]:
    """Everybody who belongs to a program, children before their parents."""
    try:
        import psutil
    except ImportError as problem:
        raise ConfigError(
            "To end a program, psutil is needed.", hint="pip install 'tertulia[processes]'"
        ) from problem
    found: dict[int, psutil.Process] = {}
    # Who loses its parent becomes a child of the keeper, so nobody slips away by forking.
    for pid, mark, is_ours in (
        (process.keeper_pid, process.keeper_mark, False),
        (process.pid, process.mark, True),
    ):
        if not _is(pid, mark):
            continue
        try:
            head = psutil.Process(pid)
            below = head.children(recursive=True)
        except psutil.Error:
            continue
        if _is(pid, mark):  # it was still the same when its children were asked for
            found |= {one.pid: one for one in reversed(below)}
            found |= {pid: head} if is_ours else {}
    if not is_kept(process):
        found |= {one.pid: one for one in _marked(process.id)}
    return [one for one in found.values() if _is_running(one)]


def _marked(process_id: str) -> list[psutil.Process]:
    """Who has a program's id in its environment: for when the keeper is gone, or cannot adopt."""
    import psutil

    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(supervisor.VARIABLE) == process_id:
                found.append(one)
        except (psutil.Error, OSError):
            continue  # another user's, or gone
    return found


def _is_running(one: psutil.Process) -> bool:
    import psutil

    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(victims: list[psutil.Process], *, is_gentle: bool) -> None:
    import psutil

    for one in victims:
        try:
            # It looks itself whether the pid is still that of the same program.
            one.terminate() if is_gentle else one.kill()
        except psutil.Error:
            continue


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return found
