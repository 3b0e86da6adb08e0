"""Sessions of Hermes Agent, of every layout it has had.

- `sessions/sessions.json` says which session is current for each key, `sessions/<id>.jsonl` are the
  transcripts. A reset leaves a transcript of which the index knows nothing any more.
- `state.db` holds sessions and messages, at first beside the files and later alone; then the table
  `gateway_routing` is the index. Where both have a session, the longer one is taken.

Keys are kept as they are: Hermes builds them by the same rules. A session whose key is lost gets
one of its own, which belongs to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.source import CHAT_TYPES, Source
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
    SafeFolder,
    is_nothing,
    parsed,
)
from tertulia.transfer.importers.sessions_json import (
    json_of,
    read_index,
)
from tertulia.transfer.importers.sqlite_copy import (
    SqliteCopy,
    copy_database,
)
from tertulia.transfer.importers.timestamps import (
    TimestampParser,
    stamp_of,
)

DATABASE = "state.db"
INDEX = "sessions.json"
SUFFIX = ".jsonl"
META = "session_meta"

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
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NESTED = "\x00json:"  # how Hermes marks content that is a list of parts
_JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
_PLACE_COLUMNS = ("id", "session_id", "active", "compacted")
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}

Fields = dict[str, Any]


class _Known(NamedTuple):
    """Everything that is known of one session before its messages are read."""

    id: str
    key: str | None
    entry: Fields | None
    row: Fields | None
    file: str | None  # its transcript
    in_database: bool  # whether its messages are taken from there
    parent: str | None = None
    parent_kind: str | None = None
    models: tuple[Fields, ...] = ()

    @property
    def place(self) -> str:
        return DATABASE if self.in_database or self.file is None else self.file


class Hermes:
    """The sessions under a home of Hermes, or in its folder of sessions."""

    def __init__(self, folder: SafeFolder, moments: TimestampParser) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments
        self._under = "sessions/" if folder.is_folder("sessions") else ""
        if not self._under and folder.exists("sessions"):
            folder.refuses("sessions")
        self._index_file = f"{self._under}{INDEX}"

    def talks(self) -> Iterator[ForeignSession]:
        files = self._files()
        size = self._folder.size(DATABASE)
        self._folder.meter.total = size + sum(map(self._folder.size, files.values()))
        with copy_database(self._folder, DATABASE) as copy:
            found = self._known(files, copy)
            for known in found:
                if known.in_database:
                    self._folder.meter.done += size // len(found)
                yield self._talk(known, copy)

    def _files(self) -> dict[str, str]:
        found = self._folder.files(self._under.rstrip("/"), SUFFIX)
        return {file.rsplit("/", 1)[-1].removesuffix(SUFFIX): file for file in found}

    # -- what there is

    def _known(self, files: Mapping[str, str], copy: SqliteCopy | None) -> list[_Known]:
        rows = {} if copy is None else _by_id(copy)
        counts = set() if copy is None else _with_messages(copy)
        routed, keys_of = self._routing(files, copy, rows, counts)
        kinds = _parents(rows, self._findings)
        models = {} if copy is None else _models(copy)
        ids = sorted({*rows, *counts, *files, *keys_of})
        found = []
        for session_id in ids:
            row = rows.get(session_id)
            key = keys_of.get(session_id) or (text(row.get("session_key")) if row else None)
            entry = routed.get(key) if key else None
            if entry is not None and entry.get("session_id") != session_id:
                entry = None
            file = files.get(session_id)
            known = _Known(
                session_id, key, entry, row, file,
                self._is_longer_there(session_id, file, copy, counts),
                models=tuple(models.get(session_id, ())),
            )  # fmt: skip
            if session_id in kinds:
                parent, kind = kinds[session_id]
                known = known._replace(parent=parent, parent_kind=kind)
            if file is None or not self._folder.refuses(file):
                found.append(known)
        return found

    def _is_longer_there(
        self, session_id: str, file: str | None, copy: SqliteCopy | None, counts: set[str]
    ) -> bool:
        """Whether the database has more of a session than its transcript."""
        if copy is None or session_id not in counts:
            return file is None and copy is not None
        if file is None or not self._folder.is_file(file):
            return True
        lines = self._folder.lines(file, quietly=True)
        in_file = sum(1 for line in lines if _role_of(line.value) != META)
        rows = copy.rows_where("messages", "session_id", session_id)
        in_database = sum(1 for _, row in rows if row.get("role") != META)
        return in_database >= in_file

    # -- which session is current

    def _routing(
        self,
        files: Mapping[str, str],
        copy: SqliteCopy | None,
        rows: Mapping[str, Fields],
        counts: set[str],
    ) -> tuple[dict[str, Fields], dict[str, str]]:
        """The entry of each key, and the key of each session that has one."""
        routed: dict[str, Fields] = {}
        keys_of: dict[str, str] = {}
        in_database = {*rows, *counts}
        for key, entry in self._entries(copy):
            session_id = self._session_of(key, entry, files, in_database)
            if session_id is None:
                continue
            if session_id in keys_of:
                told = f"the session {session_id} is that of {keys_of[session_id]} and of {key}"
                self._findings.add(self._index_file, None, "duplicate_session_id", told)
                if _is_derived(keys_of[session_id], routed) or not _is_derived(key, {key: entry}):
                    continue
                del routed[keys_of[session_id]]
            routed[key] = entry
            keys_of[session_id] = key
        return routed, keys_of

    def _entries(self, copy: SqliteCopy | None) -> list[tuple[str, Any]]:
        """The index, and what only the database has of it."""
        found = [
            (key, entry)
            for key, entry in read_index(self._folder, self._index_file)
            if not key.startswith("_")  # notes, such as _README
        ]
        known = {key for key, _ in found}
        if copy is not None:
            found += [(key, entry) for key, entry in self._routes(copy) if key not in known]
        return found

    def _routes(self, copy: SqliteCopy) -> list[tuple[str, Any]]:
        """The newest part of `gateway_routing`: a home that was moved leaves its old rows there."""
        rows = list(copy.rows("gateway_routing"))
        times = [row for row in rows if isinstance(row.get("updated_at"), int | float)]
        newest = max(times, key=lambda row: row["updated_at"], default=None)
        found = []
        for row in rows:
            key, entry = row.get("session_key"), parsed(str(row.get("entry_json")))
            if not isinstance(entry, dict):
                told = f"gateway_routing.entry_json of {key} is no object"
                self._findings.add(DATABASE, None, "bad_json_column", told)
            elif isinstance(key, str) and newest and row.get("scope") == newest.get("scope"):
                found.append((key, entry))
        return found

    def _session_of(
        self, key: str, entry: Any, files: Mapping[str, str], in_database: set[str]
    ) -> str | None:
        """The session of an entry; None, and told, where it cannot be used."""
        file = self._index_file
        session_id = entry.get("session_id") if isinstance(entry, dict) else None
        if not isinstance(session_id, str) or not _tells_more(entry):
            self._findings.add(
                file, None, "index_entry_invalid", f"the entry of {key} is no session"
            )
            return None
        if not _is_safe(session_id):
            told = (
                f"the entry of {key} names the session {session_id[:60]!r}; it was not looked for"
            )
            self._findings.add(file, None, "unsafe_session_id", told)
            return None
        transcript = f"{self._under}{session_id}{SUFFIX}"
        has_any = session_id in files or session_id in in_database
        is_named = entry.get("session_key", key) == key
        if not is_named:
            told = f"the entry of {key} names itself {entry.get('session_key')!r}"
            self._findings.add(file, None, "index_key_mismatch", told)
        if not has_any and self._folder.exists(transcript):
            return None  # a link, which was told already
        if not has_any and (not is_named or self._was_used(entry)):
            place = transcript if is_named else file
            if is_named and self._folder.is_file(DATABASE):
                place = DATABASE
            told = f"the transcript of {key} is not there"
            self._findings.add(place, None, "transcript_missing", told)
        return session_id if has_any or is_named else None

    def _was_used(self, entry: Fields) -> bool:
        return entry.get("created_at") != entry.get("updated_at") or any(
            talks.count(entry.get(name)) for name in ("total_tokens", "last_prompt_tokens")
        )

    # -- one session

    def _talk(self, known: _Known, copy: SqliteCopy | None) -> ForeignSession:
        file = _Transcript(self._folder, self._moments, known, copy)
        source = self._source(known, file)
        if source.platform not in PLATFORMS and source.platform != talks.UNKNOWN:
            told = f"session {known.id} is of the platform {source.platform!r}, which was kept"
            self._findings.add(known.place, None, "unknown_platform", told)
        agent = _agent_of(known.key)
        key = known.key or talks.key_of(source, agent)
        names = [known.entry or {}, known.row or {}]
        display = next((n["display_name"] for n in names if text(n.get("display_name"))), None)
        person = talks.person_in(source, key) if known.key else None
        newcomer = ImportedSession(
            name=talks.named("hermes", known.id),
            id=known.id if _is_safe(known.id) else None,
            key=_storable(key),
            agent=agent,
            source=source,
            person=person,
            display_name=text(display) or source.chat_name or source.user_name,
            created_at=file.created_at(None),
            derived_key=_derived_key(source, agent, key) if person else None,
        )
        about = f"session {known.id}: " if known.in_database else ""
        return ForeignSession(known.place, newcomer, file.said(), file.settled, about)

    def _source(self, known: _Known, file: _Transcript) -> Source:
        entry, row = known.entry or {}, known.row or {}
        platform = text(entry.get("platform")) or text(row.get("source"))
        if known.key is None:
            platform = platform or file.platform() or talks.UNKNOWN
            user = row.get("user_id")
            return talks.unknown_source(platform, known.id, user_id=text(user))
        parts = known.key.split(":")
        platform = platform or (parts[2] if len(parts) > 2 else talks.UNKNOWN)
        found = talks.source_of(entry.get("origin"), platform)
        stored = self._origin(known.id, row.get("origin_json"))
        found = found or talks.source_of(stored, platform)
        if found is None and row.get("chat_id") is not None:
            columns = {**row, "chat_name": row.get("display_name"), "platform": platform}
            found = talks.source_of(columns, platform)
        return found or _from_key(parts, platform)

    def _origin(self, session_id: str, column: object) -> object:
        found = json_of(column)
        if column is not None and not isinstance(found, dict):
            told = f"session {session_id}: sessions.origin_json is no object"
            self._findings.add(DATABASE, None, "bad_json_column", told)
        return found


class _Transcript:
    """The messages of one session, from its file or from the database."""

    def __init__(
        self, folder: SafeFolder, moments: TimestampParser, known: _Known, copy: SqliteCopy | None
    ) -> None:
        self._folder = folder
        self._findings = folder.findings
        self._moments = moments
        self._known = known
        self._copy = copy
        self._metas: list[Fields] = []

    def said(self) -> Iterator[ForeignMessage]:
        if self._known.in_database:
            return self._from_database()
        return iter(()) if self._known.file is None else self._from_file(self._known.file)

    def platform(self) -> str | None:
        """The platform that a row of `session_meta` names, for want of anything better."""
        file = self._known.file
        if file is not None and self._folder.is_file(file):
            for number, line in enumerate(self._folder.lines(file, quietly=True)):
                if isinstance(line.value, dict) and line.value.get("role") == META:
                    return text(line.value.get("platform"))
                if number > 200:
                    break
        return None

    def created_at(self, first_at: int | None) -> int:
        row, entry = self._known.row or {}, self._known.entry or {}
        told = self._moments.micros(row.get("started_at")) or self._moments.micros(
            entry.get("created_at")
        )
        told = told or stamp_of(self._known.id, self._moments.zone) or first_at
        return told or self._folder.changed_at(self._known.place)

    def settled(self, seen: Totals) -> ImportSummary:
        known = self._known
        created = self.created_at(seen.first_at)
        updated = self._updated_at(seen) or created
        ended_at, reason = self._end(updated)
        entry, row = known.entry or {}, known.row or {}
        charges, side = _charges(known)
        return ImportSummary(
            created_at=created,
            updated_at=updated,
            ended_at=ended_at,
            end_reason=reason,
            title=text(row.get("title")),
            parent_id=known.parent,
            parent_kind=known.parent_kind,
            last_prompt=talks.count(entry.get("last_prompt_tokens")),
            model=text(row.get("model")),
            provider=text(row.get("billing_provider")),
            metadata={IMPORTED: self._kept()},
            charges=charges,
            side_charges=side,
            hidden=seen.hidden,
        )

    def _updated_at(self, seen: Totals) -> int | None:
        entry = self._known.entry or {}
        return self._moments.micros(entry.get("updated_at")) or seen.last_at

    def _end(self, updated: int) -> tuple[int | None, str | None]:
        row = self._known.row
        if row is not None and row.get("ended_at") is not None:
            ended = self._moments.micros(row["ended_at"]) or updated
            return ended, text(row.get("end_reason")) or IMPORTED
        if self._known.entry is not None or (row is not None and self._known.key is None):
            return None, None
        return updated, IMPORTED

    def _kept(self) -> Fields:
        """What the store has no place for."""
        known = self._known
        kept: Fields = {"from": "hermes", "session_id": known.id}
        if known.file is not None:
            kept["file"] = known.file
        if known.entry is not None:
            kept["entry"] = known.entry
        if known.row is not None:
            kept["row"] = {
                name: json_of(value) if name in ("model_config", "origin_json") else _plain(value)
                for name, value in known.row.items()
                if value not in (None, "", 0)
            }
        if self._metas:
            kept[META] = self._metas
        return kept

    def _from_file(self, file: str) -> Iterator[ForeignMessage]:
        rows = MessageNormaliser(file, self._findings, self._moments)
        for line, value in self._folder.lines(file):
            if isinstance(value, dict) and value.get("role") == META:
                self._note(value)
                continue
            message = rows.message(line, value)
            if message is not None:
                yield ForeignMessage(line, message, rows.at(line, message.get("timestamp")))

    def _from_database(self) -> Iterator[ForeignMessage]:
        assert self._copy is not None
        rows = MessageNormaliser(DATABASE, self._findings, self._moments)
        for number, row in self._copy.rows_where("messages", "session_id", self._known.id):
            if row.get("role") == META:
                self._note({name: _plain(v) for name, v in row.items() if v is not None})
                continue
            found = self._message(number, row)
            message = rows.message(None, found)
            if message is not None:
                at = rows.at(None, row.get("timestamp"))
                yield ForeignMessage(None, message, at, None, row.get("active", 1) != 0)

    def _message(self, number: int, row: Fields) -> Fields:
        """A row of the database in the chat form; what it has no name for keeps its own."""
        found: Fields = {"role": row.get("role"), "content": self._content(number, row)}
        for name, value in row.items():
            if name in found or name in _PLACE_COLUMNS or value is None:
                continue
            if name in _JSON_COLUMNS and isinstance(value, str):
                inner = self._json(number, name, value)
                found[f"{name}_as_text" if is_nothing(inner) else name] = (
                    value if is_nothing(inner) else inner
                )
            elif name != "observed" or value:
                found["name" if name == "tool_name" else name] = _plain(value)
        return found

    def _content(self, number: int, row: Fields) -> Any:
        content = _plain(row.get("content"))
        if not isinstance(content, str) or not content.startswith(_NESTED):
            return content
        parts = self._json(number, "content", content.removeprefix(_NESTED))
        return content.removeprefix(_NESTED) if is_nothing(parts) else parts

    def _json(self, number: int, column: str, value: str) -> Any:
        found = parsed(value)
        if is_nothing(found):
            told = f"session {self._known.id}: messages.{column} of row {number} is not JSON"
            self._findings.add(DATABASE, None, "bad_json_column", told)
        return found

    def _note(self, row: Fields) -> None:
        """Keep a row of `session_meta`, once where the same stands there again and again."""
        told = {name: value for name, value in row.items() if name not in ("timestamp", "id")}
        if told not in self._metas:
            self._metas.append(told)


def _by_id(copy: SqliteCopy) -> dict[str, Fields]:
    return {row["id"]: row for row in copy.rows("sessions") if isinstance(row.get("id"), str)}


def _with_messages(copy: SqliteCopy) -> set[str]:
    if not copy.columns("messages"):
        return set()
    return {value for value in copy.values("messages", "session_id") if isinstance(value, str)}


def _models(copy: SqliteCopy) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {}
    for row in copy.rows("session_model_usage"):
        found.setdefault(str(row.get("session_id")), []).append(row)
    return found


def _parents(rows: Mapping[str, Fields], findings: Any) -> dict[str, tuple[str, str]]:
    """The parent of each session and of what kind; a circle is cut where it closes."""
    parents = {
        name: parent for name, row in rows.items() if (parent := text(row.get("parent_session_id")))
    }
    found = {}
    for name in sorted(parents):
        passed = {name}
        place = parents[name]
        while place in parents and place not in passed:
            passed.add(place)
            place = parents[place]
        if place == name:
            told = f"session {name} is its own ancestor; its parent {parents[name]} was left out"
            findings.add(DATABASE, None, "parent_cycle", told)
            del parents[name]
            continue
        found[name] = (parents[name], _parent_kind(rows[name], rows.get(parents[name])))
    return found


def _parent_kind(row: Fields, parent: Fields | None) -> str:
    config = json_of(row.get("model_config"))
    if isinstance(config, dict) and config.get("_branched_from"):
        return "fork"
    if isinstance(config, dict) and config.get("_delegate_from"):
        return "delegate"
    return "compression" if parent and parent.get("end_reason") == "compression" else "reset"


def _charges(known: _Known) -> tuple[tuple[Charge, ...], tuple[Charge, ...]]:
    """The totals, by model where the parts add up to them; and what is not part of them."""
    main = [row for row in known.models if not row.get("task")]
    side = [row for row in known.models if row.get("task")]
    total = known.row if known.row is not None else known.entry or {}
    counts = _counts(total)
    parts = [_counts(row) for row in main]
    adds_up = parts and all(counts[n] == sum(part[n] for part in parts) for n in counts)
    costs = (talks.dollars(row.get("estimated_cost_usd")) or 0.0 for row in main)
    same_cost = abs(sum(costs) - (talks.dollars(total.get("estimated_cost_usd")) or 0.0)) < 1e-6
    charged = main if adds_up and same_cost else [total]
    prompt = talks.count((known.entry or {}).get("last_prompt_tokens"))
    return _all_charges(charged, prompt), _all_charges(side, None)


def _all_charges(rows: list[Fields], prompt: int | None) -> tuple[Charge, ...]:
    found = []
    for row in rows:
        actual = talks.dollars(row.get("actual_cost_usd"))
        cost = actual or talks.dollars(row.get("estimated_cost_usd"))
        found.append(
            talks.charge_of(
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
    return tuple(charge for charge in found if charge is not None)


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {ours: talks.count(row.get(theirs)) for ours, theirs in _TOKENS.items()}


def _role_of(value: object) -> object:
    return value.get("role", META) if isinstance(value, dict) else META


def _is_safe(session_id: str) -> bool:
    """Whether it can only be the name of a file in the folder."""
    return len(session_id) <= _LONGEST_ID and _SAFE_ID.fullmatch(session_id) is not None


def _tells_more(entry: Fields) -> bool:
    return any(entry.get(name) is not None for name in ("session_key", "origin", "created_at"))


def _is_derived(key: str, entries: Mapping[str, Fields]) -> bool:
    """Whether a key follows from the origin that stands beside it."""
    source = talks.source_of((entries.get(key) or {}).get("origin"))
    return source is not None and key in (
        keys.session_key(source), keys.session_key(source, per_user=False)
    )  # fmt: skip


def _derived_key(source: Source, agent: str, key: str) -> str | None:
    """The key of the next direct message, where Hermes shortened the chat's id in its own."""
    derived = keys.session_key(source, agent=agent)
    return derived if source.chat_type == "dm" and derived != key else None


def _agent_of(key: str | None) -> str:
    parts = (key or "").split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else "main"


def _from_key(parts: list[str], platform: str) -> Source:
    """A source from the key alone."""
    kind = parts[3] if len(parts) > 3 and parts[3] in CHAT_TYPES else talks.UNKNOWN
    return Source(platform, ":".join(parts[4:]), chat_type=kind)


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _storable(key: str) -> str:
    """The key with what no database takes escaped, so that two keys never become one."""
    return _UNSTORABLE.sub(lambda found: keys.escape(found[0]), key)
