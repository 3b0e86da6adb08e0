"""The base of all classes that read the files of another system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tertulia.core.text.excerpt import short_repr
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser


class Reader:
    """Reads from one folder, and reports what it cannot read."""

    def __init__(self, folder: SafeFolder, timestamps: TimestampParser) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._timestamps = timestamps

    def _report_times(self, file: str, line: int | None, record: Mapping[str, Any]) -> None:
        """Report each value that should be a time and is not; absent ones are not reported."""
        for name, value in record.items():
            if value not in (None, "") and self._timestamps.parse(value) is None:
                detail = f"{name} is not a time: {short_repr(value)}"
                self._findings.add(file, line, "unparseable_timestamp", detail)
