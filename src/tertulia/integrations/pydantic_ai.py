"""Pydantic AI: its conversation store over a Tertulia store, and helpers for `message_history=`.

    conversations = TertuliaConversationStore(store)
    conversation = await conversations.load("ana") or Conversation(conversation_id="ana")
    result = await agent.run("Will it rain?", conversation=conversation)
    await conversations.save(result)

Each entry of the SDK stands beside the messages that show it. The record of a conversation is part
of its session. Its head is the newest entry that is seen, so `undo` and its like move it too, and
give it another revision; a branch is a revision of the transcript, and nothing is ever destroyed
but by `delete`. The SDK loads, runs and saves, and whoever saves late gets its conflict: there is
no place for a lease in that. With the helpers there is:

    with store.turn(source, text) as turn:
        result = agent.run_sync(message_history=message_history(turn))
        add_run(turn, result)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia import aio
from tertulia.aio.turn import control_of as async_control_of
from tertulia.core import keys
from tertulia.core.history.view import (
    Span,
    newest_spans,
    view_of_spans,
)
from tertulia.core.message import COMMAND, INTERNAL, Message, text_of
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove, NotFound, SessionBusy
from tertulia.integrations import (
    append,
    content_parts,
)
from tertulia.integrations.missing_extra import missing
from tertulia.integrations.payload import follows, given_back, grouped, holds, keep
from tertulia.integrations.store_access import AnyStore
from tertulia.integrations.store_access import opened as opened_store
from tertulia.records import session_rows
from tertulia.records.sessions import delete
from tertulia.records.transcript.read import read_messages
from tertulia.records.transcript.revisions import add_revision
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.interrupted import close_interrupted
from tertulia.records.turns.turn import Turn, control_of
from tertulia.records.usage import add_in, charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, to_micros
from tertulia.store import Store

try:
    from pydantic import TypeAdapter
    from pydantic_ai import ModelMessage
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
except ImportError as problem:
    raise missing("pydantic-ai", problem) from problem

PLATFORM: Final = "pydantic-ai"
FIELD: Final = "pydantic_ai"

_HIDDEN: Final = (COMMAND, INTERNAL)
_CHUNK: Final = 100
_PAUSE: Final = 0.02

_message: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage)
_record: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class EntryNotFound(NotFound, LookupError):
    """No stored conversation has that entry."""


class TertuliaConversationStore(ConversationStore):
    """The SDK's conversations in a store.

    `delete` removes a conversation with all its entries, for good; forks have entries of their own.
    `wait` is how long a save waits for a turn that is under way in the same session.
    """

    def __init__(self, store: AnyStore, *, wait: float = 30.0) -> None:
        self._store, self._executor = opened_store(store)
        self._db = self._store.context.db
        self._wait = wait

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, or None."""
        key = self._store.sessions.key(self.source(conversation_id))
        return await self._executor.run(self._db.read, lambda tx: _stored(tx, key))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, or those of a scope, newest first."""
        return await self._executor.run(self._records, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one transaction, if its revision is as expected."""
        save = _Save(self._store, self.source(record.conversation_id, record.scope), record)
        entries = [_Written(entry) for entry in new_entries]
        deadline = time.monotonic() + self._wait
        while not await self._executor.run(save.save, entries, expected_revision):
            if time.monotonic() > deadline:
                raise SessionBusy(
                    f"Another turn has held the session for {self._wait:g} seconds.",
                    hint="Save again later; nothing of this was stored.",
                    key=save.key,
                )
            await asyncio.sleep(_PAUSE)
        self._store.context.notify_indexer()

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove a conversation for good, with its entries, if its revision is as expected."""
        key = self._store.sessions.key(self.source(conversation_id))

        def work(tx: Transaction) -> None:
            stored, row = _stored(tx, key), append.current(tx, key)
            if stored is None or row is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            delete.delete_session(tx, row)

        await self._executor.run(self._db.write, work)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry with that id; `EntryNotFound`, a `LookupError`, if there is none."""
        found = await self._executor.run(self._db.read, lambda tx: _require(tx, entry_id))
        return _entry(found)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """The entries up to a head, oldest first, or the newest `limit` of them; one read."""
        if head_id is None or limit == 0:
            return []
        rows = await self._executor.run(self._db.read, lambda tx: _chain(tx, head_id, limit))
        return [_entry(rows_of[0]) for rows_of in rows]

    def source(self, conversation_id: str, scope: str | None = None) -> Source:
        """The conversation of the store; a scope is the person it belongs to."""
        return Source(
            PLATFORM, conversation_id, user_id=None if scope is None else f"scope:{scope}"
        )

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        person = None if scope is None else keys.person_of(self.source("", scope))
        found: list[ConversationRecord] = []

        def work(tx: Transaction) -> None:
            found.clear()
            for row in append.sessions(tx, person=person, platform=PLATFORM):
                record = _record_of(tx, row)
                if record is not None and (scope is None or record.scope == scope):
                    if limit is not None and len(found) >= limit:
                        return
                    found.append(record)

        self._db.read(work)
        return found


