"""Sessions of nanobot: one JSONL file each, under three kinds of names.

The first line is a record of `_type` metadata, the others are messages. The key in the metadata is
the truth; file names lose characters (early versions) or are the key in base64url (later ones).
Files are found wherever a folder called `sessions` is, so also those that nanobot itself no longer
sees after it moved its sessions out of the workspace.
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
from tertulia.records.imports import (
    IMPORTED,
    ImportedSession,
    ImportSummary,
)
from tertulia.records.transcript.replace import kind_of
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
    named,
    person_in,
    text,
)
from tertulia.transfer.importers.normalise import MessageNormaliser
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
_WORKSPACE_ID = re.compile(r"[0-9a-f]{32}")
_KNOWN = ("_type", "key", "created_at", "updated_at", "metadata", "last_consolidated")

# Rows that nanobot kept out of sight, by the mark it put on them.


def source_of(key: str) -> Source:
    """Where the messages of a nanobot key come from.

    Different keys give different sources: what is taken apart here can be put together again.
    """
    platform, _, rest = key.partition(":")
    platform = platform or "nanobot"
    if platform == "telegram":
        return _telegram(rest)
    if platform == "discord" and (found := _THREAD.fullmatch(rest)):
        return Source(platform, found[1], chat_type="thread", thread_id=found[2])
    if platform == "slack" and (found := _SLACK.fullmatch(rest)):
        kind = "dm" if rest.startswith("D") else "channel"
        return Source(platform, found[1], chat_type=kind, thread_id=found[2])
    return Source(platform, rest)


def _telegram(rest: str) -> Source:
    found = _TOPIC.fullmatch(rest)
    chat, thread = (found[1], found[2]) if found else (rest, None)
    kind = "group" if chat.startswith("-") else "dm"
    return Source("telegram", chat, chat_type=kind, thread_id=thread)


class _Head(NamedTuple):
    """The first record of a file, or what stands in for it."""

    file: str
    key: str
    record: dict[str, Any]
    is_missing: bool
    created_at: int
    updated_at: int | None
    told_at: int  # when it was created, as far as the file itself says so

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Among files of one key: the newest first, then the one that is named as it should be."""
        return -(self.updated_at or 0), not self.is_named, self.file

    @property
    def is_named(self) -> bool:
        """Whether the file has the name that its key asks for."""
        return _stem(self.file) in (_lossy(self.key), _encoded(self.key))


class Nanobot:
    """The sessions under a folder of nanobot."""

    def __init__(self, folder: SafeFolder, moments: TimestampParser) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments

    def talks(self) -> Iterator[ForeignSession]:
        files = self._files()
        self._folder.meter.total = sum(map(self._folder.size, files))
        by_key: dict[str, list[_Head]] = defaultdict(list)
        for file in files:
            head = self._head(file)
            by_key[head.key].append(head)
        for key, found in by_key.items():
            names = _names(found)
            heads = sorted(found, key=lambda head: head.rank)
            yield self._talk(heads[0], names[heads[0].file], is_first=True)
            for head in heads[1:]:
                told = f"the key {key} is also that of {heads[0].file}, which is newer"
                self._findings.add(head.file, None, "duplicate_key", told)
                yield self._talk(head, names[head.file], is_first=False)

    def _files(self) -> list[str]:
        """Every transcript: directly in the folder, or within one that is called `sessions`."""
        found = self._folder.files("", SUFFIX)
        for name in self._folder.folders(""):
            found += self._below(name)
        return found

    def _below(self, name: str) -> list[str]:
        last = name.rsplit("/", 1)[-1]
        if last == "sessions" or _WORKSPACE_ID.fullmatch(last) or last == ".migration-conflicts":
            return self._folder.files(name, SUFFIX, deep=True)
        if last.startswith(".") or last == "node_modules":
            return []
        return [file for inner in self._folder.folders(name) for file in self._below(inner)]

    def _head(self, file: str) -> _Head:
        """Look at the first record without telling of any damage: that comes when all is read."""
        record: dict[str, Any] = {}
        first_at: int | None = None
        if self._folder.is_file(file):
            for line in self._folder.lines(file, quietly=True):
                if isinstance(line.value, dict):
                    if line.value.get("_type") == "metadata":
                        record = line.value
                    else:
                        first_at = self._moments.micros(line.value.get("timestamp"))
                    break
        key = text(record.get("key")) or _key_of(file)
        told = self._moments.micros(record.get("created_at")) or first_at
        created = told or self._folder.changed_at(file)
        updated = self._moments.micros(record.get("updated_at"))
        return _Head(file, key, record, not record, created, updated, told or 0)

    def _talk(self, head: _Head, name: str, *, is_first: bool) -> ForeignSession:
        source = source_of(head.key)
        key = keys.session_key(source, per_user=False)
        metadata = head.record.get("metadata")
        shown = metadata.get("display_name") if isinstance(metadata, dict) else None
        newcomer = ImportedSession(
            name=name,
            id=None,
            key=key,
            agent="main",
            source=source,
            person=person_in(source, key),
            display_name=text(shown),
            created_at=head.created_at,
        )
        file = _File(self._folder, self._moments, head, is_current=is_first)
        return ForeignSession(head.file, newcomer, file.said(), file.settled)


