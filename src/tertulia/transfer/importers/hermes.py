"""Read the sessions of Hermes Agent, in every layout it has had.

- `sessions/sessions.json` says which session is current for each key; `sessions/<id>.jsonl` are the
  transcripts. A reset leaves a transcript that the index no longer names.
- `state.db` holds sessions and messages, at first beside the files and later alone; then the table
  `gateway_routing` is the index. If both have a session, the longer copy is imported.

`hermes_keys` says which key a session gets here. A session whose key is lost gets a key of its own
that belongs to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tertulia.core.settings import Settings
from tertulia.core.source import CHAT_TYPES, Source
from tertulia.records.imports import IMPORTED, ImportedSession, ImportSummary
from tertulia.records.usage import Charge
from tertulia.transfer.importers import hermes_keys, model
from tertulia.transfer.importers.hermes_keys import ImportedKey
from tertulia.transfer.importers.model import ForeignMessage, ForeignSession, Totals, text
from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.reader import Reader
from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.safe_files import SafeFolder, is_invalid, parse_json
from tertulia.transfer.importers.sessions_json import json_of, read_index
from tertulia.transfer.importers.sqlite_copy import SqliteCopy, copy_database
from tertulia.transfer.importers.timestamps import TimestampParser, time_in_session_id

DATABASE = "state.db"
INDEX = "sessions.json"
SUFFIX = ".jsonl"
META = "session_meta"
KNOWN_SCHEMA = 22  # of state.db, in Hermes 0.19

PLATFORMS = frozenset(
    (
        "local", "cli", "tui", "cron", "telegram", "discord", "whatsapp", "slack", "signal",
        "matrix", "mattermost", "email", "sms", "homeassistant", "api", "api_server", "webhook",
        "web", "dingtalk", "feishu", "wecom", "weixin", "qqbot", "bluebubbles", "acp", "gateway",
        "batch", "desktop",
    )
)  # fmt: skip

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_LONGEST_ID = 128
_VERSION_TABLE = "schema_version"
_PARTS_MARK = "\x00json:"  # the mark Hermes puts before content that is a list of parts
_JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_ENTRY_TIME_FIELDS = ("created_at", "updated_at")
_POSITION_COLUMNS = ("id", "session_id", "active", "compacted")
_TOKEN_COLUMNS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}

Fields = dict[str, Any]


class _HermesSession(NamedTuple):
    """All data of one session except its messages."""

    id: str
    key: str | None
    entry: Fields | None
    row: Fields | None
    file: str | None  # its transcript
    in_database: bool  # whether its messages are read from the database
    index_file: str
    parent: str | None = None
    parent_kind: str | None = None
    models: tuple[Fields, ...] = ()

    @property
    def origin_file(self) -> str:
        """The file its messages are read from, for problems."""
        return DATABASE if self.in_database or self.file is None else self.file


class Hermes(Reader):
    """Reads the sessions in a home folder of Hermes, or in its `sessions` folder."""

    def __init__(self, folder: SafeFolder, timestamps: TimestampParser, settings: Settings) -> None:
        super().__init__(folder, timestamps)
        self._settings = settings
        self._under = "sessions/" if folder.is_folder("sessions") else ""
        if not self._under and folder.exists("sessions"):
            folder.refuses("sessions")
        self._index_file = f"{self._under}{INDEX}"
        self._is_database_unread = False

    def sessions(self) -> Iterator[ForeignSession]:
        """Yield every session, from the files and from the database.

        Yield nothing if the index cannot be opened now: without it no session would get its key.
        """
        if self._folder.is_unreadable(self._index_file):
            return
        files = self._files()
        size = self._folder.size(DATABASE)
        self._folder.progress.total = size + sum(map(self._folder.size, files.values()))
        with copy_database(self._folder, DATABASE) as copy:
            self._is_database_unread = copy is None and self._folder.is_file(DATABASE)
            stored_sessions = self._stored_sessions(files, copy)
            origins = {stored.id: self._origin_of(stored) for stored in stored_sessions}
            imported = self._imported_keys(stored_sessions, origins)
            for stored in stored_sessions:
                if stored.in_database:
                    self._folder.progress.done += size // len(stored_sessions)
                key = imported.get(stored.key or "")
                yield self._foreign_session(stored, origins[stored.id], key, copy)

    def _files(self) -> dict[str, str]:
        files = self._folder.files(self._under.rstrip("/"), SUFFIX)
        files = [file for file in files if not self._folder.is_unreadable(file)]
        return {file.rsplit("/", 1)[-1].removesuffix(SUFFIX): file for file in files}

    # -- the list of sessions

    def _stored_sessions(
        self, files: Mapping[str, str], copy: SqliteCopy | None
    ) -> list[_HermesSession]:
        rows = {} if copy is None else _sessions_by_id(copy)
        with_messages = set() if copy is None else _ids_with_messages(copy)
        routes, keys_of = self._read_routing(files, copy, {*rows, *with_messages})
        models = {} if copy is None else _model_usage_by_session(copy)
        ids = sorted({*rows, *with_messages, *files, *keys_of})
        parents = _parents(rows, set(ids), self._findings)
        self._report_database(copy, rows, with_messages)
        stored_sessions = []
        for session_id in ids:
            row = rows.get(session_id)
            key = keys_of.get(session_id) or (text(row.get("session_key")) if row else None)
            entry = routes.get(key) if key else None
            if entry is not None and entry.get("session_id") != session_id:
                entry = None
            file = files.get(session_id)
            stored = _HermesSession(
                session_id, key, entry, row, file,
                self._is_longer_in_database(session_id, file, copy, with_messages),
                self._index_file,
                models=tuple(models.get(session_id, ())),
            )  # fmt: skip
            if session_id in parents:
                parent, kind = parents[session_id]
                stored = stored._replace(parent=parent, parent_kind=kind)
            if file is None or not self._folder.refuses(file):
                stored_sessions.append(stored)
        return stored_sessions

    def _is_longer_in_database(
        self, session_id: str, file: str | None, copy: SqliteCopy | None, with_messages: set[str]
    ) -> bool:
        """Return whether the database has no fewer messages of a session than its transcript."""
        if copy is None or session_id not in with_messages:
            return file is None and copy is not None
        if file is None or not self._folder.is_file(file):
            return True
        lines = self._folder.lines(file, quietly=True)
        in_file = sum(1 for line in lines if _role_of(line.value) != META)
        rows = copy.rows_where("messages", "session_id", session_id)
        in_database = sum(1 for _, row in rows if row.get("role") != META)
        return in_database >= in_file

    def _report_database(
        self, copy: SqliteCopy | None, rows: Mapping[str, Fields], with_messages: set[str]
    ) -> None:
        """Report a database that is newer than this reader, and messages without a session."""
        versions = [] if copy is None else [row.get("version") for row in copy.rows(_VERSION_TABLE)]
        newest = max((version for version in versions if type(version) is int), default=0)
        if newest > KNOWN_SCHEMA:
            detail = (
                f"schema {newest} is newer than {KNOWN_SCHEMA}, the newest that was tested; "
                "columns that this version does not know are only in the metadata"
            )
            self._findings.add(DATABASE, None, "newer_schema", detail)
        for session_id in sorted(with_messages - rows.keys()):
            detail = f"the table sessions has no row for the messages of session {session_id}"
            self._findings.add(DATABASE, None, "session_row_missing", detail)

    # -- which session is current

    def _read_routing(
        self, files: Mapping[str, str], copy: SqliteCopy | None, in_database: set[str]
    ) -> tuple[dict[str, Fields], dict[str, str]]:
        """Return the index entry of each key, and the key of each session that has one."""
        routes: dict[str, Fields] = {}
        keys_of: dict[str, str] = {}
        for key, entry in self._entries(copy):
            session_id = self._session_id_of(key, entry, files, in_database)
            if session_id is None:
                continue
            if session_id in keys_of:
                detail = f"the session {session_id} belongs to both {keys_of[session_id]} and {key}"
                self._findings.add(self._index_file, None, "duplicate_session_id", detail)
                if _fits(keys_of[session_id], routes) or not _fits(key, {key: entry}):
                    continue
                del routes[keys_of[session_id]]
            routes[key] = entry
            keys_of[session_id] = key
        return routes, keys_of

    def _entries(self, copy: SqliteCopy | None) -> list[tuple[str, Any]]:
        """Return the entries of the index file, then those that only the database has."""
        entries = [
            (key, entry)
            for key, entry in read_index(self._folder, self._index_file)
            if not key.startswith("_")  # notes, such as _README
        ]
        file_keys = {key for key, _ in entries}
        if copy is not None:
            routes = self._routes(copy)
            entries += [(key, entry) for key, entry in routes if key not in file_keys]
        return entries

    def _routes(self, copy: SqliteCopy) -> list[tuple[str, Any]]:
        """Return the newest scope of `gateway_routing`; a moved home folder leaves its old rows."""
        rows = list(copy.rows("gateway_routing"))
        times = [row for row in rows if isinstance(row.get("updated_at"), int | float)]
        newest = max(times, key=lambda row: row["updated_at"], default=None)
        routes = []
        for row in rows:
            key, entry = row.get("session_key"), parse_json(str(row.get("entry_json")))
            if not isinstance(entry, dict):
                detail = f"gateway_routing.entry_json of {key} is not a JSON object"
                self._findings.add(DATABASE, None, "bad_json_column", detail)
            elif isinstance(key, str) and newest and row.get("scope") == newest.get("scope"):
                routes.append((key, entry))
        return routes

    def _session_id_of(
        self, key: str, entry: Any, files: Mapping[str, str], in_database: set[str]
    ) -> str | None:
        """Return the session id of an index entry; None (and a reported problem) if unusable."""
        file = self._index_file
        session_id = entry.get("session_id") if isinstance(entry, dict) else None
        if not isinstance(session_id, str) or not _has_details(entry):
            self._findings.add(
                file, None, "index_entry_invalid", f"the entry of {key} does not describe a session"
            )
            return None
        if not _is_safe(session_id):
            detail = f"the entry of {key} names {session_id[:60]!r}, which is not a safe file name"
            self._findings.add(file, None, "unsafe_session_id", detail)
            return None
        transcript = f"{self._under}{session_id}{SUFFIX}"
        has_any = session_id in files or session_id in in_database
        is_named = entry.get("session_key", key) == key
        if not is_named:
            detail = f"the entry of {key} names itself {entry.get('session_key')!r}"
            self._findings.add(file, None, "index_key_mismatch", detail)
        if not has_any and (self._folder.exists(transcript) or self._is_database_unread):
            return None  # a link, or a file that cannot be read now: already reported
        if not has_any and (not is_named or _was_used(entry)):
            missing = transcript if is_named else file
            if is_named and self._folder.is_file(DATABASE):
                missing = DATABASE
            detail = f"the transcript of {key} is missing"
            self._findings.add(missing, None, "transcript_missing", detail)
        return session_id if has_any or is_named else None

    # -- one session

    def _imported_keys(
        self, stored_sessions: list[_HermesSession], origins: Mapping[str, Source | None]
    ) -> dict[str, ImportedKey]:
        """Return the key here for each key of the index and of the database."""
        sources: dict[str, Source] = {}
        for stored in stored_sessions:
            source = origins[stored.id]
            if stored.key and source and (stored.entry is not None or stored.key not in sources):
                sources[stored.key] = source
        for stored in stored_sessions:
            if stored.key and stored.key not in sources:
                sources[stored.key] = self._guess_source(stored, None)
        current = [stored.key for stored in stored_sessions if stored.key and stored.entry]
        return hermes_keys.imported_keys(sources, current, self._settings)

    def _foreign_session(
        self,
        stored: _HermesSession,
        origin: Source | None,
        imported: ImportedKey | None,
        copy: SqliteCopy | None,
    ) -> ForeignSession:
        transcript = _HermesTranscript(self._folder, self._timestamps, stored, copy)
        source = self._guess_source(stored, transcript) if origin is None else origin
        self._report_odd_source(stored, source, imported)
        agent = hermes_keys.agent_of(stored.key)
        records = [stored.entry or {}, stored.row or {}]
        display = next(
            (record["display_name"] for record in records if text(record.get("display_name"))), None
        )
        session = ImportedSession(
            name=model.import_name("hermes", stored.id),
            id=stored.id if _is_safe(stored.id) else None,
            key=imported.key if imported else model.key_of(source, agent),
            agent=agent,
            source=source,
            person=imported.person if imported else None,
            display_name=text(display) or source.chat_name or source.user_name,
            created_at=transcript.created_at(None),
            derived_key=imported.derived_key if imported else None,
        )
        prefix = f"session {stored.id}: " if stored.in_database else ""
        return ForeignSession(
            stored.origin_file, session, transcript.messages(), transcript.summarise, prefix
        )

    def _report_odd_source(
        self, stored: _HermesSession, source: Source, imported: ImportedKey | None
    ) -> None:
        if source.platform not in PLATFORMS and source.platform != model.UNKNOWN:
            detail = (
                f"session {stored.id} has the unknown platform {source.platform!r}; kept as it is"
            )
            self._findings.add(stored.origin_file, None, "unknown_platform", detail)
        if imported and imported.is_own and stored.entry is not None:
            detail = (
                f"the key {stored.key} of session {stored.id} does not fit its origin, or another "
                "session has that origin; the session got a key of its own"
            )
            self._findings.add(self._index_file, None, "key_without_origin", detail)

    def _guess_source(self, stored: _HermesSession, transcript: _HermesTranscript | None) -> Source:
        """Return a source for a session whose origin is not recorded, from its key if possible."""
        entry, row = stored.entry or {}, stored.row or {}
        platform = text(entry.get("platform")) or text(row.get("source"))
        if stored.key is None:
            platform = platform or (transcript.platform() if transcript else None) or model.UNKNOWN
            user = row.get("user_id")
            return model.unknown_source(platform, stored.id, user_id=text(user))
        return _source_from_key(stored.key, platform)

    def _origin_of(self, stored: _HermesSession) -> Source | None:
        """Return the recorded origin of a session that has a key, or None."""
        if stored.key is None:
            return None
        entry, row = stored.entry or {}, stored.row or {}
        platform = text(entry.get("platform")) or text(row.get("source"))
        parts = stored.key.split(":")
        platform = platform or (parts[2] if len(parts) > 2 else model.UNKNOWN)
        source = model.source_of(entry.get("origin"), platform)
        origin = self._parse_origin(stored.id, row.get("origin_json"))
        source = source or model.source_of(origin, platform)
        if source is None and row.get("chat_id") is not None:
            columns = {**row, "chat_name": row.get("display_name"), "platform": platform}
            source = model.source_of(columns, platform)
        return source

    def _parse_origin(self, session_id: str, column: object) -> object:
        """Return the JSON value of `sessions.origin_json`; report one that is not an object."""
        origin = json_of(column)
        if column is not None and not isinstance(origin, dict):
            detail = f"session {session_id}: sessions.origin_json is not a JSON object"
            self._findings.add(DATABASE, None, "bad_json_column", detail)
        return origin


class _HermesTranscript(Reader):
    """The messages of one session, from its file or from the database."""

    def __init__(
        self,
        folder: SafeFolder,
        timestamps: TimestampParser,
        stored: _HermesSession,
        copy: SqliteCopy | None,
    ) -> None:
        super().__init__(folder, timestamps)
        self._stored = stored
        self._copy = copy
        self._metas: list[Fields] = []

    def messages(self) -> Iterator[ForeignMessage]:
        """Yield the messages from the longer of the two copies."""
        if self._stored.in_database:
            return self._from_database()
        return iter(()) if self._stored.file is None else self._from_file(self._stored.file)

    def platform(self) -> str | None:
        """Return the platform that a `session_meta` row names; used if nothing else says it."""
        file = self._stored.file
        if file is not None and self._folder.is_file(file):
            for number, line in enumerate(self._folder.lines(file, quietly=True)):
                if isinstance(line.value, dict) and line.value.get("role") == META:
                    return text(line.value.get("platform"))
                if number > 200:
                    break
        return None

    def created_at(self, first_at: int | None) -> int:
        """Return when the session began: recorded, or by its id, its first message, its file."""
        row, entry = self._stored.row or {}, self._stored.entry or {}
        created = self._timestamps.micros(row.get("started_at")) or self._timestamps.micros(
            entry.get("created_at")
        )
        id_time = time_in_session_id(self._stored.id, self._timestamps.zone)
        # The time in an id is that of the writer's clock, whose time zone is not recorded; the
        # times in the database are in UTC. In files, both have the same zone.
        guesses = (first_at, id_time) if self._stored.in_database else (id_time, first_at)
        return created or next(filter(None, guesses), None) or self._changed_at()

    def _changed_at(self) -> int:
        return self._folder.changed_at(self._stored.origin_file)

    def summarise(self, totals: Totals) -> ImportSummary:
        """Return what is known of the whole session after its messages were read."""
        stored = self._stored
        created = self.created_at(totals.first_at)
        updated = self._updated_at(totals) or created
        ended_at, reason = self._ended_at_and_reason(updated)
        entry, row = stored.entry or {}, stored.row or {}
        times = {f"sessions.{name}": row.get(name) for name in ("started_at", "ended_at")}
        self._report_times(DATABASE, None, times)
        self._report_times(
            stored.index_file, None, {name: entry.get(name) for name in _ENTRY_TIME_FIELDS}
        )
        charges, side = _charges(stored)
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=ended_at,
            end_reason=reason,
            title=text(row.get("title")),
            parent_id=stored.parent,
            parent_kind=stored.parent_kind,
            last_prompt=model.count(entry.get("last_prompt_tokens")),
            model=text(row.get("model")),
            provider=text(row.get("billing_provider")),
            metadata={IMPORTED: self._metadata()},
            charges=charges,
            side_charges=side,
            hidden=totals.hidden,
        )

    def _updated_at(self, totals: Totals) -> int | None:
        entry = self._stored.entry or {}
        return self._timestamps.micros(entry.get("updated_at")) or totals.last_at

    def _ended_at_and_reason(self, updated: int) -> tuple[int | None, str | None]:
        row = self._stored.row
        if row is not None and row.get("ended_at") is not None:
            ended = self._timestamps.micros(row["ended_at"]) or updated
            return ended, text(row.get("end_reason")) or IMPORTED
        if self._stored.entry is not None or (row is not None and self._stored.key is None):
            return None, None
        return updated, IMPORTED

    def _metadata(self) -> Fields:
        """Return the fields that the store has no column for."""
        stored = self._stored
        metadata: Fields = {"from": "hermes", "session_id": stored.id}
        if stored.key is not None:
            metadata["key"] = stored.key
        if stored.file is not None:
            metadata["file"] = stored.file
        if stored.entry is not None:
            metadata["entry"] = stored.entry
        if stored.row is not None:
            metadata["row"] = {
                name: json_of(value)
                if name in ("model_config", "origin_json")
                else _decode_blob(value)
                for name, value in stored.row.items()
                if value not in (None, "", 0)
            }
        if self._metas:
            metadata[META] = self._metas
        return metadata

    def _from_file(self, file: str) -> Iterator[ForeignMessage]:
        normaliser = MessageNormaliser(file, self._findings, self._timestamps)
        for line, value in self._folder.lines(file):
            if isinstance(value, dict) and value.get("role") == META:
                self._keep_meta_row(value)
                continue
            message = normaliser.message(line, value)
            if message is not None:
                yield ForeignMessage(line, message, normaliser.at(line, message.get("timestamp")))

    def _from_database(self) -> Iterator[ForeignMessage]:
        assert self._copy is not None
        normaliser = MessageNormaliser(DATABASE, self._findings, self._timestamps)
        for number, row in self._copy.rows_where("messages", "session_id", self._stored.id):
            if row.get("role") == META:
                self._keep_meta_row(
                    {name: _decode_blob(v) for name, v in row.items() if v is not None}
                )
                continue
            message = normaliser.message(None, self._message(number, row))
            if message is not None:
                at = normaliser.at(None, row.get("timestamp"))
                yield ForeignMessage(None, message, at, None, row.get("active", 1) != 0)

    def _message(self, number: int, row: Fields) -> Fields:
        """Return a database row in the chat form; columns without a chat field keep their name."""
        message: Fields = {"role": row.get("role"), "content": self._content(number, row)}
        for name, value in row.items():
            if name in message or name in _POSITION_COLUMNS or value is None:
                continue
            if name in _JSON_COLUMNS and isinstance(value, str):
                inner = self._json(number, name, value)
                message[f"{name}_as_text" if is_invalid(inner) else name] = (
                    value if is_invalid(inner) else inner
                )
            elif name != "observed" or value:
                message["name" if name == "tool_name" else name] = _decode_blob(value)
        return message

    def _content(self, number: int, row: Fields) -> Any:
        content = _decode_blob(row.get("content"))
        if not isinstance(content, str) or not content.startswith(_PARTS_MARK):
            return content
        parts = self._json(number, "content", content.removeprefix(_PARTS_MARK))
        return content.removeprefix(_PARTS_MARK) if is_invalid(parts) else parts

    def _json(self, number: int, column: str, value: str) -> Any:
        decoded = parse_json(value)
        if is_invalid(decoded):
            detail = f"session {self._stored.id}: messages.{column} of row {number} is not JSON"
            self._findings.add(DATABASE, None, "bad_json_column", detail)
        return decoded

    def _keep_meta_row(self, row: Fields) -> None:
        """Keep a `session_meta` row; equal rows are kept once."""
        meta = {name: value for name, value in row.items() if name not in ("timestamp", "id")}
        if meta not in self._metas:
            self._metas.append(meta)


def _sessions_by_id(copy: SqliteCopy) -> dict[str, Fields]:
    return {row["id"]: row for row in copy.rows("sessions") if isinstance(row.get("id"), str)}


def _ids_with_messages(copy: SqliteCopy) -> set[str]:
    if not copy.columns("messages"):
        return set()
    return {value for value in copy.values("messages", "session_id") if isinstance(value, str)}


def _model_usage_by_session(copy: SqliteCopy) -> dict[str, list[Fields]]:
    by_session: dict[str, list[Fields]] = {}
    for row in copy.rows("session_model_usage"):
        by_session.setdefault(str(row.get("session_id")), []).append(row)
    return by_session


def _parents(
    rows: Mapping[str, Fields], ids: set[str], findings: Findings
) -> dict[str, tuple[str, str]]:
    """Return the parent and its kind for each session; a cycle is cut where it closes.

    A parent that is not among `ids` is reported, and stays.
    """
    parents = {
        name: parent for name, row in rows.items() if (parent := text(row.get("parent_session_id")))
    }
    with_kind = {}
    for name in sorted(parents):
        visited = {name}
        ancestor = parents[name]
        while ancestor in parents and ancestor not in visited:
            visited.add(ancestor)
            ancestor = parents[ancestor]
        if ancestor == name:
            detail = f"session {name} is its own ancestor; its parent {parents[name]} was left out"
            findings.add(DATABASE, None, "parent_cycle", detail)
            del parents[name]
            continue
        if parents[name] not in ids:
            detail = f"the parent {parents[name]} of session {name} is missing"
            findings.add(DATABASE, None, "parent_missing", detail)
        with_kind[name] = (parents[name], _parent_kind(rows[name], rows.get(parents[name])))
    return with_kind


def _parent_kind(row: Fields, parent: Fields | None) -> str:
    config = json_of(row.get("model_config"))
    if isinstance(config, dict) and config.get("_branched_from"):
        return "fork"
    if isinstance(config, dict) and config.get("_delegate_from"):
        return "delegate"
    return "compression" if parent and parent.get("end_reason") == "compression" else "reset"


def _charges(stored: _HermesSession) -> tuple[tuple[Charge, ...], tuple[Charge, ...]]:
    """Return the charges of a session, and the side charges that are not in its totals.

    They are split by model if the parts add up to the totals.
    """
    main = [row for row in stored.models if not row.get("task")]
    side = [row for row in stored.models if row.get("task")]
    total = stored.row if stored.row is not None else stored.entry or {}
    counts = _counts(total)
    parts = [_counts(row) for row in main]
    adds_up = parts and all(counts[n] == sum(part[n] for part in parts) for n in counts)
    costs = (model.dollars(row.get("estimated_cost_usd")) or 0.0 for row in main)
    same_cost = abs(sum(costs) - (model.dollars(total.get("estimated_cost_usd")) or 0.0)) < 1e-6
    charged = main if adds_up and same_cost else [total]
    prompt = model.count((stored.entry or {}).get("last_prompt_tokens"))
    return _all_charges(charged, prompt), _all_charges(side, None)


def _all_charges(rows: list[Fields], prompt: int | None) -> tuple[Charge, ...]:
    charges = []
    for row in rows:
        actual = model.dollars(row.get("actual_cost_usd"))
        cost = actual or model.dollars(row.get("estimated_cost_usd"))
        charges.append(
            model.charge_of(
                _counts(row),
                cost=cost,
                status="actual" if actual else row.get("cost_status"),
                last_prompt=prompt,
                model=text(row.get("model")),
                provider=text(row.get("billing_provider")),
                base_url=text(row.get("billing_base_url")),
                cost_source=text(row.get("cost_source")),
            )
        )
    return tuple(charge for charge in charges if charge is not None)


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {ours: model.count(row.get(theirs)) for ours, theirs in _TOKEN_COLUMNS.items()}


def _role_of(value: object) -> object:
    return value.get("role", META) if isinstance(value, dict) else META


def _is_safe(session_id: str) -> bool:
    """Return whether an id is safe as a file name inside the folder."""
    return len(session_id) <= _LONGEST_ID and _SAFE_ID.fullmatch(session_id) is not None


def _was_used(entry: Fields) -> bool:
    """Return whether an index entry shows that somebody spoke, so that a transcript must exist."""
    return entry.get("created_at") != entry.get("updated_at") or any(
        model.count(entry.get(name)) for name in ("total_tokens", "last_prompt_tokens")
    )


def _has_details(entry: Fields) -> bool:
    return any(entry.get(name) is not None for name in ("session_key", "origin", "created_at"))


def _fits(key: str, entries: Mapping[str, Fields]) -> bool:
    """Return whether a key is one that its entry's origin can have."""
    source = model.source_of((entries.get(key) or {}).get("origin"))
    return source is not None and hermes_keys.fits(key, source)


def _source_from_key(key: str, platform: str | None) -> Source:
    """Return the source that a key alone tells; it has no thread and no person, only a chat."""
    parts = key.split(":", 4)
    platform = platform or (parts[2] if len(parts) > 2 else model.UNKNOWN)
    if parts[0] != "agent" or len(parts) < 4 or parts[3] not in CHAT_TYPES:
        return model.unknown_source(platform, key)
    return Source(platform, "".join(parts[4:]), chat_type=parts[3])


def _decode_blob(value: Any) -> Any:
    """Return the value of a column; bytes become text, since JSON has no bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