def message_history(
    of: Turn | TurnControl | Transcript, *, newest: int | None = None
) -> list[ModelMessage]:
    """What was said so far, for `agent.run(message_history=…)`, whoever stored it.

    Of a turn, the person's message is the last: give no prompt beside it. `newest` is the number of
    messages of ours to look at.
    """
    log = of if isinstance(of, Transcript) else control_of(of).transcript()
    called: dict[str, str] = {}
    found: list[ModelMessage] = []
    for entry in log.entries(newest=newest):
        kept = entry.body.get(FIELD)
        if holds(kept):
            found.append(_message.validate_python(given_back(kept)))
        elif not follows(kept) and entry.kind not in _HIDDEN:
            found.append(_foreign(entry, called))
    return found


def add_run(turn: Turn | TurnControl, result: AgentRunResult[Any]) -> None:
    """Store what a run did, with what each model call used; the answer ends the turn."""
    control = control_of(turn)
    fresh = _without_prompt(control.transcript(), result.new_messages())
    for place, message in enumerate(fresh):
        is_last = place == len(fresh) - 1
        control.extend(
            _messages_of(message, keep(_dumped(message))), usage=_usage(message), is_last=is_last
        )


async def message_history_async(
    of: aio.Turn | aio.Transcript, *, newest: int | None = None
) -> list[ModelMessage]:
    """The same as `message_history`, for `tertulia.aio`."""
    record = async_control_of(of) if isinstance(of, aio.Turn) else of
    return await record._executor.run(message_history, record.sync, newest=newest)


async def add_run_async(turn: aio.Turn, result: AgentRunResult[Any]) -> None:
    """The same as `add_run`, for `tertulia.aio`."""
    control = async_control_of(turn)
    await control._executor.run(add_run, control.sync, result)


class _Written:
    """An entry made ready to be stored, before any transaction."""

    def __init__(self, entry: ConversationEntry) -> None:
        self.id, self.parent_id = entry.id, entry.parent_id
        kept = keep(_dumped(entry.message), id=entry.id, parent=entry.parent_id, kind=entry.kind)
        self.lines = _lines(_messages_of(entry.message, kept), entry.id)
        used = _usage(entry.message)
        self.cost = None if used is None else charge(used)


