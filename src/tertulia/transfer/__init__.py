"""Moving in and out: what is exported, and archives that are restored."""

from __future__ import annotations

from tertulia.transfer.archive import Manifest, restore, write_archive

__all__ = ["Manifest", "restore", "write_archive"]
