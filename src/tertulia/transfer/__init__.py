"""Moving in and out: sessions in forms for programs and people, and archives of whole stores."""

from __future__ import annotations

from tertulia.records.reading import Selection
from tertulia.transfer.archive import Manifest, restore, write_archive
from tertulia.transfer.export import Document, Exported, document, export_to

__all__ = [
    "Document",
    "Exported",
    "Manifest",
    "Selection",
    "document",
    "export_to",
    "restore",
    "write_archive",
]