class _Save:
    """One save of a record."""

    def __init__(self, store: Store, source: Source, record: ConversationRecord) -> None:
        self._context = store.context
        self._source = source
        self._record = record
        self.key = store.sessions.key(source)

    def save(self, entries: Sequence[_Written], expected: str | None) -> bool:
        """Save; False while a turn is under way in the session."""
        opening = append.SessionOpener.of(self._context, self._source, self.key)

        def work(tx: Transaction) -> bool:
            before = _stored(tx, self.key)
            if (None if before is None else before.revision) != expected:
                raise ConversationConflict(self._record.conversation_id)
            if before is not None and before.scope != self._record.scope:
                raise IllegalMove(
                    f"The conversation belongs to the scope {before.scope!r}.",
                    hint="A conversation keeps its scope; fork it into another one.",
                )
            row = opening.open(tx)
            if _is_held(tx, row):
                return False
            self._write(tx, row, entries, opening)
            return True

        return bool(self._context.db.write(work))

    def _write(
        self,
        tx: Transaction,
        row: SessionRow,
        entries: Sequence[_Written],
        opening: append.SessionOpener,
    ) -> None:
        if row.open_turn is not None:
            close_interrupted(tx, row, opening.now)
            tx.run("session_revoke_lease", {"ref": row.ref})
        base = entries[0].parent_id if entries else self._record.head_id
        lines = [line for entry in entries for line in entry.lines]
        self._check_head(tx, entries)
        seen = session_rows.current_view(tx, row.id)
        if base != _head(tx, seen):
            lines = self._go_back(tx, seen, base, opening) + lines
        if lines:
            append.append(tx, row.id, lines, now=opening.now, active_at=self._record.updated_at)
        else:
            tx.run("session_touch", {"ref": row.ref, "now": to_micros(self._record.updated_at)})
        for entry in entries:
            if entry.cost is not None:
                add_in(tx, row.id, entry.cost, to_micros(opening.now))
        self._put_record(tx, row)

    def _check_head(self, tx: Transaction, entries: Sequence[_Written]) -> None:
        """Every entry that the history goes through has to be there."""
        known = {entry.id for entry in entries}
        for needed in (self._record.head_id, entries[0].parent_id if entries else None):
            if needed is not None and needed not in known and _place(tx, needed) is None:
                raise ConversationConflict(self._record.conversation_id)

    def _go_back(
        self, tx: Transaction, seen: CurrentView, base: str | None, opening: append.SessionOpener
    ) -> list[append.LogLine]:
        """Show the history up to an entry; what of it lies in other sessions is to be copied."""
        rows = [] if base is None else _chain(tx, base, None, log=seen.ref)
        own = [row for group in rows for row in group if row.session == seen.ref]
        spans = _spans(own)
        view = view_of_spans(spans, seen.ref, seen.last_seq)
        add_revision(tx, seen, view, "branch", to_micros(opening.now), before=seen.last_seq)
        apart = [group for group in rows if group[0].session != seen.ref]
        return [line for group in apart for line in _copied(group)]

    def _put_record(self, tx: Transaction, row: SessionRow) -> None:
        number = session_rows.current_view(tx, row.id).number
        kept = {"record": _record.dump_python(self._record, mode="json"), "revision": number}
        now = session_rows.require(tx, row.id)
        append.set_metadata(tx, now, {**append.metadata(now), FIELD: kept})


def _stored(tx: Transaction, key: str) -> ConversationRecord | None:
    row = append.current(tx, key)
    return None if row is None else _record_of(tx, row)


def _record_of(tx: Transaction, row: SessionRow) -> ConversationRecord | None:
    """The record of a session. Its head is what is seen, whoever moved that."""
    kept = append.metadata(row).get(FIELD)
    if not isinstance(kept, dict):
        return None
    record = _record.validate_python(kept["record"])
    if row.revision == kept["revision"]:
        return record
    head = _head(tx, session_rows.current_view(tx, row.id))
    branches = [tip for tip in record.branches if tip not in (head, record.head_id)]
    if record.head_id is not None and record.head_id != head:
        branches.append(record.head_id)
    return replace(
        record,
        head_id=head,
        branches=branches,
        revision=f"{record.revision}+{row.revision}",
    )


def _head(tx: Transaction, seen: CurrentView) -> str | None:
    """The newest entry that is seen."""
    spans, count = seen.view.spans(seen.last_seq), 8
    while True:
        newest = newest_spans(spans, count)
        for row in reversed(read_messages(tx, newest)):
            if (found := _id(row)) is not None:
                return found
        if newest == spans:
            return None
        count *= 8


