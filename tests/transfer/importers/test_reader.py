"""A reader reports its findings where its folder collects them."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

from tertulia.transfer.importers.reader import Reader
from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser


class LineReader(Reader):
    def report(self, file: str) -> None:
        self._findings.add(file, 1, "unreadable", "no JSON")


def test_findings_are_those_of_the_folder(tmp_path: Path) -> None:
    findings = Findings()
    LineReader(SafeFolder(tmp_path, findings), TimestampParser(UTC)).report("a.jsonl")
    (problem,) = findings.all()
    assert problem.file == "a.jsonl"
