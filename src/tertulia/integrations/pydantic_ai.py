"""Pydantic AI: its conversation store over a Tertulia store, and helpers for `message_history=`.

    conversations = TertuliaConversationStore(store)
    conversation = await conversations.load("ana") or Conversation(conversation_id="ana")
    result = await agent.run("Will it rain?", conversation=conversation)
    await conversations.save(result)

Each entry of the SDK is stored as the payload of our messages for it. The record of a conversation
is stored in the metadata of its session. Its head is the newest visible entry, so operations such
as `undo` move it too, and change its revision. A branch is a revision of the transcript, and only
`delete` destroys anything. The SDK loads, runs and saves, and a late save raises its conflict: that
cycle cannot hold a lease. With the helper functions, the run has the lease of the turn:

    with store.turn(source, text) as turn:
        result = agent.run_sync(message_history=message_history(turn))
        add_run(turn, result)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tertulia import aio
from tertulia.aio.turn import control_of as async_control_of
from tertulia.core import keys
from tertulia.core.history.view import Span, newest_spans, view_of_spans
from tertulia.core.message import COMMAND, INTERNAL, Message, text_of
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove, NotFound, SessionBusy
from tertulia.integrations import append, content_parts
from tertulia.integrations.missing_extra import missing_extra
from tertulia.integrations.payload import (
    attach_payload,
    from_payload,
    is_continuation,
    is_payload,
    to_payload,
)
from tertulia.integrations.store_access import AnyStore, unwrap_store
from tertulia.records import session_rows
from tertulia.records.process_check import ProcessAnswers, write_with_process_check
from tertulia.records.sessions import delete
from tertulia.records.sessions.find import iterate_rows
from tertulia.records.sessions.open import OpenSession
from tertulia.records.transcript import marks
from tertulia.records.transcript.log import Entry, append_messages
from tertulia.records.transcript.read import read_messages
from tertulia.records.transcript.revisions import add_revision
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.interrupted import revoke_open_turn
from tertulia.records.turns.turn import Turn, control_of
from tertulia.records.usage import add_in, charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, parse_body, to_micros
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
    raise missing_extra("pydantic-ai", problem) from problem

PLATFORM: Final = "pydantic-ai"
FIELD: Final = "pydantic_ai"

_HIDDEN: Final = (COMMAND, INTERNAL)
# Rows that are read at once while a history is followed back.
_ROWS_PER_READ: Final = 100
# How long a save waits before it looks again whether the turn in progress has ended.
_PAUSE_SECONDS: Final = 0.02

_message_adapter: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage)
_record_adapter: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class EntryNotFound(NotFound, LookupError):
    """No stored conversation has that entry."""


class TertuliaConversationStore(ConversationStore):
    """The SDK's conversation store over a Tertulia store.

    `delete` removes a conversation with all its entries permanently; forks have their own entries.
    `wait` is how many seconds a save waits for a turn in progress in the same session.
    """

    def __init__(self, store: AnyStore, *, wait: float = 30.0) -> None:
        self._store, self._executor = unwrap_store(store)
        self._context = self._store.context
        self._wait = wait

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        key = self._store.sessions.key(self.source(conversation_id))
        return await self._executor.run(self._context.read, lambda tx: _get_record(tx, key))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return all records, or those of a scope, newest first."""
        return await self._executor.run(self._records, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one transaction.

        Raises `ConversationConflict` if the stored revision differs from `expected_revision`, and
        `SessionBusy` if a turn holds the session for longer than `wait` seconds.
        """
        save = _Save(self._store, self.source(record.conversation_id, record.scope), record)
        entries = [_NewEntry(entry) for entry in new_entries]
        deadline = time.monotonic() + self._wait
        while not await self._executor.run(save.save, entries, expected_revision):
            if time.monotonic() > deadline:
                raise SessionBusy(
                    f"Another turn has held the session for {self._wait:g} seconds.",
                    hint="Save again later; nothing of this save was stored.",
                    key=save.key,
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        self._context.notify_indexer()

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and its entries permanently.

        Raises `ConversationConflict` if the stored revision differs from `expected_revision`.
        """
        key = self._store.sessions.key(self.source(conversation_id))

        def work(tx: Transaction) -> None:
            stored, row = _get_record(tx, key), session_rows.get_current(tx, key)
            if stored is None or row is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            delete.delete_session(tx, row, self._store.now())

        await self._executor.run(self._context.write, work)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry with that id. Raises `EntryNotFound`, a `LookupError`, if absent."""
        row = await self._executor.run(
            self._context.read, lambda tx: _require_entry_row(tx, entry_id)
        )
        return _entry(row)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to a head, or the newest `limit` of them, oldest first.

        All are read in one transaction. Raises `EntryNotFound` if one of them is not stored.
        """
        if head_id is None or limit == 0:
            return []
        groups = await self._executor.run(
            self._context.read, lambda tx: _rows_up_to(tx, head_id, limit)
        )
        return [_entry(group[0]) for group in groups]

    def source(self, conversation_id: str, scope: str | None = None) -> Source:
        """Return the source of a conversation; its scope becomes the user id."""
        return Source(
            PLATFORM, conversation_id, user_id=None if scope is None else f"scope:{scope}"
        )

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        person = None if scope is None else keys.person_of(self.source("", scope))
        records: list[ConversationRecord] = []

        def work(tx: Transaction) -> None:
            records.clear()  # the database may run this again
            for row in iterate_rows(tx, person=person, platform=PLATFORM, state="current"):
                record = _record_of(tx, row)
                if record is not None and (scope is None or record.scope == scope):
                    if limit is not None and len(records) >= limit:
                        return
                    records.append(record)

        self._context.read(work)
        return records


def message_history(
    of: Turn | TurnControl | Transcript, *, newest: int | None = None
) -> list[ModelMessage]:
    """Return the visible messages of all writers, for `agent.run(message_history=…)`.

    With a turn, the user message is the last one: pass no prompt to the run. `newest` is the number
    of our newest messages to read; None reads all.
    """
    log = of if isinstance(of, Transcript) else control_of(of).transcript()
    tool_names: dict[str, str] = {}
    messages: list[ModelMessage] = []
    for entry in log.entries(newest=newest):
        payload = entry.body.get(FIELD)
        if is_payload(payload):
            messages.append(_message_adapter.validate_python(from_payload(payload)))
        elif not is_continuation(payload) and entry.kind not in _HIDDEN:
            messages.append(_from_other_writer(entry, tool_names))
    return messages


def add_run(turn: Turn | TurnControl, result: AgentRunResult[Any]) -> None:
    """Store the messages of a run with the usage of each model call; the answer ends the turn."""
    control = control_of(turn)
    new_messages = _without_prompt(control.transcript(), result.new_messages())
    for index, message in enumerate(new_messages):
        is_last = index == len(new_messages) - 1
        control.extend(
            _messages_of(message, to_payload(_dump(message))),
            usage=_usage(message),
            is_last=is_last,
        )


async def message_history_async(
    of: aio.Turn | aio.Transcript, *, newest: int | None = None
) -> list[ModelMessage]:
    """Return the same as `message_history`, for `tertulia.aio`."""
    record = async_control_of(of) if isinstance(of, aio.Turn) else of
    return await record.executor.run(message_history, record.sync, newest=newest)


async def add_run_async(turn: aio.Turn, result: AgentRunResult[Any]) -> None:
    """Do the same as `add_run`, for `tertulia.aio`."""
    control = async_control_of(turn)
    await control.executor.run(add_run, control.sync, result)


class _NewEntry:
    """An entry prepared for storage before the transaction begins."""

    def __init__(self, entry: ConversationEntry) -> None:
        self.id, self.parent_id = entry.id, entry.parent_id
        payload = to_payload(
            _dump(entry.message), id=entry.id, parent=entry.parent_id, kind=entry.kind
        )
        self.lines = _lines(_messages_of(entry.message, payload), entry.id)
        usage = _usage(entry.message)
        self.cost = None if usage is None else charge(usage)


class _Save:
    """One save of a record with its new entries."""

    def __init__(self, store: Store, source: Source, record: ConversationRecord) -> None:
        self._context = store.context
        self._source = source
        self._record = record
        self.key = store.sessions.key(source)

    def save(self, entries: Sequence[_NewEntry], expected: str | None) -> bool:
        """Save and return True; return False while a turn is in progress in the session.

        Raises `ConversationConflict` if the stored revision differs from `expected`.
        """
        now = self._context.clock.now()

        def work(tx: Transaction, answers: ProcessAnswers) -> bool:
            stored = _get_record(tx, self.key)
            if (None if stored is None else stored.revision) != expected:
                raise ConversationConflict(self._record.conversation_id)
            if stored is not None and stored.scope != self._record.scope:
                raise IllegalMove(
                    f"The conversation belongs to the scope {stored.scope!r}, "
                    f"not {self._record.scope!r}.",
                    hint="The scope of a conversation cannot change; fork it into another scope.",
                )
            opening = OpenSession(self._context, self._source, self.key, now, answers=answers)
            row, _ = opening.find(tx)
            if session_rows.has_running_turn(tx, row):
                return False
            self._write(tx, row, entries, now)
            return True

        return write_with_process_check(self._context, work)

    def _write(
        self, tx: Transaction, row: SessionRow, entries: Sequence[_NewEntry], now: datetime
    ) -> None:
        if row.open_turn is not None:
            revoke_open_turn(tx, row, now)
        base = entries[0].parent_id if entries else self._record.head_id
        lines = [line for entry in entries for line in entry.lines]
        self._check_head(tx, entries)
        current_view = session_rows.current_view(tx, row.id)
        if base != _newest_entry_id(tx, current_view):
            lines = self._show_branch(tx, current_view, base, now) + lines
        if lines:
            append_messages(
                tx, row.id, lines, to_micros(now), is_activity=True,
                active_at=to_micros(self._record.updated_at),
            )  # fmt: skip
        else:
            session_rows.touch(tx, row, self._record.updated_at)
        for entry in entries:
            if entry.cost is not None:
                add_in(tx, row.id, entry.cost, to_micros(now))
        self._put_record(tx, row)

    def _check_head(self, tx: Transaction, entries: Sequence[_NewEntry]) -> None:
        """Raise `ConversationConflict` if an entry that the history needs is not stored."""
        new_ids = {entry.id for entry in entries}
        for entry_id in (self._record.head_id, entries[0].parent_id if entries else None):
            if entry_id is None or entry_id in new_ids:
                continue
            if _get_position(tx, entry_id) is None:
                raise ConversationConflict(self._record.conversation_id)

    def _show_branch(
        self, tx: Transaction, current_view: CurrentView, base: str | None, now: datetime
    ) -> list[Entry]:
        """Make the history up to an entry visible.

        Returns copies of the lines of that history that are in other sessions; the caller appends
        them.
        """
        log, last_seq = current_view.ref, current_view.last_seq
        groups = [] if base is None else _rows_up_to(tx, base, None, log=log)
        own_rows = [row for group in groups for row in group if row.session == log]
        view = view_of_spans(_spans(own_rows), log, last_seq)
        add_revision(tx, current_view, view, "branch", to_micros(now), before=last_seq)
        other_groups = [group for group in groups if group[0].session != log]
        return [line for group in other_groups for line in _copy_lines(group)]

    def _put_record(self, tx: Transaction, row: SessionRow) -> None:
        number = session_rows.current_view(tx, row.id).number
        stored = {
            "record": _record_adapter.dump_python(self._record, mode="json"),
            "revision": number,
        }
        new_row = session_rows.require(tx, row.id)
        metadata = {**parse_body(new_row.metadata), FIELD: stored}
        session_rows.set_metadata(tx, new_row, metadata)


def _get_record(tx: Transaction, key: str) -> ConversationRecord | None:
    row = session_rows.get_current(tx, key)
    return None if row is None else _record_of(tx, row)


def _record_of(tx: Transaction, row: SessionRow) -> ConversationRecord | None:
    """Return the record of a session, or None.

    Its head is the newest visible entry: if another operation has moved the view since the record
    was stored, the head, the branches and the revision are adjusted.
    """
    stored = parse_body(row.metadata).get(FIELD)
    if not isinstance(stored, dict):
        return None
    record = _record_adapter.validate_python(stored["record"])
    if row.revision == stored["revision"]:
        return record
    head = _newest_entry_id(tx, session_rows.current_view(tx, row.id))
    branches = [tip for tip in record.branches if tip not in (head, record.head_id)]
    if record.head_id is not None and record.head_id != head:
        branches.append(record.head_id)
    return replace(
        record,
        head_id=head,
        branches=branches,
        revision=f"{record.revision}+{row.revision}",
    )


def _newest_entry_id(tx: Transaction, current_view: CurrentView) -> str | None:
    """Return the id of the newest visible entry, or None."""
    spans, count = current_view.view.spans(current_view.last_seq), 8
    while True:
        newest = newest_spans(spans, count)
        for row in reversed(read_messages(tx, newest)):
            if (entry_id := _entry_id(row)) is not None:
                return entry_id
        if newest == spans:
            return None
        count *= 8


def _rows_up_to(
    tx: Transaction, head: str, limit: int | None, *, log: int | None = None
) -> list[list[Message]]:
    """Return the rows of each entry up to a head, oldest first.

    In one log an entry comes before those that follow it, so one pass backwards finds them all.
    """
    groups: list[list[Message]] = []
    next_id: str | None = head
    while next_id is not None and (limit is None or len(groups) < limit):
        start = _require_entry_row(tx, next_id, log=log)
        before = len(groups)
        for group in _iterate_backwards(tx, start):
            if _entry_id(group[0]) == next_id:
                groups.append(group)
                next_id = group[0].body[FIELD].get("parent")
                if next_id is None or len(groups) == limit:
                    break
        assert len(groups) > before
    groups.reverse()
    return groups


def _iterate_backwards(tx: Transaction, start: Message) -> Iterator[list[Message]]:
    """Yield the entries of a log from `start` backwards, each with its continuation rows."""
    last = start.seq + _count_continuations(tx, start)
    rest: list[Message] = []
    while last >= 1:
        first = max(1, last - _ROWS_PER_READ + 1)
        for row in reversed(read_messages(tx, [Span(start.session, first, last)])):
            if is_continuation(row.body.get(FIELD)):
                rest.insert(0, row)
            elif _entry_id(row) is not None:
                yield [row, *rest]
                rest = []
        last = first - 1


def _count_continuations(tx: Transaction, start: Message) -> int:
    """Return how many rows after `start` continue its entry."""
    count = 0
    while True:
        seq = start.seq + count + 1
        rows = read_messages(tx, [Span(start.session, seq, seq)])
        if not rows or not is_continuation(rows[0].body.get(FIELD)):
            return count
        count += 1


def _require_entry_row(tx: Transaction, entry_id: str, *, log: int | None = None) -> Message:
    position = _get_position(tx, entry_id, log=log)
    rows = []
    if position is not None:
        entry_log, seq = position
        rows = read_messages(tx, [Span(entry_log, seq, seq)])
    if not rows:
        raise EntryNotFound(
            f"No stored conversation has the entry {entry_id!r}.",
            hint="List the entries of a conversation with `load_entries`.",
        )
    return rows[0]


def _get_position(
    tx: Transaction, entry_id: str, *, log: int | None = None
) -> tuple[int, int] | None:
    """Return the log and sequence number of an entry, in `log` if it is there; None if absent."""
    positions = marks.find_positions(tx, marks.make_mark(FIELD, entry_id))
    first = positions[0] if positions else None
    return next((position for position in positions if position[0] == log), first)


def _spans(rows: Sequence[Message]) -> list[Span]:
    spans: list[Span] = []
    for row in rows:
        if spans and spans[-1].last == row.seq - 1:
            spans[-1] = Span(row.session, spans[-1].first, row.seq)
        else:
            spans.append(Span(row.session, row.seq, row.seq))
    return spans


def _copy_lines(group: Sequence[Message]) -> list[Entry]:
    entry_id = _entry_id(group[0])
    assert entry_id is not None
    return _lines([row.body for row in group], entry_id)


def _lines(messages: Sequence[dict[str, Any]], entry_id: str) -> list[Entry]:
    mark = marks.make_mark(FIELD, entry_id)
    return [
        append.to_entry(message, None, () if index else (mark,))
        for index, message in enumerate(messages)
    ]


def _entry_id(row: Message) -> str | None:
    payload = row.body.get(FIELD)
    entry_id = payload.get("id") if is_payload(payload) else None
    return entry_id if isinstance(entry_id, str) else None


def _entry(row: Message) -> ConversationEntry:
    payload = row.body[FIELD]
    return ConversationEntry(
        id=payload["id"],
        parent_id=payload["parent"],
        message=_message_adapter.validate_python(from_payload(payload)),
        kind=payload["kind"],
    )


def _dump(message: ModelMessage) -> Any:
    return _message_adapter.dump_python(message, mode="json")


def _messages_of(message: ModelMessage, payload: dict[str, Any]) -> list[dict[str, Any]]:
    messages = _request(message) if isinstance(message, ModelRequest) else [_response(message)]
    return attach_payload(messages or [{"role": "system", "content": ""}], FIELD, payload)


def _request(message: ModelRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            content = content_parts.to_text(part.model_response_str())
            messages.append(content_parts.tool_message(part.tool_call_id, content, part.tool_name))
        elif isinstance(part, UserPromptPart):
            messages.append({"role": "user", "content": _prompt(part)})
        elif isinstance(part, SystemPromptPart):
            messages.append({"role": "system", "content": part.content})
        else:
            messages.append(_sdk_instruction(part))
    return messages


def _sdk_instruction(part: Any) -> dict[str, Any]:
    """Return the message for an instruction from the SDK to the model, such as a retry request.

    It is not a user message: no user wrote it.
    """
    model_response = getattr(part, "model_response", None)
    if not callable(model_response):
        return {
            "role": "system",
            "content": content_parts.placeholder_part({"type": part.part_kind})["text"],
        }
    if getattr(part, "tool_name", None) is not None:
        return content_parts.tool_message(
            part.tool_call_id, content_parts.to_text(model_response()), part.tool_name
        )
    return {"role": "system", "content": content_parts.to_text(model_response())}


def _prompt(part: UserPromptPart) -> content_parts.Content:
    if isinstance(part.content, str):
        return part.content
    return content_parts.join_parts([_prompt_part(item) for item in part.content]) or ""


def _prompt_part(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return content_parts.text_part(item)
    if isinstance(item, ImageUrl):
        return content_parts.image_part(item.url)
    if isinstance(item, BinaryContent) and item.is_image:
        return content_parts.image_part(item.data_uri)
    text = getattr(item, "content", None)
    if isinstance(text, str):
        return content_parts.text_part(text)
    return content_parts.placeholder_part({"type": getattr(item, "kind", None)})


def _response(message: ModelResponse) -> dict[str, Any]:
    parts, calls, thoughts = [], [], []
    for part in message.parts:
        if isinstance(part, TextPart):
            parts.append(content_parts.text_part(part.content))
        elif isinstance(part, ToolCallPart):
            calls.append(
                content_parts.tool_call(part.tool_call_id, part.tool_name, part.args_as_json_str())
            )
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.content)
        else:
            parts.append(content_parts.placeholder_part({"type": part.part_kind}))
    result = content_parts.assistant_message(content_parts.join_parts(parts), calls)
    return {**result, "reasoning_content": "\n".join(thoughts)} if any(thoughts) else result


def _from_other_writer(entry: Message, tool_names: dict[str, str]) -> ModelMessage:
    """Return the SDK message for a message that another writer stored.

    `tool_names` maps the id of each earlier call to its tool; the calls of this message are added.
    """
    row, text = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(row.get("tool_call_id") or "call")
        name = str(row.get("name") or tool_names.get(call_id) or "tool")
        return ModelRequest(parts=[ToolReturnPart(name, text, call_id, timestamp=entry.at)])
    if entry.role == "system":
        return ModelRequest(parts=[SystemPromptPart(text, timestamp=entry.at)])
    if entry.role != "assistant":
        return ModelRequest(parts=[UserPromptPart(text, timestamp=entry.at)])
    parts: list[Any] = [TextPart(text)] if text else []
    calls = row.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            call_id, name = str(call.get("id") or "call"), str(function.get("name") or "tool")
            tool_names[call_id] = name
            arguments = content_parts.to_text(function.get("arguments") or "{}")
            parts.append(ToolCallPart(name, arguments, call_id))
    return ModelResponse(parts=parts, timestamp=entry.at)


def _without_prompt(log: Transcript, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages of a run, without the prompt if the turn has stored it already."""
    newest = log.entries(newest=1)
    first = messages[0] if messages else None
    if not newest or newest[0].role != "user" or not isinstance(first, ModelRequest):
        return list(messages)
    prompts = [part for part in first.parts if isinstance(part, UserPromptPart)]
    prompt = "\n".join(text_of({"content": _prompt(part)}) for part in prompts)
    is_stored = len(prompts) == len(first.parts) and prompt == text_of(newest[0].body)
    return list(messages[1:] if is_stored else messages)


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