def _chain(
    tx: Transaction, head: str, limit: int | None, *, log: int | None = None
) -> list[list[Message]]:
    """The rows of each entry up to a head, oldest first.

    An entry stands before those that follow it in the same log, so that one look back finds all.
    """
    found: list[list[Message]] = []
    wanted: str | None = head
    while wanted is not None and (limit is None or len(found) < limit):
        start = _require(tx, wanted, log=log)
        before = len(found)
        for group in _backwards(tx, start):
            if _id(group[0]) == wanted:
                found.append(group)
                wanted = group[0].body[FIELD].get("parent")
                if wanted is None or len(found) == limit:
                    break
        assert len(found) > before
    found.reverse()
    return found


def _backwards(tx: Transaction, start: Message) -> Iterator[list[Message]]:
    """The entries of a log from one back, each with the rows that follow it."""
    last = start.seq + _followers(tx, start)
    rest: list[Message] = []
    while last >= 1:
        first = max(1, last - _CHUNK + 1)
        for row in reversed(read_messages(tx, [Span(start.session, first, last)])):
            kept = row.body.get(FIELD)
            if follows(kept):
                rest.insert(0, row)
            elif _id(row) is not None:
                yield [row, *rest]
                rest = []
        last = first - 1


def _followers(tx: Transaction, start: Message) -> int:
    """How many rows after one go on with its entry."""
    count = 0
    while True:
        seq = start.seq + count + 1
        rows = read_messages(tx, [Span(start.session, seq, seq)])
        if not rows or not follows(rows[0].body.get(FIELD)):
            return count
        count += 1


def _require(tx: Transaction, entry_id: str, *, log: int | None = None) -> Message:
    place = _place(tx, entry_id, log=log)
    rows = [] if place is None else read_messages(tx, [Span(place[0], place[1], place[1])])
    if not rows:
        raise EntryNotFound(
            f"No stored conversation has the entry {entry_id!r}.",
            hint="`load_entries` gives the entries of a conversation.",
        )
    return rows[0]


def _place(tx: Transaction, entry_id: str, *, log: int | None = None) -> tuple[int, int] | None:
    """Where an entry stands, in a given log if it does."""
    found = append.places(tx, append.mark(FIELD, entry_id))
    return next((one for one in found if one[0] == log), found[0] if found else None)


def _is_held(tx: Transaction, row: SessionRow) -> bool:
    (now,) = tx.one("db_now") or (0,)
    return row.lease_until > int(now)


def _spans(rows: Sequence[Message]) -> list[Span]:
    found: list[Span] = []
    for row in rows:
        if found and found[-1].last == row.seq - 1:
            found[-1] = Span(row.session, found[-1].first, row.seq)
        else:
            found.append(Span(row.session, row.seq, row.seq))
    return found


def _copied(group: Sequence[Message]) -> list[append.LogLine]:
    entry_id = _id(group[0])
    assert entry_id is not None
    return _lines([row.body for row in group], entry_id)


def _lines(messages: Sequence[dict[str, Any]], entry_id: str) -> list[append.LogLine]:
    name = append.mark(FIELD, entry_id)
    return [append.line(one, None, () if place else (name,)) for place, one in enumerate(messages)]


def _id(row: Message) -> str | None:
    kept = row.body.get(FIELD)
    found = kept.get("id") if holds(kept) else None
    return found if isinstance(found, str) else None


def _entry(row: Message) -> ConversationEntry:
    kept = row.body[FIELD]
    return ConversationEntry(
        id=kept["id"],
        parent_id=kept["parent"],
        message=_message.validate_python(given_back(kept)),
        kind=kept["kind"],
    )


def _dumped(message: ModelMessage) -> Any:
    return _message.dump_python(message, mode="json")


def _messages_of(message: ModelMessage, kept: dict[str, Any]) -> list[dict[str, Any]]:
    shown = _request(message) if isinstance(message, ModelRequest) else [_response(message)]
    return grouped(shown or [{"role": "system", "content": ""}], FIELD, kept)


