"""Results of schedules in files, one for each run, readable by this user only.

A result also stands in the row of its run. Deleting the session of a run deletes it there; the file
follows with the next `clean`, which the retention job of the gateway calls. The row may be gone by
then, with its schedule or after some weeks: so a hidden file beside each result names the session.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from functools import partial
from typing import Final

from tertulia.private_files import make_private_folder
from tertulia.records.schedules import ScheduleRun
from tertulia.records.sessions.delete import was_deleted
from tertulia.store import Store

_MARKER: Final = ".session"


class ResultFiles:
    """The files of one folder: a folder for each schedule, in it a file for each run."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, run: ScheduleRun, text: str, session_id: str | None = None) -> str:
        """Write the result of a run; return the path of its file. Raise `OSError` if it fails."""
        directory = os.path.join(self._folder, str(run.schedule.id))
        make_private_folder(directory)
        name = f"{run.planned_at:%Y-%m-%dT%H-%M-%SZ}-{run.id}.md"
        if session_id is not None:
            _write(os.path.join(directory, _marker(name)), session_id)
        path = os.path.join(directory, name)
        _write(path, text)
        return path

    def clean(self, store: Store) -> int:
        """Delete the files of runs whose result was deleted; return how many."""
        deleted = 0
        for schedule_id, files in self._files_by_schedule():
            for run in _runs(store, schedule_id):
                path = files.get(run.id)
                # A run is stored with its result before anything can delete that.
                if path is not None and run.state == "done" and run.result is None:
                    os.unlink(path)
                    deleted += 1
        return deleted + self._clean_by_session(store)

    def _clean_by_session(self, store: Store) -> int:
        """Delete the files that name a deleted session; return how many."""
        deleted, is_deleted = 0, dict[str, bool]()
        for marker in glob.iglob(os.path.join(glob.escape(self._folder), "*", _marker("*.md"))):
            directory, name = os.path.split(marker)
            path = os.path.join(directory, name.removeprefix(".").removesuffix(_MARKER))
            with open(marker, encoding="utf-8") as file:
                session_id = file.read()
            if session_id not in is_deleted:
                is_deleted[session_id] = store.context.read(
                    partial(was_deleted, session_id=session_id)
                )
            if not is_deleted[session_id]:
                continue
            if os.path.exists(path):
                os.unlink(path)
                deleted += 1
            os.unlink(marker)
        return deleted

    def _files_by_schedule(self) -> Iterator[tuple[int, dict[int, str]]]:
        """Yield each schedule that has files, with the paths by the numbers of their runs."""
        if not os.path.isdir(self._folder):
            return
        for name in os.listdir(self._folder):
            directory = os.path.join(self._folder, name)
            if name.isdecimal() and os.path.isdir(directory):
                files = {
                    int(number): os.path.join(directory, file)
                    for file in os.listdir(directory)
                    if (number := file.removesuffix(".md").rpartition("-")[2]).isdecimal()
                }
                yield int(name), files


def _marker(name: str) -> str:
    """Return the name of the hidden file that names the session of a result."""
    return f".{name}{_MARKER}"


def _write(path: str, text: str) -> None:
    new = f"{path}.new"
    with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _runs(store: Store, schedule_id: int) -> Iterator[ScheduleRun]:
    if store.schedules.get(schedule_id) is None:
        return  # removed, with the history of its runs; its files are kept
    cursor: str | None = None
    while True:
        page = store.schedules.history(schedule_id, limit=100, cursor=cursor)
        yield from page.items
        cursor = page.next
        if cursor is None:
            return
