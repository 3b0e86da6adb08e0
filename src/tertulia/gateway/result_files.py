"""Results of schedules in files, one for each run, readable by this user only.

A result also stands in the row of its run. Deleting the session of a run deletes it there; the file
follows with the next `clean`, which the retention job of the gateway calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tertulia.private_files import make_private_folder
from tertulia.records.schedules import ScheduleRun
from tertulia.store import Store


class ResultFiles:
    """The files of one folder: a folder for each schedule, in it a file for each run."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, run: ScheduleRun, text: str) -> str:
        """Write the result of a run; return the path of its file. Raise `OSError` if it fails."""
        directory = os.path.join(self._folder, str(run.schedule.id))
        make_private_folder(directory)
        path = os.path.join(directory, f"{run.planned_at:%Y-%m-%dT%H-%M-%SZ}-{run.id}.md")
        partial = f"{path}.new"
        with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
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