def _request(message: ModelRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            content = content_parts.written(part.model_response_str())
            found.append(content_parts.result(part.tool_call_id, content, part.tool_name))
        elif isinstance(part, UserPromptPart):
            found.append({"role": "user", "content": _prompt(part)})
        elif isinstance(part, SystemPromptPart):
            found.append({"role": "system", "content": part.content})
        else:
            found.append(_other(part))
    return found


def _other(part: Any) -> dict[str, Any]:
    """What the SDK tells a model of its own accord, such as to try again; no person said it."""
    advice = getattr(part, "model_response", None)
    if not callable(advice):
        return {
            "role": "system",
            "content": content_parts.unknown({"type": part.part_kind})["text"],
        }
    if getattr(part, "tool_name", None) is not None:
        return content_parts.result(
            part.tool_call_id, content_parts.written(advice()), part.tool_name
        )
    return {"role": "system", "content": content_parts.written(advice())}


def _prompt(part: UserPromptPart) -> content_parts.Content:
    if isinstance(part.content, str):
        return part.content
    return content_parts.joined([_piece(piece) for piece in part.content]) or ""


def _piece(piece: Any) -> dict[str, Any]:
    if isinstance(piece, str):
        return content_parts.text(piece)
    if isinstance(piece, ImageUrl):
        return content_parts.image(piece.url)
    if isinstance(piece, BinaryContent) and piece.is_image:
        return content_parts.image(piece.data_uri)
    said = getattr(piece, "content", None)
    if isinstance(said, str):
        return content_parts.text(said)
    return content_parts.unknown({"type": getattr(piece, "kind", None)})


def _response(message: ModelResponse) -> dict[str, Any]:
    parts, calls, thoughts = [], [], []
    for part in message.parts:
        if isinstance(part, TextPart):
            parts.append(content_parts.text(part.content))
        elif isinstance(part, ToolCallPart):
            calls.append(
                content_parts.call(part.tool_call_id, part.tool_name, part.args_as_json_str())
            )
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.content)
        else:
            parts.append(content_parts.unknown({"type": part.part_kind}))
    shown = content_parts.assistant(content_parts.joined(parts), calls)
    return {**shown, "reasoning_content": "\n".join(thoughts)} if any(thoughts) else shown


def _foreign(entry: Message, called: dict[str, str]) -> ModelMessage:
    """What a message of another writer would be; `called` are the names of the calls before it."""
    row, said = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(row.get("tool_call_id") or "call")
        name = str(row.get("name") or called.get(call_id) or "tool")
        return ModelRequest(parts=[ToolReturnPart(name, said, call_id, timestamp=entry.at)])
    if entry.role == "system":
        return ModelRequest(parts=[SystemPromptPart(said, timestamp=entry.at)])
    if entry.role != "assistant":
        return ModelRequest(parts=[UserPromptPart(said, timestamp=entry.at)])
    parts: list[Any] = [TextPart(said)] if said else []
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            call_id, name = str(call.get("id") or "call"), str(function.get("name") or "tool")
            called[call_id] = name
            arguments = content_parts.written(function.get("arguments") or "{}")
            parts.append(ToolCallPart(name, arguments, call_id))
    return ModelResponse(parts=parts, timestamp=entry.at)


def _without_prompt(log: Transcript, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages of a run without the prompt, where the turn has stored that."""
    newest = log.entries(newest=1)
    first = messages[0] if messages else None
    if not newest or newest[0].role != "user" or not isinstance(first, ModelRequest):
        return list(messages)
    prompts = [part for part in first.parts if isinstance(part, UserPromptPart)]
    said = "\n".join(text_of({"content": _prompt(part)}) for part in prompts)
    is_same = len(prompts) == len(first.parts) and said == text_of(newest[0].body)
    return list(messages[1:] if is_same else messages)


def _usage(message: ModelMessage) -> Usage | None:
    if not isinstance(message, ModelResponse):
        return None
    used = message.usage
    read, write = used.cache_read_tokens, used.cache_write_tokens
    if not (used.input_tokens or used.output_tokens or read or write):
        return None
    return Usage(
        max(0, used.input_tokens - read - write),
        used.output_tokens,
        read,
        write,
        used.output_reasoning_tokens,
        model=message.model_name,
        provider=message.provider_name,
        base_url=message.provider_url,
        cost_usd=None if used.cost is None else float(used.cost),
        last_prompt=used.input_tokens,
    )
