"""Read JSONL files of OpenAI chat messages: one message a line, one conversation a file."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from tertulia.records.imports import IMPORTED, ImportedSession, ImportSummary
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
    import_name,
    key_of,
    unknown_source,
)
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.reader import Reader
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser

SUFFIX = ".jsonl"
PLATFORM = "jsonl"

# Fields in which programs write the time of a message.
_TIME_FIELDS = ("timestamp", "created_at", "created", "time")

# The first line, up to this many bytes, tells files of one name apart.
_HEAD_BYTES = 4096


class Jsonl(Reader):
    """Reads every JSONL file of a folder, or one file."""

    def __init__(
        self, folder: SafeFolder, timestamps: TimestampParser, *, only: str | None = None
    ) -> None:
        super().__init__(folder, timestamps)
        self._only = only

    def sessions(self) -> Iterator[ForeignSession]:
        """Yield one session per file."""
        files = [self._only] if self._only else self._folder.files("", SUFFIX, deep=True)
        self._folder.progress.total = sum(map(self._folder.size, files))
        for file in files:
            head = self._folder.read(file, limit=_HEAD_BYTES)
            if head is not None:  # otherwise the reason is reported
                yield self._session(file, head[: head.find(b"\n") + 1] or head)

    def _session(self, file: str, head: bytes) -> ForeignSession:
        stem = file.removesuffix(SUFFIX)
        first_at = self._first_time(file)
        digest = blake2b(head, digest_size=8).hexdigest()
        source = unknown_source(PLATFORM, f"{stem}-{digest}", chat_name=stem.rsplit("/", 1)[-1])
        created = first_at if first_at is not None else self._folder.changed_at(file)
        session = ImportedSession(
            name=import_name("jsonl", file, digest),
            id=None,
            key=key_of(source),
            agent="main",
            source=source,
            person=None,
            display_name=source.chat_name,
            created_at=created,
        )
        return ForeignSession(
            file,
            session,
            self._messages(file),
            lambda totals: self._summarise(file, totals, created),
            needs_messages=True,
        )

    def _messages(self, file: str) -> Iterator[ForeignMessage]:
        normaliser = MessageNormaliser(file, self._findings, self._timestamps)
        for line, value in self._folder.lines(file):
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                # The format of fine-tuning files: a whole conversation on a line.
                for message in value["messages"]:
                    yield from _messages_in(normaliser, line, message)
                continue
            yield from _messages_in(normaliser, line, value)

    def _first_time(self, file: str) -> int | None:
        """Return the time of the first record, or None if it has none."""
        for line in self._folder.lines(file, quietly=True):
            if isinstance(line.value, dict):
                return self._timestamps.micros(_time_of(line.value))
        return None

    def _summarise(self, file: str, totals: Totals, created: int) -> ImportSummary:
        updated = totals.last_at if totals.last_at is not None else created
        return ImportSummary(
            created_at=min(created, updated),
            updated_at=updated,
            ended_at=updated,
            end_reason=IMPORTED,
            metadata={IMPORTED: {"from": "jsonl", "file": file}},
        )


def _messages_in(normaliser: MessageNormaliser, line: int, value: Any) -> Iterator[ForeignMessage]:
    message = normaliser.message(line, value)
    if message is not None:
        yield ForeignMessage(line, message, normaliser.at(line, _time_of(message)))


def _time_of(message: dict[str, Any]) -> object:
    return next((message[name] for name in _TIME_FIELDS if message.get(name) is not None), None)
