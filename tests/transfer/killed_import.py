"""An import in a process of its own, which kills itself at a given moment."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import tertulia
from tertulia.records import imports
from tertulia.records.transcript.log import append_messages
from tertulia.transfer import import_from
from tertulia.transfer.importers import importer
from tests.transfer.foreign_folders import SETTINGS


def main(where: str, kind: Any, folder: str, moment: str, number: int) -> None:
    importer._BATCH_MESSAGES, importer._BATCH_SESSIONS = 7, 3  # many small commits
    left = number

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if moment == "within":
        append = append_messages

        def dying(*args: Any, **more: Any) -> int:
            found = append(*args, **more)
            die()  # the transaction is open: nothing of it may be there afterwards
            return found

        imports.append_messages = dying  # type: ignore[attr-defined]
    with tertulia.open(where, settings=SETTINGS) as store:
        progress = (lambda done, total: die()) if moment == "after" else None
        import_from(store, kind, folder, progress=progress)


if __name__ == "__main__":
    _, where, kind, folder, moment, number = sys.argv
    main(where, kind, folder, moment, int(number))
