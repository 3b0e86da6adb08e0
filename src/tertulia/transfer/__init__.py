"""Import from other systems, export to files, and archive or move a whole store.

An import reads the folder of the other system and never changes it. It skips what the store already
has: run it again after an interruption and it resumes; run it later and it adds only what is new.
"""

from __future__ import annotations

import os
from datetime import tzinfo
from typing import TYPE_CHECKING, Final, Literal

from tertulia.core.settings import Settings, require_zone
from tertulia.errors import ConfigError, NotFound
from tertulia.records.iterate import Selection
from tertulia.transfer.archive import Manifest, restore, write_archive
from tertulia.transfer.exporters.export import Document, ExportReport, document, export_to
from tertulia.transfer.importers.report import Problem, Report
from tertulia.transfer.move import MoveReport, move
from tertulia.transfer.progress_callback import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tertulia.store import Store
    from tertulia.transfer.importers.model import ForeignSession
    from tertulia.transfer.importers.safe_files import SafeFolder
    from tertulia.transfer.importers.timestamps import TimestampParser

__all__ = [
    "KINDS",
    "Document",
    "ExportReport",
    "Kind",
    "Manifest",
    "MoveReport",
    "Problem",
    "Progress",
    "Report",
    "Selection",
    "document",
    "export_to",
    "import_from",
    "move",
    "restore",
    "write_archive",
]

Kind = Literal["hermes", "nanobot", "openclaw", "jsonl"]
KINDS: Final[tuple[Kind, ...]] = ("hermes", "nanobot", "openclaw", "jsonl")


def import_from(
    store: Store | None,
    kind: Kind,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    zone: str | None = None,
) -> Report:
    """Import the conversations in a folder of another system into a store, and return a report.

    With `dry_run` it reads everything and writes nothing; `store` may then be None. A time written
    without a time zone is read in `zone`, by default the store's. `progress(done, total)` is called
    with the number of bytes read. Raise `ConfigError` for an unknown `kind` or a missing store, and
    `NotFound` if the folder does not exist.
    """
    from tertulia.records.imports import Imports
    from tertulia.transfer.importers.importer import Importer
    from tertulia.transfer.importers.report import Findings
    from tertulia.transfer.importers.safe_files import SafeFolder
    from tertulia.transfer.importers.timestamps import TimestampParser

    if kind not in KINDS:
        raise ConfigError(
            f"Unknown kind of import {kind!r}.", hint=f"Allowed: {', '.join(KINDS)}.", field="kind"
        )
    if store is None and not dry_run:
        raise ConfigError("An import needs a store.", hint="Open one, or give dry_run=True.")
    folder = SafeFolder(_folder_of(kind, path), findings := Findings())
    timestamps = TimestampParser(_zone(store, zone))
    imports = None if store is None else Imports(store.context)
    importer = Importer(imports, findings, folder.progress, writes=not dry_run, progress=progress)
    settings = Settings() if store is None else store.context.settings
    for foreign in _sessions_of(kind, folder, timestamps, settings, path):
        importer.add(foreign)
    report = importer.report()
    if store is not None and report.messages and not dry_run:
        store.context.notify_indexer()
    return report


def _sessions_of(
    kind: Kind,
    folder: SafeFolder,
    timestamps: TimestampParser,
    settings: Settings,
    path: str | os.PathLike[str],
) -> Iterator[ForeignSession]:
    match kind:
        case "hermes":
            from tertulia.transfer.importers.hermes import Hermes

            return Hermes(folder, timestamps, settings).sessions()
        case "nanobot":
            from tertulia.transfer.importers.nanobot import Nanobot

            return Nanobot(folder, timestamps).sessions()
        case "openclaw":
            from tertulia.transfer.importers.openclaw import OpenClaw

            return OpenClaw(folder, timestamps).sessions()
        case _:
            from tertulia.transfer.importers.jsonl import Jsonl

            only = None if os.path.isdir(path) else os.path.basename(os.fspath(path))
            return Jsonl(folder, timestamps, only=only).sessions()


def _folder_of(kind: Kind, path: str | os.PathLike[str]) -> str:
    """Return the folder to read; for JSONL the path may also name a single file."""
    name = os.fspath(path)
    if kind == "jsonl" and os.path.isfile(name) and not os.path.islink(name):
        return os.path.dirname(os.path.abspath(name))
    if kind == "jsonl" and not os.path.isdir(name):
        raise NotFound(
            f"There is no file or folder {name} that can be imported.",
            hint="Give a file of messages that is not a link, or a folder of .jsonl files.",
        )
    return name


def _zone(store: Store | None, name: str | None) -> tzinfo:
    if name is not None:
        return require_zone(name)
    if store is not None:
        return store.context.zone
    from tertulia.records.machine_zone import machine_zone

    return machine_zone()
