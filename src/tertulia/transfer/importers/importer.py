"""Write the sessions that a reader yields into the store: checked, and in batches."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tertulia.core.message import ASSISTANT, TOOL, USER, draft, to_json
from tertulia.errors import IllegalMove
from tertulia.records.imports import (
    IMPORTED,
    ImportBatch,
    ImportedMessage,
    ImportProgress,
    Imports,
    ImportSummary,
    MessageDigest,
)
from tertulia.transfer.importers.model import ForeignMessage, ForeignSession, Totals
from tertulia.transfer.importers.report import Findings, PrefixedFindings, Report
from tertulia.transfer.importers.safe_files import ReadProgress
from tertulia.transfer.progress_callback import Progress

# Limits of a batch: large enough that commits are cheap, small enough that memory stays flat.
_BATCH_MESSAGES = 2_000
_BATCH_SESSIONS = 200
_BATCH_CHARACTERS = 2_000_000


class Importer:
    """Imports foreign sessions. With `writes=False` it only reports what it would do."""

    def __init__(
        self,
        imports: Imports | None,
        findings: Findings,
        read_progress: ReadProgress,
        *,
        writes: bool,
        progress: Progress | None,
    ) -> None:
        self.imports = imports
        self._findings = findings
        self._read_progress = read_progress
        self._writes = writes
        self._progress = progress
        self._batches: list[ImportBatch] = []
        self._messages = 0
        self._characters = 0
        self._counts = {"sessions": 0, "messages": 0, "skipped": 0}

    def add(self, foreign: ForeignSession) -> None:
        """Import the messages of a session that the store does not have yet."""
        stored = None
        if self.imports is not None:
            stored = self.imports.get_progress(foreign.session.name)
        findings = self._findings
        if foreign.prefix:
            findings = PrefixedFindings(findings, foreign.prefix)
        session_import = SessionImport(self, foreign, stored, findings)
        for message in foreign.messages:
            session_import.add(message)
        session_import.finish()

    def report(self) -> Report:
        """Write the last batch and return the report."""
        self.flush()
        return Report(**self._counts, problems=self._findings.all())

    def count(self, name: str, more: int = 1) -> None:
        """Add to a count of the report."""
        self._counts[name] += more

    def put(self, batch: ImportBatch) -> None:
        """Queue messages of one session for the next commit."""
        self._batches.append(batch)
        if len(self._batches) >= _BATCH_SESSIONS:
            self.flush()

    def count_message(self, characters: int) -> bool:
        """Count a queued message; return whether the batch is full and has to be written."""
        self._messages += 1
        self._characters += characters
        return self._messages >= _BATCH_MESSAGES or self._characters >= _BATCH_CHARACTERS

    def flush(self) -> None:
        """Write the queued batches in one transaction, and report the progress."""
        if self._batches and self._writes and self.imports is not None:
            self.imports.write(self._batches)
        self._batches = []
        self._messages = self._characters = 0
        if self._progress is not None:
            total = self._read_progress.total
            self._progress(min(self._read_progress.done, total), total)


class SessionImport:
    """Imports one session, message by message."""

    def __init__(
        self,
        importer: Importer,
        foreign: ForeignSession,
        stored: ImportProgress | None,
        findings: Findings,
    ) -> None:
        self._importer = importer
        self._foreign = foreign
        self._stored = stored
        self._findings = findings
        self._tool_pairs = ToolPairCheck(foreign.file, findings)
        self._messages: list[ImportedMessage] = []
        self._is_first_batch = stored is None
        self._stored_count = 0 if stored is None else stored.stored
        self._is_same = True  # what was read so far equals what the store has
        self._queued_count = self._stored_count
        self._digest = MessageDigest()
        self._read_count = 0
        self._visible_count = 0
        self._new_count = 0
        self._last_user = 0  # its number among the visible messages
        self._first_at: int | None = None
        self._previous_at: int | None = None
        self._last_at: int | None = None
        self._hidden: list[tuple[int, int]] = []

    def add(self, message: ForeignMessage) -> None:
        """Check the next message, and queue it unless the store has it."""
        try:
            row = draft(message.body)
        except IllegalMove as problem:
            detail = f"the message cannot be stored: {problem.message}"
            self._findings.add(self._foreign.file, message.line, "not_storable", detail)
            return
        at = message.at if message.at is not None else self._previous_at
        if at is None:
            at = self._foreign.session.created_at
        self._previous_at = at
        self._last_at = at if self._last_at is None else max(at, self._last_at)
        self._read_count += 1
        if self._first_at is None:
            self._first_at = at
        if message.is_visible:
            self._visible_count += 1
            self._tool_pairs.add(message.line, message.body)
            if row.role == USER:
                self._last_user = self._visible_count
        else:
            self._hide(self._read_count)
        self._digest.add(row)
        if self._read_count <= self._stored_count:
            self._compare_with_stored()
        elif self._can_append():
            self._messages.append(ImportedMessage(row, at, message.kind))
            self._new_count += message.is_visible
            size = len(row.body) + sum(blob.size for blob in row.blobs)
            if self._importer.count_message(size):
                self._queue_batch(None)
                self._importer.flush()

    def finish(self) -> None:
        """Queue the last batch with the summary of the session, and report what is odd about it."""
        self._tool_pairs.end()
        stored = self._stored
        if self._foreign.needs_messages and stored is None and not self._read_count:
            return
        if self._read_count < self._stored_count:
            self._is_same = False
        if not self._is_same:
            detail = "it differs from what was imported before; the stored session is unchanged"
            self._findings.add(self._foreign.file, None, "changed_since_import", detail)
        elif (
            stored is not None and stored.has_new_messages and self._read_count > self._stored_count
        ):
            detail = (
                "both the store and the source have new messages; the stored session is unchanged"
            )
            self._findings.add(self._foreign.file, None, "continued_here", detail)
        totals = Totals(
            self._visible_count, self._first_at, self._last_at, self._last_user, tuple(self._hidden)
        )
        summary = self._foreign.summarise(totals)
        is_complete = (
            stored is not None and stored.is_complete and self._queued_count == self._stored_count
        )
        if not self._can_append() or (is_complete and not self._messages):
            self._importer.count("skipped")
            return
        if summary.ended_at is None and not is_complete:
            self._report_key_in_use(summary.updated_at)
        self._queue_batch(self._with_storable_metadata(summary))
        self._importer.count("sessions")
        self._importer.count("messages", self._new_count)

    def _report_key_in_use(self, updated_at: int) -> None:
        """Report a newer session of the store that stays current for the same key."""
        imports = self._importer.imports
        if imports is None:
            return
        current = imports.get_blocking_session(self._foreign.session.key, updated_at)
        if current is not None:
            detail = f"{current} is current for this key in the store; imported as an ended session"
            self._findings.add(self._foreign.file, None, "key_in_use", detail)

    def _compare_with_stored(self) -> None:
        assert self._stored is not None
        if self._read_count == self._stored_count and str(self._digest) != self._stored.digest:
            self._is_same = False

    def _can_append(self) -> bool:
        """Return whether further messages may be appended to what the store has."""
        if self._stored is None:
            return True
        return self._is_same and not (self._stored.is_complete and self._stored.has_new_messages)

    def _hide(self, number: int) -> None:
        if self._hidden and self._hidden[-1][1] == number - 1:
            self._hidden[-1] = (self._hidden[-1][0], number)
        else:
            self._hidden.append((number, number))

    def _with_storable_metadata(self, summary: ImportSummary) -> ImportSummary:
        """Return the summary; if its metadata cannot be stored, report it and keep its texts."""
        try:
            to_json(summary.metadata)
        except IllegalMove as problem:
            detail = f"the metadata cannot be stored: {problem.message}"
            self._findings.add(self._foreign.file, None, "metadata_not_storable", detail)
            fields = summary.metadata.get(IMPORTED) or {}
            names = {name: value for name, value in fields.items() if isinstance(value, str)}
            return replace(summary, metadata={IMPORTED: names})
        return summary

    def _queue_batch(self, summary: ImportSummary | None) -> None:
        """Queue the collected messages; the last batch of a session has its summary."""
        was_complete = self._stored is not None and self._stored.is_complete
        batch = ImportBatch(
            self._foreign.session,
            self._is_first_batch,
            self._queued_count,
            self._messages,
            str(self._digest),
            summary,
            was_complete,
        )
        self._queued_count += len(self._messages)
        self._is_first_batch = False
        self._messages = []
        self._importer.put(batch)


class ToolPairCheck:
    """Reports tool calls without a result and results without a call; it changes nothing."""

    def __init__(self, file: str, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self._line: int | None = None
        self._open: set[str] = set()
        self._answered: set[str] = set()

    def add(self, line: int | None, message: Any) -> None:
        """Check the next message."""
        role = message.get("role")
        if role == TOOL:
            self._check_result(line, message.get("tool_call_id"))
            return
        if self._open:
            self.end()
        self._answered.clear()
        if role == ASSISTANT and message.get("tool_calls"):
            self._line = line
            self._open = set(_call_ids(message["tool_calls"]))

    def end(self) -> None:
        """Report the calls that still have no result."""
        if self._open:
            detail = f"{len(self._open)} without a result: {', '.join(sorted(self._open))}"
            self._findings.add(self._file, self._line, "unanswered_tool_call", detail)
        self._open = set()

    def _check_result(self, line: int | None, call: object) -> None:
        if not isinstance(call, str):
            call = ""
        if call in self._open:
            self._open.remove(call)
            self._answered.add(call)
        elif call in self._answered:
            detail = f"a second result for {call}"
            self._findings.add(self._file, line, "duplicate_tool_result", detail)
        else:
            detail = f"a result for {call or 'no call'}, but no such call stands directly before it"
            self._findings.add(self._file, line, "orphan_tool_result", detail)


def _call_ids(calls: object) -> list[str]:
    if not isinstance(calls, list):
        return []
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return [call_id for call_id in ids if isinstance(call_id, str)]
