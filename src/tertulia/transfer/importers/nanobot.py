"""Read the sessions of nanobot: one JSONL file each, under three kinds of names.

The first line is a record of `_type` metadata, the others are messages. The key in the metadata is
authoritative; file names lose characters (early versions) or are the key in base64url (later ones).
Files are read from every folder called `sessions`, so also those that nanobot itself no longer
reads after it moved its sessions out of the workspace.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.source import Source
from tertulia.records.imports import IMPORTED, ImportedSession, ImportSummary
from tertulia.records.transcript.replace import kind_of
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
    import_name,
    person_in,
    text,
)
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.reader import Reader
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.timestamps import TimestampParser

SUFFIX = ".jsonl"

_TOPIC = re.compile(r"(-?\d+):topic:(\d+)")
_THREAD = re.compile(r"(\d+):thread:(\d+)")
_SLACK = re.compile(r"([CDG][A-Z0-9]+)(?::(\d+\.\d+))?")
_LOSSY = (
    (re.compile(r"telegram_(-?\d+)_topic_(\d+)"), r"telegram:\1:topic:\2"),
    (re.compile(r"discord_(\d+)_thread_(\d+)"), r"discord:\1:thread:\2"),
    (re.compile(r"slack_([CDG][A-Z0-9]+)_(\d+\.\d+)"), r"slack:\1:\2"),
)
WORKSPACE_ID = re.compile(r"[0-9a-f]{32}")
_RECORD_FIELDS = ("_type", "key", "created_at", "updated_at", "metadata", "last_consolidated")


def source_of(key: str) -> Source:
    """Return the source of the messages of a nanobot key.

    Different keys give different sources: the key can be rebuilt from its source.
    """
    platform, _, rest = key.partition(":")
    platform = platform or "nanobot"
    if platform == "telegram":
        return _telegram_source(rest)
    if platform == "discord" and (match := _THREAD.fullmatch(rest)):
        return Source(platform, match[1], chat_type="thread", thread_id=match[2])
    if platform == "slack" and (match := _SLACK.fullmatch(rest)):
        kind = "dm" if rest.startswith("D") else "channel"
        return Source(platform, match[1], chat_type=kind, thread_id=match[2])
    return Source(platform, rest)


def _telegram_source(rest: str) -> Source:
    match = _TOPIC.fullmatch(rest)
    chat, thread = (match[1], match[2]) if match else (rest, None)
    kind = "group" if chat.startswith("-") else "dm"
    return Source("telegram", chat, chat_type=kind, thread_id=thread)


class _Head(NamedTuple):
    """The metadata record of a file, or a substitute if it has none."""

    file: str
    key: str
    record: dict[str, Any]
    is_missing: bool
    created_at: int
    updated_at: int | None
    recorded_at: int  # the creation time that the file itself records, or 0

    @property
    def rank(self) -> tuple[int, bool, str]:
        """The order among files of one key: newest first, then the one with the expected name."""
        return -(self.updated_at or 0), not self.has_expected_name, self.file

    @property
    def has_expected_name(self) -> bool:
        """Return whether the file has the name that nanobot derives from its key."""
        return _stem(self.file) in (_lossy(self.key), _encoded(self.key))


class Nanobot(Reader):
    """Reads the sessions below a folder of nanobot."""

    def sessions(self) -> Iterator[ForeignSession]:
        """Yield every session; of several files with one key, the newest is current."""
        files = [file for file in self._files() if not self._folder.is_unreadable(file)]
        self._folder.progress.total = sum(map(self._folder.size, files))
        by_key: dict[str, list[_Head]] = defaultdict(list)
        for file in files:
            head = self._read_head(file)
            by_key[head.key].append(head)
        for key, unsorted in by_key.items():
            names = _import_names(unsorted)
            heads = sorted(unsorted, key=lambda head: head.rank)
            yield self._foreign_session(heads[0], names[heads[0].file], is_first=True)
            for head in heads[1:]:
                detail = f"the newer file {heads[0].file} has the same key {key}"
                self._findings.add(head.file, None, "duplicate_key", detail)
                yield self._foreign_session(head, names[head.file], is_first=False)

    def _files(self) -> list[str]:
        """Return every transcript: directly in the folder, or in a folder called `sessions`."""
        files = self._folder.files("", SUFFIX)
        for name in self._folder.folders(""):
            files += self._files_below(name)
        return files

    def _files_below(self, name: str) -> list[str]:
        last = name.rsplit("/", 1)[-1]
        if last == "sessions" or WORKSPACE_ID.fullmatch(last) or last == ".migration-conflicts":
            return self._folder.files(name, SUFFIX, deep=True)
        if last.startswith(".") or last == "node_modules":
            return []
        return [file for inner in self._folder.folders(name) for file in self._files_below(inner)]

    def _read_head(self, file: str) -> _Head:
        """Return the first record; damage is reported later, when the whole file is read."""
        record: dict[str, Any] = {}
        first_at: int | None = None
        if self._folder.is_file(file):
            for line in self._folder.lines(file, quietly=True):
                if isinstance(line.value, dict):
                    if line.value.get("_type") == "metadata":
                        record = line.value
                    else:
                        first_at = self._timestamps.micros(line.value.get("timestamp"))
                    break
        key = text(record.get("key")) or _key_of(file)
        recorded = self._timestamps.micros(record.get("created_at")) or first_at
        created = recorded or self._folder.changed_at(file)
        updated = self._timestamps.micros(record.get("updated_at"))
        return _Head(file, key, record, not record, created, updated, recorded or 0)

    def _foreign_session(self, head: _Head, name: str, *, is_first: bool) -> ForeignSession:
        source = source_of(head.key)
        key = keys.session_key(source, per_user=False)
        metadata = head.record.get("metadata")
        display_name = metadata.get("display_name") if isinstance(metadata, dict) else None
        session = ImportedSession(
            name=name,
            id=None,
            key=key,
            agent="main",
            source=source,
            person=person_in(source, key),
            display_name=text(display_name),
            created_at=head.created_at,
        )
        transcript = _NanobotTranscript(self._folder, self._timestamps, head, is_current=is_first)
        return ForeignSession(head.file, session, transcript.messages(), transcript.summarise)


def _import_names(heads: list[_Head]) -> dict[str, str]:
    """Return the permanent import name of each file of a key: from the key and its creation time.

    A later nanobot renames files, and the newest of several files changes. So the file name is used
    only to tell copies apart that have the same creation time.
    """
    names: dict[str, str] = {}
    for head in sorted(heads, key=lambda head: (not head.has_expected_name, head.file)):
        parts: tuple[object, ...] = (head.key, head.recorded_at)
        for more in ((), (_stem(head.file),), (head.file,)):
            name = import_name("nanobot", *parts, *more)
            if name not in names.values():
                break
        names[head.file] = name
    return names


class _NanobotTranscript(Reader):
    """Reads the messages of one transcript file."""

    def __init__(
        self, folder: SafeFolder, timestamps: TimestampParser, head: _Head, *, is_current: bool
    ) -> None:
        super().__init__(folder, timestamps)
        self._head = head
        self._is_current = is_current
        self._record = head.record
        self._other_records: list[dict[str, Any]] = []
        self._metadata_line = 0

    def messages(self) -> Iterator[ForeignMessage]:
        """Yield the messages, and collect the other records."""
        normaliser = MessageNormaliser(self._head.file, self._findings, self._timestamps)
        has_any = False
        for line, value in self._folder.lines(self._head.file):
            has_any = True
            if isinstance(value, dict) and "_type" in value:
                self._add_record(line, value)
                continue
            message = normaliser.message(line, value)
            if message is not None:
                at = normaliser.at(line, message.get("timestamp"))
                yield ForeignMessage(line, message, at, kind_of(message))
        if self._head.is_missing and not self._metadata_line and (has_any or self._has_text()):
            detail = f"no metadata record; the key {self._head.key} is from the file name"
            self._findings.add(self._head.file, None, "metadata_missing", detail)

    def summarise(self, totals: Totals) -> ImportSummary:
        """Return what is known of the whole session after its messages were read."""
        record = self._record
        times = {name: record.get(name) for name in ("created_at", "updated_at")}
        self._report_times(self._head.file, self._metadata_line or None, times)
        metadata = record.get("metadata")
        fields = metadata if isinstance(metadata, dict) else {}
        consolidated = self._consolidated(totals)
        recorded = self._head.recorded_at
        created = recorded or totals.first_at or self._head.created_at
        updated = self._timestamps.micros(record.get("updated_at")) or totals.last_at or created
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=None if self._is_current else updated,
            end_reason=None if self._is_current else IMPORTED,
            title=text(fields.get("title")),
            metadata={**fields, IMPORTED: self._extra_fields(metadata)},
            consolidated=consolidated,
            summary=_summary(fields) if consolidated else None,
        )

    def _has_text(self) -> bool:
        """Return whether the file has a line at all; each of them may be damaged."""
        return self._folder.is_file(self._head.file) and self._folder.has_text(self._head.file)

    def _add_record(self, line: int, value: dict[str, Any]) -> None:
        if value["_type"] != "metadata":
            self._other_records.append(value)
            return
        if self._metadata_line:
            self._findings.add(
                self._head.file, line, "metadata_duplicate",
                f"a second metadata record; the key stays {self._head.key}",
            )  # fmt: skip
        self._metadata_line = line
        self._record = value

    def _extra_fields(self, metadata: object) -> dict[str, Any]:
        """Return the fields that the store has no column for."""
        record = self._record
        extra: dict[str, Any] = {"from": "nanobot", "key": self._head.key, "file": self._head.file}
        if "last_consolidated" in record:
            extra["last_consolidated"] = record["last_consolidated"]
        unknown = {name: value for name, value in record.items() if name not in _RECORD_FIELDS}
        if unknown:
            extra["record"] = unknown
        if self._other_records:
            extra["records"] = self._other_records
        if not isinstance(metadata, dict) and metadata is not None:
            extra["metadata"] = metadata
        elif isinstance(metadata, dict) and IMPORTED in metadata:
            extra["metadata"] = {IMPORTED: metadata[IMPORTED]}
        return extra

    def _consolidated(self, totals: Totals) -> int:
        """Return how many of the first messages nanobot no longer shows to its model."""
        if "last_consolidated" not in self._record:
            return 0
        count = self._record["last_consolidated"]
        file = self._head.file
        if type(count) is not int:
            detail = f"it is {count!r}; no message is hidden"
            self._findings.add(file, self._metadata_line, "last_consolidated_not_int", detail)
            return 0
        if not 0 <= count <= totals.visible:
            detail = f"{count} of {totals.visible} messages; no message is hidden"
            self._findings.add(file, self._metadata_line, "last_consolidated_out_of_range", detail)
            return 0
        # The last message of the user stays visible in any case.
        return min(count, max(totals.last_user - 1, 0))


def _summary(metadata: dict[str, Any]) -> str | None:
    summary = metadata.get("_last_summary")
    return text(summary.get("text") if isinstance(summary, dict) else summary)


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].removesuffix(SUFFIX)


def _key_of(file: str) -> str:
    """Return the key that a file name encodes; in a lossy name some `_` were colons."""
    stem = _stem(file)
    parts = file.split("/")
    if len(parts) > 1 and WORKSPACE_ID.fullmatch(parts[-2]):
        try:
            key = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode("utf-8")
        except (binascii.Error, ValueError):
            key = ""
        if key.isprintable() and _encoded(key) == stem:
            return key
    for pattern, template in _LOSSY:
        if match := pattern.fullmatch(stem):
            return match.expand(template)
    return stem.replace("_", ":", 1)


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _lossy(key: str) -> str:
    return re.sub(r'[<>:"/\\|?*]', "_", key)
