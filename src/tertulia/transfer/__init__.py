"""Moving in and out: what other systems kept, forms for programs and people, whole archives.

The folder of the other system is read and never changed. What is here already is not imported
again, so that an import which was stopped is run again and goes on, and a later one brings what is
new.
"""

from __future__ import annotations

import os
from datetime import tzinfo
from typing import TYPE_CHECKING, Final, Literal

from tertulia.core.settings import zone as zone_called
from tertulia.errors import ConfigError
from tertulia.records.iterate import Selection
from tertulia.transfer.archive import Manifest, restore, write_archive
from tertulia.transfer.exporters.export import (
    Document,
    ExportReport,
    document,
    export_to,
)
from tertulia.transfer.importers.importer import Progress
from tertulia.transfer.importers.report import (
    Problem,
    Report,
)
from tertulia.transfer.move import (
    MoveReport,
    move,
)

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
    """Bring the conversations in a folder of another system into a store.

    With `dry_run` everything is read and nothing is written; then there need not be a store. Times
    that were written without a zone are taken to be in `zone`, by default the store's. `progress`
    is called with how many bytes of how many were read.
    """
    from tertulia.records.imports import Imports
    from tertulia.transfer.importers.importer import Importer
    from tertulia.transfer.importers.report import Findings
    from tertulia.transfer.importers.safe_files import SafeFolder
    from tertulia.transfer.importers.timestamps import TimestampParser

    if kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}.", hint=f"Allowed: {', '.join(KINDS)}.", field="kind")
    if store is None and not dry_run:
        raise ConfigError("An import needs a store.", hint="Open one, or give dry_run=True.")
    folder = SafeFolder(_folder_of(kind, path), findings := Findings())
    moments = TimestampParser(_zone(store, zone))
    newcomers = None if store is None else Imports(store.context)
    taker = Importer(newcomers, findings, folder.meter, writes=not dry_run, progress=progress)
    for talk in _talks(kind, folder, moments, path):
        taker.take(talk)
    report = taker.report()
    if store is not None and report.messages and not dry_run:
        store.context.notify()
    return report


def _talks(
    kind: Kind, folder: SafeFolder, moments: TimestampParser, path: str | os.PathLike[str]
) -> Iterator[ForeignSession]:
    match kind:
        case "hermes":
            from tertulia.transfer.importers.hermes import Hermes

            return Hermes(folder, moments).talks()
        case "nanobot":
            from tertulia.transfer.importers.nanobot import Nanobot

            return Nanobot(folder, moments).talks()
        case "openclaw":
            from tertulia.transfer.importers.openclaw import OpenClaw

            return OpenClaw(folder, moments).talks()
        case _:
            from tertulia.transfer.importers.jsonl import Jsonl

            only = None if os.path.isdir(path) else os.path.basename(os.fspath(path))
            return Jsonl(folder, moments, only=only).talks()


def _folder_of(kind: Kind, path: str | os.PathLike[str]) -> str:
    """The folder to read; of JSONL also one file is taken."""
    given = os.fspath(path)
    if kind == "jsonl" and os.path.isfile(given) and not os.path.islink(given):
        return os.path.dirname(os.path.abspath(given))
    return given


def _zone(store: Store | None, name: str | None) -> tzinfo:
    if name is not None:
        return zone_called(name)
    if store is not None:
        return store.context.zone
    from tertulia.store import _machine_zone

    return _machine_zone()
