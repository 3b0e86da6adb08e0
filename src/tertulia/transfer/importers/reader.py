"""The base of all classes that read the files of another system."""

from __future__ import annotations

from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser


class Reader:
    """Reads from one folder, and reports what it cannot read."""

    def __init__(self, folder: SafeFolder, timestamps: TimestampParser) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._timestamps = timestamps