def _names(heads: list[_Head]) -> dict[str, str]:
    """What each file of a key is called for ever: by its key and when it was created.

    A later nanobot gives the file another name, and which of several is newest changes. So the name
    of the file counts only among copies, which were created at the same moment.
    """
    found: dict[str, str] = {}
    for head in sorted(heads, key=lambda head: (not head.is_named, head.file)):
        parts: tuple[object, ...] = (head.key, head.told_at)
        for more in ((), (_stem(head.file),), (head.file,)):
            name = named("nanobot", *parts, *more)
            if name not in found.values():
                break
        found[head.file] = name
    return found


class _File:
    """One transcript while it is read."""

    def __init__(
        self, folder: SafeFolder, moments: TimestampParser, head: _Head, *, is_current: bool
    ) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments
        self._head = head
        self._is_current = is_current
        self._record = head.record
        self._others: list[dict[str, Any]] = []
        self._metadata_line = 0

    def said(self) -> Iterator[ForeignMessage]:
        rows = MessageNormaliser(self._head.file, self._findings, self._moments)
        has_any = False
        for line, value in self._folder.lines(self._head.file):
            has_any = True
            if isinstance(value, dict) and "_type" in value:
                self._take_record(line, value)
                continue
            message = rows.message(line, value)
            if message is not None:
                at = rows.at(line, message.get("timestamp"))
                yield ForeignMessage(line, message, at, kind_of(message))
        if has_any and self._head.is_missing and not self._metadata_line:
            told = f"the key {self._head.key} was taken from the name of the file"
            self._findings.add(self._head.file, None, "metadata_missing", told)

    def settled(self, seen: Totals) -> ImportSummary:
        record = self._record
        metadata = record.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        consolidated = self._consolidated(seen)
        created = self._head.created_at
        updated = self._moments.micros(record.get("updated_at")) or seen.last_at or created
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=None if self._is_current else updated,
            end_reason=None if self._is_current else IMPORTED,
            title=text(known.get("title")),
            metadata={**known, IMPORTED: self._kept(metadata)},
            consolidated=consolidated,
            summary=_summary(known) if consolidated else None,
        )

    def _take_record(self, line: int, value: dict[str, Any]) -> None:
        if value["_type"] != "metadata":
            self._others.append(value)
            return
        if self._metadata_line:
            self._findings.add(
                self._head.file, line, "metadata_duplicate",
                f"a second metadata record; the key stays {self._head.key}",
            )  # fmt: skip
        self._metadata_line = line
        self._record = value

    def _kept(self, metadata: object) -> dict[str, Any]:
        """What the store has no place for."""
        record = self._record
        kept: dict[str, Any] = {"from": "nanobot", "key": self._head.key, "file": self._head.file}
        if "last_consolidated" in record:
            kept["last_consolidated"] = record["last_consolidated"]
        more = {name: value for name, value in record.items() if name not in _KNOWN}
        if more:
            kept["record"] = more
        if self._others:
            kept["records"] = self._others
        if not isinstance(metadata, dict) and metadata is not None:
            kept["metadata"] = metadata
        elif isinstance(metadata, dict) and IMPORTED in metadata:
            kept["metadata"] = {IMPORTED: metadata[IMPORTED]}
        return kept

    def _consolidated(self, seen: Totals) -> int:
        """How many of the first rows nanobot no longer shows its model."""
        if "last_consolidated" not in self._record:
            return 0
        given = self._record["last_consolidated"]
        file = self._head.file
        if type(given) is not int:
            told = f"it is {given!r}; nothing is left out"
            self._findings.add(file, self._metadata_line, "last_consolidated_not_int", told)
            return 0
        if not 0 <= given <= seen.shown:
            told = f"{given} of {seen.shown} messages; nothing is left out"
            self._findings.add(file, self._metadata_line, "last_consolidated_out_of_range", told)
            return 0
        # What the person said last is shown, whoever keeps the rest.
        return min(given, max(seen.last_person - 1, 0))


def _summary(metadata: dict[str, Any]) -> str | None:
    found = metadata.get("_last_summary")
    return text(found.get("text") if isinstance(found, dict) else found)


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].removesuffix(SUFFIX)


def _key_of(file: str) -> str:
    """The key that a file name stands for; in a lossy one some `_` were colons."""
    stem = _stem(file)
    parts = file.split("/")
    if len(parts) > 1 and _WORKSPACE_ID.fullmatch(parts[-2]):
        try:
            found = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode("utf-8")
        except (binascii.Error, ValueError):
            found = ""
        if found.isprintable() and _encoded(found) == stem:
            return found
    for pattern, key in _LOSSY:
        if match := pattern.fullmatch(stem):
            return match.expand(key)
    return stem.replace("_", ":", 1)


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _lossy(key: str) -> str:
    return re.sub(r'[<>:"/\\|?*]', "_", key)
