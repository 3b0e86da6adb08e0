"""Conversations in files of OpenAI chat messages: one message a line, one conversation a file."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from tertulia.records.imports import (
    IMPORTED,
    ImportedSession,
    ImportSummary,
)
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
    key_of,
    named,
    unknown_source,
)
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser

SUFFIX = ".jsonl"
PLATFORM = "jsonl"

# Where writers put the time of a message.
_TIMES = ("timestamp", "created_at", "created", "time")


class Jsonl:
    """The files of a folder, or one file."""

    def __init__(
        self, folder: SafeFolder, moments: TimestampParser, *, only: str | None = None
    ) -> None:
        self._folder = folder
        self._moments = moments
        self._only = only

    def talks(self) -> Iterator[ForeignSession]:
        files = [self._only] if self._only else self._folder.files("", SUFFIX, deep=True)
        self._folder.meter.total = sum(map(self._folder.size, files))
        for file in files:
            if not self._folder.refuses(file):
                yield self._talk(file)

    def _talk(self, file: str) -> ForeignSession:
        stem = file.removesuffix(SUFFIX)
        first, first_at = self._first(file)
        digest = blake2b(first, digest_size=8).hexdigest()
        source = unknown_source(PLATFORM, f"{stem}-{digest}", chat_name=stem.rsplit("/", 1)[-1])
        created = first_at if first_at is not None else self._folder.changed_at(file)
        newcomer = ImportedSession(
            name=named("jsonl", file, digest),
            id=None,
            key=key_of(source),
            agent="main",
            source=source,
            person=None,
            display_name=source.chat_name,
            created_at=created,
        )
        return ForeignSession(
            file, newcomer, self._said(file), lambda seen: self._settled(file, seen, created)
        )

    def _said(self, file: str) -> Iterator[ForeignMessage]:
        rows = MessageNormaliser(file, self._folder.findings, self._moments)
        for line, value in self._folder.lines(file):
            found = value
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                # The form of files for fine-tuning: a whole conversation on a line.
                for inner in value["messages"]:
                    yield from _rows(rows, line, inner)
                continue
            yield from _rows(rows, line, found)

    def _first(self, file: str) -> tuple[bytes, int | None]:
        """The head of the file, which tells it from others of its name, and its first time."""
        opened = self._folder.open(file)
        head = b""
        if opened is not None:
            with opened:
                head = opened.readline(4096)
        for line in self._folder.lines(file, quietly=True):
            if isinstance(line.value, dict):
                return head, self._moments.micros(_time_of(line.value))
        return head, None

    def _settled(self, file: str, seen: Totals, created: int) -> ImportSummary:
        updated = seen.last_at if seen.last_at is not None else created
        return ImportSummary(
            created_at=min(created, updated),
            updated_at=updated,
            ended_at=updated,
            end_reason=IMPORTED,
            metadata={IMPORTED: {"from": "jsonl", "file": file}},
        )


def _rows(rows: MessageNormaliser, line: int, value: Any) -> Iterator[ForeignMessage]:
    message = rows.message(line, value)
    if message is not None:
        yield ForeignMessage(line, message, rows.at(line, _time_of(message)))


def _time_of(message: dict[str, Any]) -> object:
    return next((message[name] for name in _TIMES if message.get(name) is not None), None)
