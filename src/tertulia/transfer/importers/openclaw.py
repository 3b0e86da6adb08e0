"""Sessions of OpenClaw, from its files and from its later databases.

- `agents/<agent>/sessions/sessions.json` says which session is current for each key, and
  `<session id>.jsonl` beside it are the transcripts, `<session id>.jsonl.reset.<time>` those that a
  reset put away.
- From 2026.7.2 on, `agents/<agent>/agent/openclaw-agent.sqlite` holds the same: the entries of the
  index, and in `transcript_events` the lines of the transcripts.

A transcript is a tree: each entry names its parent, and the way from the newest entry back to the
first is what is shown. The other branches are kept, out of sight.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from tertulia.core.message import ASSISTANT, SUMMARY, TOOL, USER
from tertulia.core.source import Source
from tertulia.records.imports import (
    IMPORTED,
    ImportedSession,
    ImportSummary,
)
from tertulia.records.usage import Charge
from tertulia.transfer.importers import model as talks
from tertulia.transfer.importers.model import (
    ForeignMessage,
    ForeignSession,
    Totals,
    text,
)
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.safe_files import (
    Line,
    SafeFolder,
    is_nothing,
    parsed,
)
from tertulia.transfer.importers.sessions_json import read_index
from tertulia.transfer.importers.sqlite_copy import (
    SqliteCopy,
    copy_database,
)
from tertulia.transfer.importers.timestamps import TimestampParser

INDEX = "sessions.json"
DATABASE = "openclaw-agent.sqlite"
SUFFIX = ".jsonl"
PLATFORM = "openclaw"

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_PUT_AWAY = re.compile(r"(.+)\.jsonl\.(reset|deleted|bak)\b.*")
_CHAT = re.compile(
    r"(?P<platform>[^:]+):(?:(?P<account>[^:]+):)?(?P<kind>direct|dm|group|channel|room):"
    r"(?P<peer>.+?)(?::(?:thread|topic):(?P<thread>[^:]+))?"
)
_CHAT_TYPES = {"direct": "dm", "dm": "dm", "group": "group", "channel": "channel", "room": "group"}
# Entries that are no messages are kept with the session; of a long one the first so many.
_MOST_ENTRIES = 200

Fields = dict[str, Any]
Entries = Callable[[bool], Iterator[Line]]  # read anew each time; told of damage if False


class _Known(NamedTuple):
    """One session before its messages are read."""

    agent: str
    id: str
    key: str | None
    entry: Fields | None
    place: str
    entries: Entries
    is_current: bool
    in_database: bool = False


class OpenClaw:
    """The sessions of all agents under a folder of OpenClaw, or of one agent."""

    def __init__(self, folder: SafeFolder, moments: TimestampParser) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments

    def talks(self) -> Iterator[ForeignSession]:
        agents = self._agents()
        with ExitStack() as stack:
            copies = {}
            for agent, under in agents:
                files = [*self._databases(under)]
                found = [stack.enter_context(copy_database(self._folder, file)) for file in files]
                copies[agent] = [copy for copy in found if copy is not None]
            known = [
                one for agent, under in agents for one in self._known(agent, under, copies[agent])
            ]
            self._folder.meter.total = sum(self._folder.size(one.place) for one in known)
            for one in known:
                yield self._talk(one)

    def _agents(self) -> list[tuple[str, str]]:
        """Each agent with its folder; the folder that was given may be that of one."""
        found = [(name.rsplit("/", 1)[-1], name) for name in self._folder.folders("agents")]
        return found or [(_agent_in(self._folder.root), "")]

    def _databases(self, under: str) -> Iterator[str]:
        for name in (f"agent/{DATABASE}", DATABASE):
            file = f"{under}/{name}" if under else name
            if self._folder.exists(file):
                yield file

    # -- what there is

    def _known(self, agent: str, under: str, copies: list[SqliteCopy]) -> list[_Known]:
        sessions = f"{under}/sessions" if under else "sessions"
        if not self._folder.is_folder(sessions):
            sessions = under
        index = self._index(sessions)
        found = self._in_files(agent, sessions, index)
        for copy in copies:
            if copy.columns("transcript_events"):
                found.update(self._in_database(agent, copy))
        return [found[name] for name in sorted(found)]

    def _index(self, sessions: str) -> dict[str, Fields]:
        file = f"{sessions}/{INDEX}" if sessions else INDEX
        found = {}
        for key, entry in read_index(self._folder, file):
            session_id = entry.get("sessionId") if isinstance(entry, dict) else None
            if not isinstance(session_id, str):
                told = f"the entry of {key} names no session"
                self._findings.add(file, None, "index_entry_invalid", told)
            elif not _SAFE_ID.fullmatch(session_id):
                told = f"the entry of {key} names the session {session_id[:60]!r}"
                self._findings.add(file, None, "unsafe_session_id", told)
            else:
                found[key] = entry
        return found

    def _in_files(
        self, agent: str, sessions: str, index: Mapping[str, Fields]
    ) -> dict[str, _Known]:
        found: dict[str, _Known] = {}
        files = {name.rsplit("/", 1)[-1]: name for name in self._folder.files(sessions, "")}
        for key, entry in index.items():
            session_id = entry["sessionId"]
            file = files.pop(self._file_name(sessions, key, entry, files), None)
            if session_id in found:
                told = f"the session {session_id} is that of {found[session_id].key} and of {key}"
                self._findings.add(f"{sessions}/{INDEX}", None, "duplicate_session_id", told)
            elif file is not None:
                found[session_id] = self._from_file(agent, session_id, file, key, entry)
            else:
                told = f"the transcript of {key} is not there"
                place = f"{sessions}/{session_id}{SUFFIX}"
                self._findings.add(place, None, "transcript_missing", told)
        for name, file in files.items():
            if one := self._left_over(agent, name, file):
                # What was put away has its old id, unless that is in use.
                free = one.id if one.id not in found else name.replace(SUFFIX, "", 1)
                found[free] = one._replace(id=free)
        return found

    def _file_name(self, sessions: str, key: str, entry: Fields, files: Mapping[str, str]) -> str:
        """The transcript of an entry: as it says itself, but never outside of the folder."""
        plain = f"{entry['sessionId']}{SUFFIX}"
        given = entry.get("sessionFile")
        if not isinstance(given, str) or not given:
            topic = f"{entry['sessionId']}-topic-"
            return next((name for name in files if name.startswith(topic)), plain)
        last = given.replace("\\", "/").rsplit("/", 1)[-1]
        if last in files:
            return last
        if plain not in files:
            told = f"the transcript of {key} is said to be {given!r}, which was not looked for"
            self._findings.add(f"{sessions}/{INDEX}", None, "unsafe_session_file", told)
        return plain

    def _left_over(self, agent: str, name: str, file: str) -> _Known | None:
        """A transcript of which the index knows nothing: orphaned, or put away by a reset."""
        if name.endswith(SUFFIX):
            stem = name.removesuffix(SUFFIX)
            if stem.endswith(".trajectory") or ".checkpoint." in name:
                return None
            return self._from_file(agent, stem, file, None, None)
        away = _PUT_AWAY.fullmatch(name)
        if away is None or away[2] == "bak":
            return None
        if away[2] == "deleted":
            told = "a transcript that was deleted there; it was left out"
            self._findings.add(file, None, "deleted_left_out", told)
            return None
        if name.endswith((".zst", ".gz")):
            told = "a compressed transcript; unpack it and run the import again"
            self._findings.add(file, None, "compressed", told)
            return None
        return self._from_file(agent, away[1], file, None, None)

    def _from_file(
        self, agent: str, session_id: str, file: str, key: str | None, entry: Fields | None
    ) -> _Known:
        def entries(quietly: bool) -> Iterator[Line]:
            return self._folder.lines(file, quietly=quietly)

        return _Known(agent, session_id, key, entry, file, entries, key is not None)

    def _in_database(self, agent: str, copy: SqliteCopy) -> dict[str, _Known]:
        found = {}
        keys, entries, current = self._routes(copy)
        for session_id in copy.values("transcript_events", "session_id"):
            if isinstance(session_id, str):
                key = keys.get(session_id)
                found[session_id] = _Known(
                    agent, session_id, key, entries.get(key or ""), copy.file,
                    _events(copy, session_id, self._folder), session_id in current, True,
                )  # fmt: skip
        return found

    def _routes(self, copy: SqliteCopy) -> tuple[dict[str, str], dict[str, Fields], set[str]]:
        """The key of each session, the entry of each key, and the sessions that are current."""
        keys: dict[str, str] = {}
        entries: dict[str, Fields] = {}
        current: set[str] = set()
        for table in ("session_windows", "sessions"):
            for row in copy.rows(table):
                if isinstance(row.get("session_key"), str):
                    keys[str(row.get("session_id"))] = row["session_key"]
        for table, column in (
            ("session_entries", "session_id"),
            ("session_nodes", "current_session_id"),
        ):
            for row in copy.rows(table):
                key, entry = row.get("session_key"), parsed(str(row.get("entry_json")))
                if not isinstance(entry, dict):
                    told = f"{table}.entry_json of {key} is no object"
                    self._findings.add(copy.file, None, "bad_json_column", told)
                    entry = {}
                keys[str(row.get(column))] = str(key)
                entries[str(key)] = entry
                current.add(str(row.get(column)))
        return keys, entries, current

    # -- one session

    def _talk(self, known: _Known) -> ForeignSession:
        tree = _Tree(known.entries)
        file = _Transcript(self._folder, self._moments, known, tree)
        source, agent = source_of(known.key, known.id, known.agent, known.entry or {})
        key = talks.key_of(source, agent)
        entry = known.entry or {}
        name = text(entry.get("displayName")) or text(entry.get("subject")) or source.chat_name
        newcomer = ImportedSession(
            name=talks.named("openclaw", known.agent, known.id),
            id=None,
            key=key,
            agent=agent,
            source=source,
            person=talks.person_in(source, key),
            display_name=name,
            created_at=file.created_at(),
        )
        about = f"session {known.id}: " if known.in_database else ""
        return ForeignSession(known.place, newcomer, file.said(), file.settled, about)


class _Tree:
    """Which entries of a transcript are on the way from its newest to its first."""

    def __init__(self, entries: Entries) -> None:
        self.header: Fields = {}
        self.compaction: Fields | None = None  # the newest one that is shown
        self._shown: set[int] | None = None
        last: str | None = None
        is_line = True
        for number, value in _numbered(entries(True)):
            if value.get("type") == "session":
                self.header = self.header or value
                continue
            if number and last is not None and value.get("parentId", last) != last:
                is_line = False
            last = text(value.get("id")) or last
            if value.get("type") == "compaction":
                self.compaction = value
        if not is_line:
            self._shown = _way_back(entries)
            found = (v for n, v in _numbered(entries(True)) if n in self._shown)
            shown = [value for value in found if value.get("type") == "compaction"]
            self.compaction = shown[-1] if shown else None

    def shows(self, number: int) -> bool:
        return self._shown is None or number in self._shown


def _way_back(entries: Entries) -> set[int]:
    parents: dict[str, tuple[int, Any]] = {}
    place: Any = None
    for number, value in _numbered(entries(True)):
        name = text(value.get("id"))
        if name and value.get("type") != "session" and name not in parents:
            parents[name] = (number, value.get("parentId"))
            place = name
    found: set[int] = set()
    while isinstance(place, str) and place in parents:
        number, place = parents[place]
        if number in found:
            break  # a circle
        found.add(number)
    return found


def _numbered(lines: Iterator[Line]) -> Iterator[tuple[int, Fields]]:
    for number, line in enumerate(lines):
        if isinstance(line.value, dict):
            yield number, line.value


class _Transcript:
    """The entries of one session while they are read."""

    def __init__(
        self, folder: SafeFolder, moments: TimestampParser, known: _Known, tree: _Tree
    ) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments
        self._known = known
        self._tree = tree
        self._others: list[Fields] = []
        self._left_out: Counter[str] = Counter()
        self._used: dict[tuple[str | None, str | None], Counter[str]] = defaultdict(Counter)
        self._costs: dict[tuple[str | None, str | None], float] = defaultdict(float)
        self._prompt = 0
        self._title: str | None = None
        self._compacted: int | None = None  # how many messages the newest compaction stands for

    def created_at(self) -> int:
        entry = self._known.entry or {}
        header = self._moments.micros(self._tree.header.get("timestamp"))
        started = self._moments.micros(entry.get("sessionStartedAt"))
        told = header or started or self._moments.micros(entry.get("updatedAt"))
        return told or self._folder.changed_at(self._known.place)

    def said(self) -> Iterator[ForeignMessage]:
        rows = MessageNormaliser(self._known.place, self._findings, self._moments)
        shown = 0
        for number, (line, value) in enumerate(self._known.entries(False)):
            place = None if self._known.in_database else line
            if not isinstance(value, dict):
                rows.message(place, value)
                continue
            is_shown = self._tree.shows(number)
            if is_shown and value.get("id") is not None and value["id"] == self._first_kept:
                self._compacted = shown
            message = self._message(value)
            if message is None:
                continue
            found = rows.message(place, message)
            if found is not None:
                shown += is_shown
                at = rows.at(place, value.get("timestamp"))
                yield ForeignMessage(place, found, at, None, is_shown)
        self._tell_left_out()

    def settled(self, seen: Totals) -> ImportSummary:
        entry = self._known.entry or {}
        created = self.created_at()
        active = self._moments.micros(entry.get("lastInteractionAt"))
        updated = active or seen.last_at or self._moments.micros(entry.get("updatedAt")) or created
        is_current = self._known.is_current and entry.get("archivedAt") is None
        consolidated = self._consolidated(seen)
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=None if is_current else updated,
            end_reason=None if is_current else IMPORTED,
            title=self._title or text(entry.get("label")),
            last_prompt=self._prompt,
            metadata={IMPORTED: self._kept()},
            charges=self._charges(),
            hidden=seen.hidden,
            consolidated=consolidated,
            summary=text((self._tree.compaction or {}).get("summary")) if consolidated else None,
        )

    @property
    def _first_kept(self) -> object:
        return (self._tree.compaction or {}).get("firstKeptEntryId")

    def _message(self, entry: Fields) -> Fields | None:
        """The message of an entry; None for the other kinds, which are kept aside."""
        kind = entry.get("type")
        if kind == "message" and isinstance(entry.get("message"), dict):
            self._count(entry["message"])
            return chat_form(entry["message"])
        if kind == "custom_message":
            more = {n: v for n, v in entry.items() if n in ("customType", "display", "details")}
            return {"role": USER, "content": _content(entry.get("content")), **more}
        if kind == "branch_summary":
            return {"role": SUMMARY, "content": entry.get("summary"), "fromId": entry.get("fromId")}
        if kind == "session_info":
            self._title = text(entry.get("name")) or self._title
        if kind is None and "role" in entry:
            return chat_form(entry)
        self._keep(str(kind), entry)
        return None

    def _keep(self, kind: str, entry: Fields) -> None:
        if len(self._others) < _MOST_ENTRIES:
            self._others.append(entry)
        else:
            self._left_out[kind] += 1

    def _tell_left_out(self) -> None:
        if self._left_out:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self._left_out.items()))
            told = f"entries that are no messages, beyond the first {_MOST_ENTRIES}: {counts}"
            self._findings.add(self._known.place, None, "entries_left_out", told)

    def _count(self, message: Fields) -> None:
        used = message.get("usage")
        if message.get("role") != ASSISTANT or not isinstance(used, dict):
            return
        who = (text(message.get("provider")), text(message.get("model")))
        counts = {ours: talks.count(used.get(theirs)) for ours, theirs in _TOKENS.items()}
        self._used[who].update(counts)
        cost = used.get("cost")
        self._costs[who] += (
            talks.dollars(cost.get("total") if isinstance(cost, dict) else cost) or 0
        )
        self._prompt = counts["input"] + counts["cache_read"] + counts["cache_write"]

    def _charges(self) -> tuple[Charge, ...]:
        found = (
            talks.charge_of(
                {name: counts[name] for name in _TOKENS},
                cost=self._costs[who] or None,
                status="estimated",
                last_prompt=self._prompt,
                provider=who[0],
                model=who[1],
            )
            for who, counts in self._used.items()
        )
        return tuple(charge for charge in found if charge is not None)

    def _consolidated(self, seen: Totals) -> int:
        """How many of the first messages a compaction stands for."""
        if self._tree.compaction is None:
            return 0
        if self._compacted is None:
            told = "what a compaction keeps is not there; nothing is left out"
            self._findings.add(self._known.place, None, "compaction_unclear", told)
            return 0
        return min(self._compacted, max(seen.last_person - 1, 0))

    def _kept(self) -> Fields:
        known = self._known
        kept: Fields = {"from": "openclaw", "session_id": known.id, "file": known.place}
        for name, value in (
            ("key", known.key), ("entry", known.entry), ("header", self._tree.header),
            ("entries", self._others),
        ):  # fmt: skip
            if value:
                kept[name] = value
        return kept


_TOKENS = {
    "input": "input", "output": "output", "cache_read": "cacheRead", "cache_write": "cacheWrite",
}  # fmt: skip


def source_of(key: str | None, session_id: str, agent: str, entry: Fields) -> tuple[Source, str]:
    """Where the messages of a key come from, and whose agent answers them.

    Only keys that name a chat become one. The main session may hold the direct messages of several
    people, so it is nobody's.
    """
    if key is None:
        return talks.unknown_source(PLATFORM, session_id), agent
    rest = key
    if key.startswith("agent:") and key.count(":") >= 2:
        _, agent, rest = key.split(":", 2)
    found = _CHAT.fullmatch(rest)
    if found is None:
        return talks.unknown_source(PLATFORM, rest, chat_name=rest), agent or "main"
    account = found["account"] or ""
    source = Source(
        found["platform"],
        found["peer"],
        account="" if account == "default" else account,
        chat_type=_CHAT_TYPES[found["kind"]],
        thread_id=found["thread"],
        chat_name=text(entry.get("displayName")) or text(entry.get("subject")),
    )
    return source, agent or "main"


def chat_form(message: Fields) -> Fields:
    """A message in the OpenAI chat form; fields that it has no name for keep theirs."""
    role = message.get("role")
    rest = {name: v for name, v in message.items() if name not in ("role", "content")}
    content = message.get("content")
    if role == "toolResult":
        call, tool = rest.pop("toolCallId", None), rest.pop("toolName", None)
        found = {"role": TOOL, "tool_call_id": call, "name": tool, "content": _content(content)}
        return {**found, **rest}
    if role == "bashExecution":
        words = f"$ {message.get('command')}\n{message.get('output') or ''}"
        return {"role": USER, "content": words, **rest}
    if role != ASSISTANT or not isinstance(content, list):
        return {"role": role, "content": _content(content), **rest}
    return {"role": ASSISTANT, **_assistant(content), **rest}


def _assistant(content: list[Any]) -> Fields:
    said, calls, thoughts = [], [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "toolCall":
            calls.append(_call(part))
        elif kind == "thinking":
            thoughts.append(part)
        else:
            said.append(part)
    found: Fields = {"content": _content(said) if said else None}
    if calls:
        found["tool_calls"] = calls
    if thoughts:
        words = [part["thinking"] for part in thoughts if isinstance(part.get("thinking"), str)]
        found["reasoning_content"] = "\n".join(words)
        found["thinking_blocks"] = [
            {**part, "signature": part["thinkingSignature"]}
            if "thinkingSignature" in part
            else part
            for part in thoughts
        ]
    return found


def _call(part: Fields) -> Fields:
    arguments = part.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    more = {n: v for n, v in part.items() if n not in ("type", "id", "name", "arguments")}
    function = {"name": part.get("name"), "arguments": written}
    return {"id": part.get("id"), "type": "function", "function": function, **more}


def _content(content: Any) -> Any:
    """Text where it is text alone, else parts, with pictures in the form of OpenAI's."""
    if not isinstance(content, list):
        return content
    if all(isinstance(part, dict) and set(part) == {"type", "text"} for part in content):
        texts = [part["text"] for part in content]
        if all(isinstance(one, str) for one in texts):
            return "\n".join(texts)
    return [_part(part) for part in content]


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "image" or "data" not in part:
        return part
    url = f"data:{part.get('mimeType') or 'image/png'};base64,{part['data']}"
    return {"type": "image_url", "image_url": {"url": url}}


def _events(copy: SqliteCopy, session_id: str, folder: SafeFolder) -> Entries:
    def entries(quietly: bool) -> Iterator[Line]:
        rows = copy.rows_where("transcript_events", "session_id", session_id, order="seq")
        for number, row in rows:
            value = parsed(str(row.get("event_json")))
            if not is_nothing(value):
                yield Line(number, value)
            elif not quietly:
                told = f"session {session_id}: transcript_events.event_json of row {number}"
                folder.findings.add(copy.file, None, "bad_json_column", f"{told} is not JSON")

    return entries


def _agent_in(root: str) -> str:
    """The agent whose folder was given, from the way to it."""
    parts = root.replace("\\", "/").split("/")
    if "agents" in parts[:-1]:
        return parts[len(parts) - 1 - parts[::-1].index("agents") + 1]
    return "main"
