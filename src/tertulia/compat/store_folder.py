"""A folder of another system's sessions, with a Tertulia store in it.

The other system's files in the folder are imported once and never changed. Exports go to a folder
of their own, so that they are not mistaken for that system's files.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tertulia.core.message import to_json
from tertulia.core.settings import Settings
from tertulia.errors import StaleWrite
from tertulia.private_files import make_private_folder
from tertulia.records.transcript import replace
from tertulia.store import Store

if TYPE_CHECKING:
    from tertulia.transfer import Report

log = logging.getLogger("tertulia.compat")

DATABASE = "tertulia.db"
EXPORTS = "session-exports"

# How long to retry while another program imports the same folder.
_MAX_IMPORT_WAIT_SECONDS = 120
_RETRY_SECONDS = 0.05
_MAX_NAME_LENGTH = 80
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(?:_[a-z0-9][a-z0-9.-]*)*")
_RESERVED_NAME = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


def open_store(folder: Path, settings: Settings | None = None) -> Store:
    """Open the store in a folder; create both if they do not exist."""
    make_private_folder(folder)
    return Store(folder / DATABASE, settings=settings)


def import_once(
    store: Store, kind: Literal["hermes", "nanobot"], folders: Sequence[Path]
) -> list[Report]:
    """Import the other system's files in `folders`, unless that was done before.

    The note that it was done is stored after the import: an interrupted import is repeated, with
    the same result, and so is one that could not open every file. Later changes of those files are
    ignored, so that deleted sessions stay deleted.
    """
    name = f"imported_{kind}"
    if not folders or replace.is_noted(store.context, name):
        return []
    reports = []
    for folder in folders:
        reports.append(report := _import(store, kind, folder))
        for problem in report.problems:
            where = problem.file if problem.line is None else f"{problem.file}, line {problem.line}"
            log.warning("import of %s: %s: %s", folder, where, problem.detail)
    if all(report.is_complete for report in reports):
        replace.note(store.context, name)
    return reports


def _import(store: Store, kind: Literal["hermes", "nanobot"], folder: Path) -> Report:
    from tertulia.transfer import import_from

    end = time.monotonic() + _MAX_IMPORT_WAIT_SECONDS
    while True:
        try:
            return import_from(store, kind, folder)
        except StaleWrite:
            # Another program imports the same files; the retry skips the sessions it has done.
            if time.monotonic() > end:
                raise
            time.sleep(_RETRY_SECONDS)


def export_path(folder: Path, name: str, *, colons: bool = False) -> Path:
    """Return the path to which `export` writes the JSON lines of a session."""
    return folder / EXPORTS / f"{safe_name(name, colons=colons)}.jsonl"


def export(
    folder: Path, name: str, records: Iterable[Mapping[str, Any]], *, colons: bool = False
) -> Path:
    """Write JSON lines that only their owner may read, and return their path.

    Readers see the old or the new file, never a part. Raise `StoreError` if it cannot be written.
    """
    from tertulia.transfer.atomic_file import new_file

    path = export_path(folder, name, colons=colons)
    make_private_folder(path.parent)
    with (
        new_file(path, force=True) as partial,
        open(partial, "w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(f"{to_json(record)}\n" for record in records)
    return path


def safe_name(text: str, *, colons: bool = False) -> str:
    """Return a file name for a text: always the same, and a different one for any other text.

    A text that is a valid name in every file system, also in those that ignore case, is its own
    name. With `colons` a colon becomes an underscore, if the text has no underscore itself.
    Otherwise the name is the readable part of the text, "~" and a hash; a text that is its own name
    never contains a "~".
    """
    readable = text.replace(":", "_") if colons else text
    is_unambiguous = not (colons and "_" in text)
    is_valid = (
        _SAFE_NAME.fullmatch(readable)
        and len(readable) <= _MAX_NAME_LENGTH
        and not readable.endswith(".")
        and not _RESERVED_NAME.fullmatch(readable)
    )
    if is_unambiguous and is_valid:
        return readable
    raw = text.encode("utf-8", "surrogatepass")
    prefix = re.sub(r"[^a-z0-9_-]+", "_", readable.lower())[:_MAX_NAME_LENGTH].strip("_-")
    return f"{prefix}~{blake2b(raw, digest_size=10).hexdigest()}"
