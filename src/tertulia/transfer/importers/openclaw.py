"""Read the sessions of OpenClaw, from its files and from its later databases.

- `agents/<agent>/sessions/sessions.json` says which session is current for each key;
  `<session id>.jsonl` beside it are the transcripts, `<session id>.jsonl.reset.<time>` those that a
  reset archived.
- From 2026.7.2 on, `agents/<agent>/agent/openclaw-agent.sqlite` holds the same: the entries of the
  index, and in `transcript_events` the lines of the transcripts.

A transcript is a tree: each entry names its parent. The path from the newest entry back to the
first is visible; the other branches are imported as hidden messages.
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
from tertulia.records.imports import IMPORTED, ImportedSession, ImportSummary
from tertulia.records.usage import Charge
from tertulia.transfer.importers import model
from tertulia.transfer.importers.model import ForeignMessage, ForeignSession, Totals, text
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.reader import Reader
from tertulia.transfer.importers.safe_files import Line, SafeFolder, is_invalid, parse_json
from tertulia.transfer.importers.sessions_json import read_index
from tertulia.transfer.importers.sqlite_copy import SqliteCopy, copy_database
from tertulia.transfer.importers.timestamps import TimestampParser

INDEX = "sessions.json"
DATABASE = "openclaw-agent.sqlite"
SUFFIX = ".jsonl"
PLATFORM = "openclaw"

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_ARCHIVED = re.compile(r"(.+)\.jsonl\.(reset|deleted|bak)\b.*")
_CHAT = re.compile(
    r"(?P<platform>[^:]+):(?:(?P<account>[^:]+):)?(?P<kind>direct|dm|group|channel|room):"
    r"(?P<peer>.+?)(?::(?:thread|topic):(?P<thread>[^:]+))?"
)
_TIME_FIELDS = ("sessionStartedAt", "updatedAt", "lastInteractionAt")
_CHAT_TYPES = {"direct": "dm", "dm": "dm", "group": "group", "channel": "channel", "room": "group"}
_TOKENS = {
    "input": "input", "output": "output", "cache_read": "cacheRead", "cache_write": "cacheWrite",
}  # fmt: skip
# Entries that are not messages are kept in the session's metadata, at most this many.
_MOST_ENTRIES = 200

Fields = dict[str, Any]
# Yields the lines of a transcript. Each call reads from the start, and reports damage only if its
# argument `quietly` is False.
Entries = Callable[[bool], Iterator[Line]]


class _AgentSession(NamedTuple):
    """One session of an agent, without its messages."""

    agent: str
    id: str
    key: str | None
    entry: Fields | None
    file: str
    entries: Entries
    is_current: bool
    in_database: bool = False


class OpenClaw(Reader):
    """Reads the sessions of all agents below a folder of OpenClaw, or of one agent."""

    def sessions(self) -> Iterator[ForeignSession]:
        """Yield every session of every agent.

        Skip an agent whose index cannot be opened now: without it no session would get its key.
        """
        agents = [agent for agent in self._agents() if not self._is_index_unreadable(agent[1])]
        with ExitStack() as stack:
            copies = {}
            for agent, under in agents:
                files = [*self._databases(under)]
                opened = [stack.enter_context(copy_database(self._folder, file)) for file in files]
                copies[agent] = [copy for copy in opened if copy is not None]
            sessions = [
                session
                for agent, under in agents
                for session in self._sessions_of(agent, under, copies[agent])
            ]
            total = sum(self._folder.size(session.file) for session in sessions)
            self._folder.progress.total = total
            for session in sessions:
                if session.in_database or not self._folder.is_unreadable(session.file):
                    yield self._foreign_session(session)

    def _agents(self) -> list[tuple[str, str]]:
        """Return each agent with its folder; the imported folder may be that of one agent."""
        agents = [(name.rsplit("/", 1)[-1], name) for name in self._folder.folders("agents")]
        return agents or [(_agent_in(self._folder.root), "")]

    def _databases(self, under: str) -> Iterator[str]:
        for name in (f"agent/{DATABASE}", DATABASE):
            file = f"{under}/{name}" if under else name
            if self._folder.exists(file):
                yield file

    # -- the list of sessions

    def _sessions_of(self, agent: str, under: str, copies: list[SqliteCopy]) -> list[_AgentSession]:
        folder = self._sessions_folder(under)
        index = self._index(folder)
        by_id = self._in_files(agent, folder, index)
        for copy in copies:
            if copy.columns("transcript_events"):
                by_id.update(self._in_database(agent, copy))
        return [by_id[session_id] for session_id in sorted(by_id)]

    def _sessions_folder(self, under: str) -> str:
        folder = f"{under}/sessions" if under else "sessions"
        return folder if self._folder.is_folder(folder) else under

    def _is_index_unreadable(self, under: str) -> bool:
        return self._folder.is_unreadable(_index_file(self._sessions_folder(under)))

    def _index(self, folder: str) -> dict[str, Fields]:
        file = _index_file(folder)
        index = {}
        for key, entry in read_index(self._folder, file):
            session_id = entry.get("sessionId") if isinstance(entry, dict) else None
            if not isinstance(session_id, str):
                detail = f"the entry of {key} names no session"
                self._findings.add(file, None, "index_entry_invalid", detail)
            elif not _SAFE_ID.fullmatch(session_id):
                detail = f"the entry of {key} names the session {session_id[:60]!r}"
                self._findings.add(file, None, "unsafe_session_id", detail)
            else:
                index[key] = entry
        return index

    def _in_files(
        self, agent: str, folder: str, index: Mapping[str, Fields]
    ) -> dict[str, _AgentSession]:
        by_id: dict[str, _AgentSession] = {}
        files = {name.rsplit("/", 1)[-1]: name for name in self._folder.files(folder, "")}
        for key, entry in index.items():
            session_id = entry["sessionId"]
            file = files.pop(self._file_name(folder, key, entry, files), None)
            if session_id in by_id:
                detail = f"the session {session_id} belongs to {by_id[session_id].key} and {key}"
                self._findings.add(_index_file(folder), None, "duplicate_session_id", detail)
            elif file is not None:
                by_id[session_id] = self._from_file(agent, session_id, file, key, entry)
            else:
                detail = f"the transcript of {key} is missing"
                missing = f"{folder}/{session_id}{SUFFIX}"
                self._findings.add(missing, None, "transcript_missing", detail)
        for name, file in files.items():
            if session := self._unindexed(agent, name, file):
                # An archived transcript keeps its old id, unless that is in use.
                unused_id = session.id if session.id not in by_id else name.replace(SUFFIX, "", 1)
                by_id[unused_id] = session._replace(id=unused_id)
        return by_id

    def _file_name(self, folder: str, key: str, entry: Fields, files: Mapping[str, str]) -> str:
        """Return the transcript file that an entry names, but never one outside the folder."""
        default = f"{entry['sessionId']}{SUFFIX}"
        named = entry.get("sessionFile")
        if not isinstance(named, str) or not named:
            topic = f"{entry['sessionId']}-topic-"
            return next((name for name in files if name.startswith(topic)), default)
        last = named.replace("\\", "/").rsplit("/", 1)[-1]
        if last in files:
            return last
        if default not in files:
            detail = f"the transcript of {key} is {named!r}, which is not in the folder"
            self._findings.add(_index_file(folder), None, "unsafe_session_file", detail)
        return default

    def _unindexed(self, agent: str, name: str, file: str) -> _AgentSession | None:
        """Return a session that the index does not name: orphaned, or archived by a reset."""
        if name.endswith(SUFFIX):
            stem = name.removesuffix(SUFFIX)
            if stem.endswith(".trajectory") or ".checkpoint." in name:
                return None
            return self._from_file(agent, stem, file, None, None)
        archived = _ARCHIVED.fullmatch(name)
        if archived is None or archived[2] == "bak":
            return None
        if archived[2] == "deleted":
            detail = "a transcript that was deleted in OpenClaw; it is not imported"
            self._findings.add(file, None, "deleted_left_out", detail)
            return None
        if name.endswith((".zst", ".gz")):
            detail = "a compressed transcript; unpack it and run the import again"
            self._findings.add(file, None, "compressed", detail)
            return None
        return self._from_file(agent, archived[1], file, None, None)

    def _from_file(
        self, agent: str, session_id: str, file: str, key: str | None, entry: Fields | None
    ) -> _AgentSession:
        def entries(quietly: bool) -> Iterator[Line]:
            return self._folder.lines(file, quietly=quietly)

        return _AgentSession(agent, session_id, key, entry, file, entries, key is not None)

    def _in_database(self, agent: str, copy: SqliteCopy) -> dict[str, _AgentSession]:
        by_id = {}
        keys, entries, current = self._routes(copy)
        for session_id in copy.values("transcript_events", "session_id"):
            if isinstance(session_id, str):
                key = keys.get(session_id)
                by_id[session_id] = _AgentSession(
                    agent, session_id, key, entries.get(key or ""), copy.file,
                    _database_entries(copy, session_id, self._folder), session_id in current, True,
                )  # fmt: skip
        return by_id

    def _routes(self, copy: SqliteCopy) -> tuple[dict[str, str], dict[str, Fields], set[str]]:
        """Return the key of each session, the entry of each key, and the current sessions."""
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
                key, entry = row.get("session_key"), parse_json(str(row.get("entry_json")))
                if not isinstance(entry, dict):
                    detail = f"{table}.entry_json of {key} is not a JSON object"
                    self._findings.add(copy.file, None, "bad_json_column", detail)
                    entry = {}
                keys[str(row.get(column))] = str(key)
                entries[str(key)] = entry
                current.add(str(row.get(column)))
        return keys, entries, current

    # -- one session

    def _foreign_session(self, stored: _AgentSession) -> ForeignSession:
        tree = _EntryTree(stored.entries)
        transcript = _OpenClawTranscript(self._folder, self._timestamps, stored, tree)
        source, agent = source_of(stored.key, stored.id, stored.agent, stored.entry or {})
        key = model.key_of(source, agent)
        entry = stored.entry or {}
        name = text(entry.get("displayName")) or text(entry.get("subject")) or source.chat_name
        session = ImportedSession(
            name=model.import_name("openclaw", stored.agent, stored.id),
            id=None,
            key=key,
            agent=agent,
            source=source,
            person=model.person_in(source, key),
            display_name=name,
            created_at=transcript.created_at(),
        )
        prefix = f"session {stored.id}: " if stored.in_database else ""
        return ForeignSession(
            stored.file, session, transcript.messages(), transcript.summarise, prefix
        )


class _EntryTree:
    """The tree of a transcript: which entries are on the path from the newest to the first."""

    def __init__(self, entries: Entries) -> None:
        self.header: Fields = {}
        self.compaction: Fields | None = None  # the newest visible one
        self._visible: set[int] | None = None  # None if all are
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
            self._visible = _path_to_newest(entries)
            visible = (v for n, v in _numbered(entries(True)) if n in self._visible)
            compactions = [value for value in visible if value.get("type") == "compaction"]
            self.compaction = compactions[-1] if compactions else None

    def is_visible(self, number: int) -> bool:
        """Return whether the entry of that number is on the path to the newest entry."""
        return self._visible is None or number in self._visible


def _path_to_newest(entries: Entries) -> set[int]:
    parents: dict[str, tuple[int, Any]] = {}
    current: Any = None
    for number, value in _numbered(entries(True)):
        name = text(value.get("id"))
        if name and value.get("type") != "session" and name not in parents:
            parents[name] = (number, value.get("parentId"))
            current = name
    path: set[int] = set()
    while isinstance(current, str) and current in parents:
        number, current = parents[current]
        if number in path:
            break  # a cycle
        path.add(number)
    return path


def _numbered(lines: Iterator[Line]) -> Iterator[tuple[int, Fields]]:
    for number, line in enumerate(lines):
        if isinstance(line.value, dict):
            yield number, line.value


class _OpenClawTranscript(Reader):
    """Reads the messages of one session from its entries."""

    def __init__(
        self,
        folder: SafeFolder,
        timestamps: TimestampParser,
        stored: _AgentSession,
        tree: _EntryTree,
    ) -> None:
        super().__init__(folder, timestamps)
        self._stored = stored
        self._tree = tree
        self._other_entries: list[Fields] = []
        self._left_out: Counter[str] = Counter()
        self._tokens: dict[tuple[str | None, str | None], Counter[str]] = defaultdict(Counter)
        self._costs: dict[tuple[str | None, str | None], float] = defaultdict(float)
        self._prompt = 0
        self._title: str | None = None
        self._compacted: int | None = None  # how many messages the newest compaction replaces

    def created_at(self) -> int:
        """Return when the session began: as recorded, else the time of its file."""
        entry = self._stored.entry or {}
        header = self._timestamps.micros(self._tree.header.get("timestamp"))
        started = self._timestamps.micros(entry.get("sessionStartedAt"))
        created = header or started or self._timestamps.micros(entry.get("updatedAt"))
        return created or self._folder.changed_at(self._stored.file)

    def messages(self) -> Iterator[ForeignMessage]:
        """Yield the messages; other entries are kept for the metadata."""
        normaliser = MessageNormaliser(self._stored.file, self._findings, self._timestamps)
        visible = 0
        for number, (line, value) in enumerate(self._stored.entries(False)):
            position = None if self._stored.in_database else line
            if not isinstance(value, dict):
                normaliser.message(position, value)
                continue
            is_visible = self._tree.is_visible(number)
            if is_visible and value.get("id") is not None and value["id"] == self._first_kept:
                self._compacted = visible
            body = self._message(value)
            if body is None:
                continue
            message = normaliser.message(position, body)
            if message is not None:
                visible += is_visible
                at = normaliser.at(position, value.get("timestamp"))
                yield ForeignMessage(position, message, at, None, is_visible)
        self._report_left_out()

    def summarise(self, totals: Totals) -> ImportSummary:
        """Return what is known of the whole session after its messages were read."""
        entry = self._stored.entry or {}
        self._report_times(
            self._stored.file, None, {name: entry.get(name) for name in _TIME_FIELDS}
        )
        created = self.created_at()
        active = self._timestamps.micros(entry.get("lastInteractionAt"))
        updated = (
            active or totals.last_at or self._timestamps.micros(entry.get("updatedAt")) or created
        )
        is_current = self._stored.is_current and entry.get("archivedAt") is None
        consolidated = self._consolidated(totals)
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=None if is_current else updated,
            end_reason=None if is_current else IMPORTED,
            title=self._title or text(entry.get("label")),
            last_prompt=self._prompt,
            metadata={IMPORTED: self._metadata()},
            charges=self._charges(),
            hidden=totals.hidden,
            consolidated=consolidated,
            summary=text((self._tree.compaction or {}).get("summary")) if consolidated else None,
        )

    @property
    def _first_kept(self) -> object:
        return (self._tree.compaction or {}).get("firstKeptEntryId")

    def _message(self, entry: Fields) -> Fields | None:
        """Return the message of an entry, or None for other entries, which are kept as metadata."""
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
        self._keep_entry(str(kind), entry)
        return None

    def _keep_entry(self, kind: str, entry: Fields) -> None:
        if len(self._other_entries) < _MOST_ENTRIES:
            self._other_entries.append(entry)
        else:
            self._left_out[kind] += 1

    def _report_left_out(self) -> None:
        if self._left_out:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self._left_out.items()))
            detail = f"entries that are not messages, beyond the first {_MOST_ENTRIES}: {counts}"
            self._findings.add(self._stored.file, None, "entries_left_out", detail)

    def _count(self, message: Fields) -> None:
        usage = message.get("usage")
        if message.get("role") != ASSISTANT or not isinstance(usage, dict):
            return
        model_id = (text(message.get("provider")), text(message.get("model")))
        counts = {ours: model.count(usage.get(theirs)) for ours, theirs in _TOKENS.items()}
        self._tokens[model_id].update(counts)
        cost = usage.get("cost")
        self._costs[model_id] += (
            model.dollars(cost.get("total") if isinstance(cost, dict) else cost) or 0
        )
        self._prompt = counts["input"] + counts["cache_read"] + counts["cache_write"]

    def _charges(self) -> tuple[Charge, ...]:
        charges = (
            model.charge_of(
                {name: counts[name] for name in _TOKENS},
                cost=self._costs[model_id] or None,
                status="estimated",
                last_prompt=self._prompt,
                provider=model_id[0],
                model=model_id[1],
            )
            for model_id, counts in self._tokens.items()
        )
        return tuple(charge for charge in charges if charge is not None)

    def _consolidated(self, totals: Totals) -> int:
        """Return how many of the first messages a compaction replaces."""
        if self._tree.compaction is None:
            return 0
        if self._compacted is None:
            detail = "the first entry that a compaction keeps is missing; no message is hidden"
            self._findings.add(self._stored.file, None, "compaction_unclear", detail)
            return 0
        return min(self._compacted, max(totals.last_user - 1, 0))

    def _metadata(self) -> Fields:
        stored = self._stored
        metadata: Fields = {"from": "openclaw", "session_id": stored.id, "file": stored.file}
        for name, value in (
            ("key", stored.key), ("entry", stored.entry), ("header", self._tree.header),
            ("entries", self._other_entries),
        ):  # fmt: skip
            if value:
                metadata[name] = value
        return metadata


def source_of(key: str | None, session_id: str, agent: str, entry: Fields) -> tuple[Source, str]:
    """Return the source of a key's messages, and the agent that answers them.

    Only a key that names a chat gets that chat as its source. The main session may hold direct
    messages of several people, so it belongs to nobody.
    """
    if key is None:
        return model.unknown_source(PLATFORM, session_id), agent
    rest = key
    if key.startswith("agent:") and key.count(":") >= 2:
        _, agent, rest = key.split(":", 2)
    match = _CHAT.fullmatch(rest)
    if match is None:
        return model.unknown_source(PLATFORM, rest, chat_name=rest), agent or "main"
    account = match["account"] or ""
    source = Source(
        match["platform"],
        match["peer"],
        account="" if account == "default" else account,
        chat_type=_CHAT_TYPES[match["kind"]],
        thread_id=match["thread"],
        chat_name=text(entry.get("displayName")) or text(entry.get("subject")),
    )
    return source, agent or "main"


def chat_form(message: Fields) -> Fields:
    """Return a message in the OpenAI chat form; fields without a counterpart keep their name."""
    role = message.get("role")
    rest = {name: v for name, v in message.items() if name not in ("role", "content")}
    content = message.get("content")
    if role == "toolResult":
        call, tool = rest.pop("toolCallId", None), rest.pop("toolName", None)
        result = {"role": TOOL, "tool_call_id": call, "name": tool, "content": _content(content)}
        return {**result, **rest}
    if role == "bashExecution":
        transcript = f"$ {message.get('command')}\n{message.get('output') or ''}"
        return {"role": USER, "content": transcript, **rest}
    if role != ASSISTANT or not isinstance(content, list):
        return {"role": role, "content": _content(content), **rest}
    return {"role": ASSISTANT, **_assistant(content), **rest}


def _assistant(content: list[Any]) -> Fields:
    parts, calls, thoughts = [], [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "toolCall":
            calls.append(_call(part))
        elif kind == "thinking":
            thoughts.append(part)
        else:
            parts.append(part)
    message: Fields = {"content": _content(parts) if parts else None}
    if calls:
        message["tool_calls"] = calls
    if thoughts:
        texts = [part["thinking"] for part in thoughts if isinstance(part.get("thinking"), str)]
        message["reasoning_content"] = "\n".join(texts)
        message["thinking_blocks"] = [
            {**part, "signature": part["thinkingSignature"]}
            if "thinkingSignature" in part
            else part
            for part in thoughts
        ]
    return message


def _call(part: Fields) -> Fields:
    arguments = part.get("arguments")
    encoded = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    more = {n: v for n, v in part.items() if n not in ("type", "id", "name", "arguments")}
    function = {"name": part.get("name"), "arguments": encoded}
    return {"id": part.get("id"), "type": "function", "function": function, **more}


def _content(content: Any) -> Any:
    """Return text if all parts are text, else the parts, with images in OpenAI's form."""
    if not isinstance(content, list):
        return content
    if all(isinstance(part, dict) and set(part) == {"type", "text"} for part in content):
        texts = [part["text"] for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    return [_part(part) for part in content]


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "image" or "data" not in part:
        return part
    url = f"data:{part.get('mimeType') or 'image/png'};base64,{part['data']}"
    return {"type": "image_url", "image_url": {"url": url}}


def _database_entries(copy: SqliteCopy, session_id: str, folder: SafeFolder) -> Entries:
    def entries(quietly: bool) -> Iterator[Line]:
        rows = copy.rows_where("transcript_events", "session_id", session_id, order="seq")
        for number, row in rows:
            value = parse_json(str(row.get("event_json")))
            if not is_invalid(value):
                yield Line(number, value)
            elif not quietly:
                detail = f"session {session_id}: transcript_events.event_json of row {number}"
                folder.findings.add(copy.file, None, "bad_json_column", f"{detail} is not JSON")

    return entries


def _index_file(folder: str) -> str:
    return f"{folder}/{INDEX}" if folder else INDEX


def _agent_in(root: str) -> str:
    """Return the agent whose folder is imported, from its path."""
    parts = root.replace("\\", "/").split("/")
    if "agents" in parts[:-1]:
        return parts[len(parts) - 1 - parts[::-1].index("agents") + 1]
    return "main"
