"""A folder of another system's sessions, with a Tertulia store in it.

What that system left in the folder is imported once and never touched. What is written out for
people and programs stands in a folder of its own, so that it is not taken for that system's files.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tertulia.core.message import to_json
from tertulia.core.settings import Settings
from tertulia.errors import StaleWrite
from tertulia.records.transcript import replace
from tertulia.store import Store

if TYPE_CHECKING:
    from tertulia.transfer import Report

log = logging.getLogger("tertulia.compat")

DATABASE = "tertulia.db"
EXPORTS = "session-exports"

# How many seconds to go on while another program imports the same folder.
_PATIENCE = 120
_PAUSE = 0.05
_LONGEST = 80
_SAFE = re.compile(r"[a-z0-9][a-z0-9.-]*(?:_[a-z0-9][a-z0-9.-]*)*")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


def open_in(folder: Path, settings: Settings | None = None) -> Store:
    """The store of a folder; a new one is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return Store(folder / DATABASE, settings=settings)


def holds_store(folder: Path) -> bool:
    return (folder / DATABASE).exists()


def import_once(
    store: Store, kind: Literal["hermes", "nanobot"], places: Sequence[Path]
) -> list[Report]:
    """Import what another system left in `places`, unless that was done before.

    The note that it was done is made after it: what was interrupted is done again, and gives the
    same. Later changes of those files are not looked at, so that what was deleted stays deleted.
    """
    name = f"imported_{kind}"
    if not places or replace.is_noted(store.context, name):
        return []
    reports = []
    for place in places:
        reports.append(report := _imported(store, kind, place))
        for problem in report.problems:
            where = problem.file if problem.line is None else f"{problem.file}, line {problem.line}"
            log.warning("import of %s: %s: %s", place, where, problem.detail)
    replace.note(store.context, name)
    return reports


def _imported(store: Store, kind: Literal["hermes", "nanobot"], place: Path) -> Report:
    from tertulia.transfer import import_from

    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return import_from(store, kind, place)
        except StaleWrite:
            # Another program is importing the same: what it has done need not be done here.
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


def export_path(folder: Path, name: str, *, colons: bool = False) -> Path:
    """Where the JSON lines of a session stand, once they were asked for."""
    return folder / EXPORTS / f"{safe_name(name, colons=colons)}.jsonl"


def export(
    folder: Path, name: str, records: Iterable[Mapping[str, Any]], *, colons: bool = False
) -> Path:
    """Write JSON lines; a reader sees those of before or these, never a part of them."""
    path = export_path(folder, name, colons=colons)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{to_json(record)}\n" for record in records)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def safe_name(text: str, *, colons: bool = False) -> str:
    """A file name for a text: the same always, and another one for any other text.

    A text that is plain in every file system, upper and lower case being the same in some of them,
    is its own name; with `colons` a colon is read as an underscore, where there is none besides.
    Otherwise a hash comes behind what can be read of the text. No plain name has a "~".
    """
    readable = text.replace(":", "_") if colons else text
    is_alone = not (colons and "_" in text)
    is_plain = _SAFE.fullmatch(readable) and len(readable) <= _LONGEST
    if is_alone and is_plain and not readable.endswith(".") and not _RESERVED.fullmatch(readable):
        return readable
    raw = text.encode("utf-8", "surrogatepass")
    words = re.sub(r"[^a-z0-9_-]+", "_", readable.lower())[:_LONGEST].strip("_-")
    return f"{words}~{blake2b(raw, digest_size=10).hexdigest()}"
