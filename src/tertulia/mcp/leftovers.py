"""Notes about the processes of MCP servers, so that the next start ends those that were left.

Normally none is left: the guard of a program ends with its gateway. A note has the process of the
guard and that of the gateway, each with the time when it began, since a pid alone may belong to
another program by now.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from typing import Any, Final

from tertulia.private_files import make_private_folder
from tertulia.processes import supervisor

log = logging.getLogger("tertulia.mcp")

_END_SECONDS: Final = 6.0
_UNFINISHED: Final = ".new"  # ends the name of a note while it is written


class ProcessNotes:
    """The notes of this gateway in a folder that all gateways of the machine share."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._owner = {"gateway": os.getpid(), "gateway_mark": supervisor.mark(os.getpid())}
        make_private_folder(folder)

    def remember(self, server: str, pid: int) -> None:
        """Note that a guard runs; if that cannot be written, log it and go on."""
        note = {**self._owner, "pid": pid, "mark": supervisor.mark(pid)}
        path = self._path(server)
        new_path = f"{path}{_UNFINISHED}"
        try:
            # Written whole: another gateway removes a note that it cannot read.
            with open(new_path, "w", encoding="utf-8") as file:
                json.dump(note, file)
            os.replace(new_path, path)
        except OSError as problem:
            log.warning("cannot note the process of MCP server %s: %s", server, problem)

    def forget(self, server: str) -> None:
        """Remove the note about a guard that has ended."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(server))

    def end_leftovers(self) -> int:
        """End the guards whose gateway is gone, with all their processes; return how many."""
        ended = 0
        for path in self._paths():
            note = _read(path)
            if _is_running(note.get("gateway"), note.get("gateway_mark")):
                continue
            ended += _end_if_running(note)
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        return ended

    def end_server(self, server: str) -> int:
        """End the program of a server, of every gateway here; return how many.

        The gateways start it again.
        """
        return sum(
            _end_if_running(_read(path))
            for path in self._paths()
            if os.path.basename(path).rpartition("-")[0] == server
        )

    def _paths(self) -> list[str]:
        """Return the files of all notes; none if the folder is gone."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [os.path.join(self._folder, name) for name in names if name.endswith(".json")]

    def _path(self, server: str) -> str:
        return os.path.join(self._folder, f"{server}-{os.getpid()}.json")


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _is_running(pid: Any, mark: Any) -> bool:
    return isinstance(pid, int) and pid > 0 and bool(mark) and supervisor.mark(pid) == mark


def _end_if_running(note: dict[str, Any]) -> bool:
    """End the guard of a note; return False if it does not run any more."""
    if not _is_running(note.get("pid"), note.get("mark")):
        return False
    _end(note["pid"], note["mark"])
    return True


def _end(pid: int, mark: str) -> None:
    """Ask a guard to end; kill it if it does not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _END_SECONDS
    while _is_running(pid, mark) and time.monotonic() < until:
        time.sleep(0.02)
    if _is_running(pid, mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
