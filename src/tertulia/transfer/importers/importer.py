"""The way of every conversation into the store: read, checked, gathered, written in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tertulia.core.message import ASSISTANT, TOOL, USER, draft
from tertulia.errors import IllegalMove
from tertulia.records.imports import (
    Digest,
    ImportBatch,
    ImportedMessage,
    ImportProgress,
    Imports,
    ImportSummary,
)
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
)
from tertulia.transfer.importers.report import (
    Findings,
    ProblemList,
    Report,
)
from tertulia.transfer.importers.safe_files import ReadProgress

Progress = Callable[[int, int], None]

# Large enough that a commit is cheap, small enough that memory stays flat.
_MESSAGES = 2_000
_SESSIONS = 200
_CHARACTERS = 2_000_000


class Importer:
    """Takes conversations in. One that does not write only says what it would do."""

    def __init__(
        self,
        newcomers: Imports | None,
        findings: Findings,
        meter: ReadProgress,
        *,
        writes: bool,
        progress: Progress | None,
    ) -> None:
        self.newcomers = newcomers
        self._findings = findings
        self._meter = meter
        self._writes = writes
        self._progress = progress
        self._parcels: list[ImportBatch] = []
        self._messages = 0
        self._characters = 0
        self._counts = {"sessions": 0, "messages": 0, "skipped": 0}

    def take(self, talk: ForeignSession) -> None:
        """Bring in what is not here yet of a conversation."""
        standing = None
        if self.newcomers is not None:
            standing = self.newcomers.standing(talk.newcomer.name)
        findings = ProblemList(self._findings, talk.about) if talk.about else self._findings
        passing = SessionImport(self, talk, standing, findings)
        for said in talk.said:
            passing.see(said)
        passing.finish()

    def report(self) -> Report:
        """Write what is left; what was done."""
        self.flush()
        return Report(**self._counts, problems=self._findings.all())

    def counted(self, name: str, more: int = 1) -> None:
        self._counts[name] += more

    def put(self, parcel: ImportBatch) -> None:
        self._parcels.append(parcel)
        if len(self._parcels) >= _SESSIONS:
            self.flush()

    def weigh(self, more: int) -> bool:
        """Note a message of so many characters; whether it is time to write."""
        self._messages += 1
        self._characters += more
        return self._messages >= _MESSAGES or self._characters >= _CHARACTERS

    def flush(self) -> None:
        """Write what has gathered."""
        if self._parcels and self._writes and self.newcomers is not None:
            self.newcomers.write(self._parcels)
        self._parcels = []
        self._messages = self._characters = 0
        if self._progress is not None:
            self._progress(min(self._meter.done, self._meter.total), self._meter.total)


class SessionImport:
    """One conversation while it passes."""

    def __init__(
        self,
        taker: Importer,
        talk: ForeignSession,
        standing: ImportProgress | None,
        findings: Findings,
    ) -> None:
        self._taker = taker
        self._talk = talk
        self._standing = standing
        self._findings = findings
        self._pairs = ToolPairCheck(talk.file, findings)
        self._entries: list[ImportedMessage] = []
        self._begins = standing is None
        self._here = 0 if standing is None else standing.taken
        self._is_same = True
        self._written = self._here
        self._digest = Digest()
        self._read = 0
        self._shown = 0
        self._new = 0
        self._last_person = 0
        self._first_at: int | None = None
        self._at: int | None = None
        self._last_at: int | None = None
        self._hidden: list[tuple[int, int]] = []

    def see(self, said: ForeignMessage) -> None:
        """One message more."""
        try:
            item = draft(said.message)
        except IllegalMove as problem:
            told = f"it cannot be stored: {problem.message}"
            self._findings.add(self._talk.file, said.line, "not_storable", told)
            return
        at = said.at if said.at is not None else self._at
        if at is None:
            at = self._talk.newcomer.created_at
        self._at = at
        self._last_at = at if self._last_at is None else max(at, self._last_at)
        self._read += 1
        if self._first_at is None:
            self._first_at = at
        if said.is_shown:
            self._shown += 1
            self._pairs.see(said.line, said.message)
            if item.role == USER:
                self._last_person = self._shown
        else:
            self._hide(self._read)
        self._digest.add(item)
        if self._read <= self._here:
            self._compare()
        elif self._goes_on():
            self._entries.append(ImportedMessage(item, at, said.kind))
            self._new += said.is_shown
            if self._taker.weigh(len(item.body) + sum(blob.size for blob in item.blobs)):
                self._send(None)
                self._taker.flush()

    def finish(self) -> None:
        """All of it has passed."""
        self._pairs.end()
        standing = self._standing
        if self._read < self._here:
            self._is_same = False
        if not self._is_same:
            told = "it is not what was imported before; what is here was left as it is"
            self._findings.add(self._talk.file, None, "changed_since_import", told)
        elif standing is not None and standing.has_gone_on and self._read > self._here:
            told = "more was said both here and there; what is here was left as it is"
            self._findings.add(self._talk.file, None, "continued_here", told)
        seen = Totals(
            self._shown, self._first_at, self._last_at, self._last_person, tuple(self._hidden)
        )
        settlement = self._talk.settled(seen)
        is_known = standing is not None and standing.is_complete and self._written == self._here
        if not self._goes_on() or (is_known and not self._entries):
            self._taker.counted("skipped")
            return
        if settlement.ended_at is None and not is_known:
            self._look_for_another(settlement.updated_at)
        self._send(settlement)
        self._taker.counted("sessions")
        self._taker.counted("messages", self._new)

    def _look_for_another(self, updated_at: int) -> None:
        """Tell where the conversation goes on in another session already."""
        newcomers = self._taker.newcomers
        if newcomers is None:
            return
        another = newcomers.in_the_way(self._talk.newcomer.key, updated_at)
        if another is not None:
            told = f"{another} is current for its key here, so it comes as one that has ended"
            self._findings.add(self._talk.file, None, "key_in_use", told)

    def _compare(self) -> None:
        assert self._standing is not None
        if self._read == self._here and str(self._digest) != self._standing.digest:
            self._is_same = False

    def _goes_on(self) -> bool:
        """Whether what comes may be added to what is here."""
        if self._standing is None:
            return True
        return self._is_same and not (self._standing.is_complete and self._standing.has_gone_on)

    def _hide(self, number: int) -> None:
        if self._hidden and self._hidden[-1][1] == number - 1:
            self._hidden[-1] = (self._hidden[-1][0], number)
        else:
            self._hidden.append((number, number))

    def _send(self, settlement: ImportSummary | None) -> None:
        was_complete = self._standing is not None and self._standing.is_complete
        parcel = ImportBatch(
            self._talk.newcomer,
            self._begins,
            self._written,
            self._entries,
            str(self._digest),
            settlement,
            was_complete,
        )
        self._written += len(self._entries)
        self._begins = False
        self._entries = []
        self._taker.put(parcel)


class ToolPairCheck:
    """Looks whether calls of tools and their results belong together; nothing is changed."""

    def __init__(self, file: str, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self._line: int | None = None
        self._open: set[str] = set()
        self._answered: set[str] = set()

    def see(self, line: int | None, message: Any) -> None:
        role = message.get("role")
        if role == TOOL:
            self._result(line, message.get("tool_call_id"))
            return
        if self._open:
            self.end()
        self._answered.clear()
        if role == ASSISTANT and message.get("tool_calls"):
            self._line = line
            self._open = set(_call_ids(message["tool_calls"]))

    def end(self) -> None:
        """No more results come for the calls that were made."""
        if self._open:
            told = f"{len(self._open)} without a result: {', '.join(sorted(self._open))}"
            self._findings.add(self._file, self._line, "unanswered_tool_call", told)
        self._open = set()

    def _result(self, line: int | None, call: object) -> None:
        if not isinstance(call, str):
            call = ""
        if call in self._open:
            self._open.remove(call)
            self._answered.add(call)
        elif call in self._answered:
            told = f"a second result for {call}"
            self._findings.add(self._file, line, "duplicate_tool_result", told)
        else:
            told = f"a result for {call or 'no call'}, which was not made right before it"
            self._findings.add(self._file, line, "orphan_tool_result", told)


def _call_ids(calls: object) -> list[str]:
    if not isinstance(calls, list):
        return []
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return [found for found in ids if isinstance(found, str)]
