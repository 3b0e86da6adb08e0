"""Claude Agent SDK: a session store that mirrors its transcripts into a Tertulia store.

    options = ClaudeAgentOptions(session_store=TertuliaSessionStore(store))

Each transcript is a separate conversation, also those of helper agents (with a subpath). Each entry
is stored as the payload of our message for it. An entry with a `uuid` is stored once. The SDK
passes entries after the fact, so no lease can be held: each batch is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

from tertulia.core import keys
from tertulia.core.message import INTERNAL, Message
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.integrations import append, content_parts
from tertulia.integrations.missing_extra import missing_extra
from tertulia.integrations.payload import attach_payload, from_payload, is_payload, to_payload
from tertulia.integrations.store_access import AnyStore, get_current_session, unwrap_store
from tertulia.records import session_rows
from tertulia.records.process_check import ProcessAnswers, write_with_process_check
from tertulia.records.sessions import delete
from tertulia.records.sessions.find import iterate_rows
from tertulia.records.sessions.open import OpenSession
from tertulia.records.transcript import marks
from tertulia.records.transcript.log import Entry, append_messages
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
    raise missing_extra("claude", problem) from problem

PLATFORM: Final = "claude-agent"
FIELD: Final = "claude"

# Text fields of entries that are not messages. These entries are stored and shown as internal
# rows, and no model receives them.
_TEXT_FIELDS: Final = ("customTitle", "aiTitle", "summary", "content", "lastPrompt")


class TertuliaSessionStore(SessionStore):
    """The SDK's session store over a Tertulia store, with all four optional methods."""

    def __init__(self, store: AnyStore) -> None:
        self._store, self._executor = unwrap_store(store)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store a batch in one transaction; skip entries whose `uuid` is already stored."""
        if entries:
            await self._executor.run(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return every visible entry exactly as it was appended; None for an unknown key."""
        return await self._executor.run(self._load, key)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project and the time of the last write to each."""
        rows = await self._executor.run(self._current_rows, _project_source(project_key))
        return [{"session_id": source.chat_id, "mtime": _mtime(row)} for row, source in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's own summary of each session of a project; `append` updates it."""
        rows = await self._executor.run(self._current_rows, _project_source(project_key))
        return [
            {"session_id": source.chat_id, "mtime": _mtime(row), "data": summary["data"]}
            for row, source in rows
            if (summary := _summary(row)) is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript permanently; a session's main transcript with all its subpaths."""
        await self._executor.run(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session."""
        source = _helper_source(key["project_key"], key["session_id"])
        rows = await self._executor.run(self._current_rows, source)
        return [source.thread_id for _, source in rows if source.thread_id is not None]

    def source(self, key: SessionKey) -> Source:
        """Return the source of the conversation that stores a transcript."""
        subpath = key.get("subpath")
        if not subpath:
            return _project_source(key["project_key"], key["session_id"])
        return _helper_source(key["project_key"], key["session_id"], subpath)

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        context, source = self._store.context, self.source(key)
        session_key = self._store.sessions.key(source)
        batch = [_TranscriptEntry(session_key, entry) for entry in entries]
        now = context.clock.now()

        def work(tx: Transaction, answers: ProcessAnswers) -> None:
            row, _ = OpenSession(context, source, session_key, now, answers=answers).find(tx)
            new_entries = [entry for entry in _unique(batch) if not entry.is_stored(tx)]
            if not new_entries:
                return
            usages = _new_usages(tx, new_entries)
            lines = [line for entry in new_entries for line in entry.lines]
            append_messages(
                tx, row.id, lines, to_micros(now), is_activity=True,
                active_at=to_micros(_write_time(now, row)),
            )  # fmt: skip
            for usage in usages:
                add_in(tx, row.id, charge(usage), to_micros(now))
            if not key.get("subpath"):
                sdk_entries = [entry.sdk_entry for entry in new_entries]
                summary = fold_session_summary(_summary(row), key, sdk_entries)
                metadata = {**parse_body(row.metadata), FIELD: {"summary": summary}}
                session_rows.set_metadata(tx, row, metadata)

        write_with_process_check(context, work)
        context.notify_indexer()

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        session = get_current_session(self._store, self.source(key))
        if session is None:
            return None
        messages = self._store.transcript(session.id).entries()
        return [entry for message in messages for entry in _sdk_entries(message)]

    def _current_rows(self, source: Source) -> list[tuple[SessionRow, Source]]:
        """Return the current sessions that have the same owner as a source."""
        person = keys.person_of(source)
        rows = self._store.context.read(
            lambda tx: list(iterate_rows(tx, person=person, state="current"))
        )
        return [(row, Source.from_dict(parse_body(row.origin))) for row in rows]

    def _delete(self, key: SessionKey) -> None:
        session_key = self._store.sessions.key(self.source(key))
        helpers = keys.person_of(_helper_source(key["project_key"], key["session_id"]))
        now = self._store.now()

        def work(tx: Transaction) -> None:
            rows = list(iterate_rows(tx, key=session_key))
            if not key.get("subpath"):
                rows += iterate_rows(tx, person=helpers)
            for row in rows:
                delete.delete_session(tx, row, now)

        self._store.context.write(work)


class _TranscriptEntry:
    """An entry prepared for storage before the transaction begins."""

    def __init__(self, key: str, sdk_entry: SessionStoreEntry) -> None:
        self.sdk_entry = sdk_entry
        fields: Mapping[str, Any] = sdk_entry
        uuid = fields.get("uuid")
        self.mark = marks.make_mark(FIELD, key, uuid) if isinstance(uuid, str) else None
        message = fields.get("message")
        self.message: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
        self.usage = _usage(self.message) if fields.get("type") == "assistant" else None
        call_id = self.message.get("id")
        has_id = self.usage is not None and isinstance(call_id, str)
        self.call_mark = marks.make_mark(FIELD, "call", key, str(call_id)) if has_id else None
        self.lines = self._lines(fields)

    def is_stored(self, tx: Transaction) -> bool:
        return self.mark is not None and marks.is_stored(tx, self.mark)

    def _lines(self, fields: Mapping[str, Any]) -> list[Entry]:
        messages = attach_payload(
            _to_messages(fields, self.message), FIELD, to_payload(self.sdk_entry)
        )
        is_message = fields.get("type") in ("user", "assistant") and self.message
        kind = None if is_message and fields.get("isMeta") is not True else INTERNAL
        own_marks = [mark for mark in (self.mark, self.call_mark) if mark is not None]
        return [
            append.to_entry(message, kind, () if index else own_marks)
            for index, message in enumerate(messages)
        ]


def _unique(batch: Iterable[_TranscriptEntry]) -> Iterable[_TranscriptEntry]:
    """Yield the entries of a batch without repeated ones."""
    yielded_marks: set[str] = set()
    for entry in batch:
        if entry.mark is None or entry.mark not in yielded_marks:
            yield entry
        if entry.mark is not None:
            yielded_marks.add(entry.mark)


def _new_usages(tx: Transaction, entries: Iterable[_TranscriptEntry]) -> list[Usage]:
    """Return the usage of each model call of a batch that is not recorded yet.

    A call writes an entry for each block of its answer, each with its usage so far. It is counted
    once, with the last entry of the first batch that has entries of it.
    """
    usages: dict[str, Usage] = {}
    for index, entry in enumerate(entries):
        if entry.usage is None:
            continue
        if entry.call_mark is not None and marks.is_stored(tx, entry.call_mark):
            continue
        usages[entry.call_mark or str(index)] = entry.usage
    return list(usages.values())


def _project_source(project: str, session: str = "") -> Source:
    """Return the source of a project's transcript; the project is the owner, which is indexed."""
    return Source(PLATFORM, session, account=project, user_id=f"project:{project}")


def _helper_source(project: str, session: str, subpath: str | None = None) -> Source:
    """Return the source of a helper agent's transcript; its session is the owner."""
    return Source(
        PLATFORM, session, account=project, user_id=f"session:{session}", thread_id=subpath
    )


def _summary(row: SessionRow) -> SessionSummaryEntry | None:
    fields = parse_body(row.metadata).get(FIELD)
    summary = fields.get("summary") if isinstance(fields, Mapping) else None
    return cast(SessionSummaryEntry, summary) if isinstance(summary, Mapping) else None


def _mtime(row: SessionRow) -> int:
    return row.updated_at // 1000


def _write_time(now: datetime, row: SessionRow) -> datetime:
    """Return the time of a write, at least a millisecond after the one before.

    The SDK reads it as a file's `mtime`, in milliseconds.
    """
    return max(now, from_micros(row.updated_at) + timedelta(milliseconds=1))


def _sdk_entries(message: Message) -> list[SessionStoreEntry]:
    payload = message.body.get(FIELD)
    return [from_payload(payload)] if is_payload(payload) else []


def _to_messages(fields: Mapping[str, Any], message: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind, content = fields.get("type"), message.get("content")
    blocks = (
        content
        if isinstance(content, list)
        else [content_parts.text_part(content_parts.to_text(content or ""))]
    )
    if kind == "assistant" and message:
        return [_assistant_message(blocks)]
    if kind == "user" and message:
        return _user_messages(blocks)
    texts = [fields[name] for name in _TEXT_FIELDS if isinstance(fields.get(name), str)]
    return [{"role": "system", "content": "\n".join([f"[{kind}]", *texts])}]


def _assistant_message(blocks: Sequence[Any]) -> dict[str, Any]:
    calls = [
        content_parts.tool_call(block.get("id"), block.get("name"), block.get("input"))
        for block in _of_type(blocks, "tool_use")
    ]
    thoughts = [str(block.get("thinking") or "") for block in _of_type(blocks, "thinking")]
    hidden = ("tool_use", "thinking", "redacted_thinking")
    message = content_parts.assistant_message(
        content_parts.join_parts(_parts(blocks, hidden)), calls
    )
    return {**message, "reasoning_content": "\n".join(thoughts)} if any(thoughts) else message


def _user_messages(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    results = [
        content_parts.tool_message(block.get("tool_use_id"), _result(block.get("content")))
        for block in _of_type(blocks, "tool_result")
    ]
    content = content_parts.join_parts(_parts(blocks, ("tool_result",)))
    if results and not content:
        return results
    return [*results, {"role": "user", "content": content or ""}]


def _result(content: Any) -> content_parts.Content:
    if isinstance(content, list):
        return content_parts.join_parts(_parts(content, ()))
    return content_parts.to_text("" if content is None else content)


def _parts(blocks: Sequence[Any], hidden: Sequence[str]) -> list[dict[str, Any]]:
    parts = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append(content_parts.text_part(block["text"]))
        elif kind not in hidden:
            parts.append(content_parts.placeholder_part(block))
    return parts


def _of_type(blocks: Sequence[Any], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]


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
