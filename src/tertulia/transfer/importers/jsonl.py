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
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser

SUFFIX = ".jsonl"
PLATFORM = "jsonl"

# Fields in which programs write the time of a message.
_TIMES = ("timestamp", "created_at", "created", "time")


class Jsonl:
    """Reads every JSONL file of a folder, or one file."""

    def __init__(
        self, folder: SafeFolder, timestamps: TimestampParser, *, only: str | None = None
    ) -> None:
        self._folder = folder
        self._timestamps = timestamps
        self._only = only

    def sessions(self) -> Iterator[ForeignSession]:
        """Yield one session per file."""
        files = [self._only] if self._only else self._folder.files("", SUFFIX, deep=True)
        self._folder.progress.total = sum(map(self._folder.size, files))
        for file in files:
            if not self._folder.refuses(file):
                yield self._session(file)

    def _session(self, file: str) -> ForeignSession:
        stem = file.removesuffix(SUFFIX)
        head, first_at = self._head_and_time(file)
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
        )

    def _messages(self, file: str) -> Iterator[ForeignMessage]:
        normaliser = MessageNormaliser(file, self._folder.findings, self._timestamps)
        for line, value in self._folder.lines(file):
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                # The format of fine-tuning files: a whole conversation on a line.
                for message in value["messages"]:
                    yield from _normalised(normaliser, line, message)
                continue
            yield from _normalised(normaliser, line, value)

    def _head_and_time(self, file: str) -> tuple[bytes, int | None]:
        """Return the first bytes, which tell files of one name apart, and the first time."""
        stream = self._folder.open(file)
        head = b""
        if stream is not None:
            with stream:
                head = stream.readline(4096)
        for line in self._folder.lines(file, quietly=True):
            if isinstance(line.value, dict):
                return head, self._timestamps.micros(_time_of(line.value))
        return head, None

    def _summarise(self, file: str, totals: Totals, created: int) -> ImportSummary:
        updated = totals.last_at if totals.last_at is not None else created
        return ImportSummary(
            created_at=min(created, updated),
            updated_at=updated,
            ended_at=updated,
            end_reason=IMPORTED,
            metadata={IMPORTED: {"from": "jsonl", "file": file}},
        )


def _normalised(normaliser: MessageNormaliser, line: int, value: Any) -> Iterator[ForeignMessage]:
    message = normaliser.message(line, value)
    if message is not None:
        yield ForeignMessage(line, message, normaliser.at(line, _time_of(message)))


def _time_of(message: dict[str, Any]) -> object:
    return next((message[name] for name in _TIMES if message.get(name) is not None), None)
