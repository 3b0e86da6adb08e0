"""The Claude Agent SDK: a session store that mirrors its transcripts into a Tertulia store.

    options = ClaudeAgentOptions(session_store=TertuliaSessionStore(store))

Each transcript is a conversation of its own, those of helpers (with a subpath) too. Each entry
stands beside the message that shows it. An entry with a `uuid` is stored once. The SDK hands
entries over after they have happened, so there is no place for a lease: each batch is one
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

from tertulia.core import keys
from tertulia.core.message import INTERNAL, Message
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.integrations import (
    append,
    content_parts,
)
from tertulia.integrations.missing_extra import missing
from tertulia.integrations.payload import given_back, grouped, holds, keep
from tertulia.integrations.store_access import (
    AnyStore,
    opened,
)
from tertulia.integrations.store_access import current as current_session
from tertulia.records.sessions import delete
from tertulia.records.usage import add_in, charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros, parse_body, to_micros

try:
    from claude_agent_sdk import fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )
except ImportError as problem:
    raise missing("claude", problem) from problem

PLATFORM: Final = "claude-agent"
FIELD: Final = "claude"

# Lines of the transcript that nobody said. They are kept and shown, and no model is given them.
_TITLES: Final = ("customTitle", "aiTitle", "summary", "content", "lastPrompt")


class TertuliaSessionStore(SessionStore):
    """Transcripts of the SDK in a store, with all four optional methods."""

    def __init__(self, store: AnyStore) -> None:
        self._store, self._executor = opened(store)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store a batch, in one transaction; an entry whose `uuid` is known is left out."""
        if entries:
            await self._executor.run(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Every entry that is seen, as it was given; None for a key that was never written."""
        return await self._executor.run(self._load, key)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project and when each was last written."""
        rows = await self._executor.run(self._rows, _of_project(project_key))
        return [{"session_id": source.chat_id, "mtime": _mtime(row)} for row, source in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The SDK's own summary of each session of a project, kept up to date by `append`."""
        rows = await self._executor.run(self._rows, _of_project(project_key))
        return [
            {"session_id": source.chat_id, "mtime": _mtime(row), "data": summary["data"]}
            for row, source in rows
            if (summary := _summary(row)) is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Remove a transcript for good; that of a session with everything below it."""
        await self._executor.run(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session."""
        source = _of_helpers(key["project_key"], key["session_id"])
        rows = await self._executor.run(self._rows, source)
        return [found.thread_id for _, found in rows if found.thread_id is not None]

    def source(self, key: SessionKey) -> Source:
        """The conversation that a transcript is kept in."""
        subpath = key.get("subpath")
        if not subpath:
            return _of_project(key["project_key"], key["session_id"])
        return _of_helpers(key["project_key"], key["session_id"], subpath)

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        context, source = self._store.context, self.source(key)
        name = self._store.sessions.key(source)
        batch = [_Entry(name, entry) for entry in entries]
        opening = append.SessionOpener.of(context, source, name)

        def work(tx: Transaction) -> None:
            row = opening.open(tx)
            fresh = [entry for entry in _once(batch) if not entry.is_known(tx)]
            if not fresh:
                return
            used = _calls(tx, fresh)
            lines = [one for entry in fresh for one in entry.lines]
            active_at = _later(opening.now, row)
            append.append(tx, row.id, lines, now=opening.now, active_at=active_at)
            for usage in used:
                add_in(tx, row.id, charge(usage), to_micros(opening.now))
            if not key.get("subpath"):
                given = [entry.given for entry in fresh]
                folded = fold_session_summary(_summary(row), key, given)
                append.set_metadata(tx, row, {**append.metadata(row), FIELD: {"summary": folded}})

        context.db.write(work)
        context.notify_indexer()

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        session = current_session(self._store, self.source(key))
        if session is None:
            return None
        entries = self._store.transcript(session.id).entries()
        return [given for entry in entries for given in _given(entry)]

    def _rows(self, source: Source) -> list[tuple[SessionRow, Source]]:
        """The current sessions that belong to the same one as a source."""
        person = keys.person_of(source)
        rows = self._store.context.db.read(lambda tx: list(append.sessions(tx, person=person)))
        return [(row, Source.from_dict(parse_body(row.origin))) for row in rows]

    def _delete(self, key: SessionKey) -> None:
        source = self.source(key)
        name = self._store.sessions.key(source)
        helpers = keys.person_of(_of_helpers(key["project_key"], key["session_id"]))

        def work(tx: Transaction) -> None:
            rows = list(append.sessions(tx, key=name, ended=True))
            if not key.get("subpath"):
                rows += append.sessions(tx, person=helpers, ended=True)
            for row in rows:
                delete.delete_session(tx, row)

        self._store.context.db.write(work)


class _Entry:
    """An entry made ready to be stored, before any transaction."""

    def __init__(self, key: str, given: SessionStoreEntry) -> None:
        self.given = given
        fields: Mapping[str, Any] = given
        uuid = fields.get("uuid")
        self.mark = append.mark(FIELD, key, uuid) if isinstance(uuid, str) else None
        message = fields.get("message")
        self.message: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
        self.usage = _usage(self.message) if fields.get("type") == "assistant" else None
        call = self.message.get("id")
        has_id = self.usage is not None and isinstance(call, str)
        self.call = append.mark(FIELD, "call", key, str(call)) if has_id else None
        self.lines = self._lines(fields)

    def is_known(self, tx: Transaction) -> bool:
        return self.mark is not None and append.is_known(tx, self.mark)

    def _lines(self, fields: Mapping[str, Any]) -> list[append.LogLine]:
        shown = grouped(_shown(fields, self.message), FIELD, keep(self.given))
        is_said = fields.get("type") in ("user", "assistant") and self.message
        kind = None if is_said and fields.get("isMeta") is not True else INTERNAL
        marks = [name for name in (self.mark, self.call) if name is not None]
        return [append.line(one, kind, () if place else marks) for place, one in enumerate(shown)]


def _once(batch: Iterable[_Entry]) -> Iterable[_Entry]:
    seen: set[str] = set()
    for entry in batch:
        if entry.mark is None or entry.mark not in seen:
            yield entry
        if entry.mark is not None:
            seen.add(entry.mark)


def _calls(tx: Transaction, entries: Iterable[_Entry]) -> list[Usage]:
    """What the model calls of a batch used. A call writes an entry for each block of its answer,
    each with its usage so far: it is counted once, by the last entry of the batch it comes in.
    """
    found: dict[str, Usage] = {}
    for place, entry in enumerate(entries):
        if entry.usage is None or (entry.call is not None and append.is_known(tx, entry.call)):
            continue
        found[entry.call or str(place)] = entry.usage
    return list(found.values())


def _of_project(project: str, session: str = "") -> Source:
    """Each project is the owner of its transcripts, so that they are listed by an index."""
    return Source(PLATFORM, session, account=project, user_id=f"project:{project}")


def _of_helpers(project: str, session: str, subpath: str | None = None) -> Source:
    """Each session is the owner of what its helpers wrote."""
    return Source(
        PLATFORM, session, account=project, user_id=f"session:{session}", thread_id=subpath
    )


def _summary(row: SessionRow) -> SessionSummaryEntry | None:
    kept = append.metadata(row).get(FIELD)
    summary = kept.get("summary") if isinstance(kept, Mapping) else None
    return cast(SessionSummaryEntry, summary) if isinstance(summary, Mapping) else None


def _mtime(row: SessionRow) -> int:
    return row.updated_at // 1000


def _later(now: datetime, row: SessionRow) -> datetime:
    """The time of a write: at least a millisecond after the one before, as files have it."""
    return max(now, from_micros(row.updated_at) + timedelta(milliseconds=1))


def _given(entry: Message) -> list[SessionStoreEntry]:
    kept = entry.body.get(FIELD)
    return [given_back(kept)] if holds(kept) else []


def _shown(fields: Mapping[str, Any], message: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind, content = fields.get("type"), message.get("content")
    blocks = (
        content
        if isinstance(content, list)
        else [content_parts.text(content_parts.written(content or ""))]
    )
    if kind == "assistant" and message:
        return [_assistant(blocks)]
    if kind == "user" and message:
        return _person(blocks)
    told = [fields[name] for name in _TITLES if isinstance(fields.get(name), str)]
    return [{"role": "system", "content": "\n".join([f"[{kind}]", *told])}]


def _assistant(blocks: Sequence[Any]) -> dict[str, Any]:
    calls = [
        content_parts.call(block.get("id"), block.get("name"), block.get("input"))
        for block in _of_type(blocks, "tool_use")
    ]
    thoughts = [str(block.get("thinking") or "") for block in _of_type(blocks, "thinking")]
    hidden = ("tool_use", "thinking", "redacted_thinking")
    shown = content_parts.assistant(content_parts.joined(_parts(blocks, hidden)), calls)
    return {**shown, "reasoning_content": "\n".join(thoughts)} if any(thoughts) else shown


def _person(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    found = [
        content_parts.result(block.get("tool_use_id"), _result(block.get("content")))
        for block in _of_type(blocks, "tool_result")
    ]
    said = content_parts.joined(_parts(blocks, ("tool_result",)))
    return [*found, {"role": "user", "content": said or ""}] if said or not found else found


def _result(content: Any) -> content_parts.Content:
    if isinstance(content, list):
        return content_parts.joined(_parts(content, ()))
    return content_parts.written("" if content is None else content)


def _parts(blocks: Sequence[Any], hidden: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            found.append(content_parts.text(block["text"]))
        elif kind not in hidden:
            found.append(content_parts.unknown(block))
    return found


def _of_type(blocks: Sequence[Any], kind: str) -> list[Mapping[str, Any]]:
    return [one for one in blocks if isinstance(one, Mapping) and one.get("type") == kind]


def _usage(message: Mapping[str, Any]) -> Usage | None:
    used = message.get("usage")
    if not isinstance(used, Mapping):
        return None
    counts = [
        value if type(value := used.get(name)) is int and value >= 0 else 0
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
    ]
    if not any(counts):
        return None
    model = message.get("model")
    name = model if isinstance(model, str) else None
    prompt = counts[0] + counts[2] + counts[3]
    return Usage(*counts, model=name, provider="anthropic", last_prompt=prompt)
