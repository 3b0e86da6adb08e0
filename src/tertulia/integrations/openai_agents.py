"""OpenAI Agents SDK: a session that is stored in a Tertulia store.

    session = TertuliaSession("ana", store)
    await Runner.run(agent, "Will it rain?", session=session)

Each SDK item is stored as one message, with the item itself as its payload. A run is a turn: its
lease is claimed when the runner reads the history, before the model is called, and released when
the answer is stored. `pop_item` and `clear_session` only change the visible history; the log keeps
everything.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from tertulia.aio.turn import TurnControl
from tertulia.core import validate
from tertulia.core.message import COMMAND, INTERNAL, INTERRUPTED, Message, text_of
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove
from tertulia.integrations import content_parts
from tertulia.integrations.missing_extra import missing_extra
from tertulia.integrations.payload import from_payload, is_payload, to_payload
from tertulia.integrations.run_lease import RunLease
from tertulia.integrations.store_access import (
    AnyStore,
    get_current_session,
    unwrap_store,
    write_or_call_off,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.transcript import Transcript

try:
    from agents.items import TResponseInputItem
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
    from agents.run_context import RunContextWrapper
    from agents.usage import RequestUsage
    from agents.usage import Usage as RunUsage
except ImportError as problem:
    raise missing_extra("openai-agents", problem) from problem

PLATFORM: Final = "openai-agents"
FIELD: Final = "openai_agents"

# Rows that the runner did not add and must not receive.
_HIDDEN: Final = (COMMAND, INTERNAL, INTERRUPTED)
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system"}


class TertuliaSession:
    """A conversation of the SDK in a store.

    `session_id` names the conversation, or is the id of an existing session in the store. With
    `source` it is the conversation of that chat. `model` is recorded with the usage, because the
    SDK reports usage without a model name.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: AnyStore,
        session_settings: SessionSettings | None = None,
        *,
        source: Source | None = None,
        model: str | None = None,
        wait: float = 30.0,
    ) -> None:
        validate.text("session_id", session_id)
        self.session_id = session_id
        self.session_settings = session_settings
        self._store, self._executor = unwrap_store(store)
        self._model = model
        self._source = source
        self._wait = wait
        self._is_closed = False
        self._conversation: _Conversation | None = None
        self._run_usage = _RunUsage()

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the items of the conversation, or the newest `limit` of them, oldest first."""
        self._check_open()
        if limit is not None:
            validate.integer("limit", limit, -(2**63))
        item_limit = resolve_session_limit(limit, self.session_settings)
        if wrapper is not None:
            self._run_usage.begin(wrapper)
            await (await self._require_conversation()).lease.claim(wrapper)
        if item_limit is not None and item_limit <= 0:
            return []
        return await self._executor.run(self._read_items, item_limit)

    async def add_items(
        self,
        items: list[TResponseInputItem],
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Store all items or none, with the usage of the model calls that came before them."""
        self._check_open()
        validate.collection("items", items)
        messages = [message_of(item) for item in items]
        if not messages:
            return
        lease = (await self._require_conversation()).lease
        if wrapper is None and (running := self._running_turn(lease)) is not None:
            # Called directly while a run of this session is in progress, for example by a tool.
            await running.extend(messages)
            return
        turn = await (lease.begin() if wrapper is None else lease.claim(wrapper))
        is_answer = _is_answer(items[-1])
        try:
            usages = [self._with_model(usage) for usage in self._run_usage.unrecorded(wrapper)]
            for usage in usages[:-1]:
                await turn.add_usage(usage)
            await turn.extend(messages, usage=usages[-1] if usages else None, is_last=is_answer)
            self._run_usage.mark_recorded(wrapper)
        finally:
            if wrapper is None or is_answer:
                await lease.release(turn)

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Remove the newest item from the visible history and return it; None if there is none.

        If the task is cancelled while this waits for the database, nothing is removed.
        """
        self._check_open()
        return await write_or_call_off(self._executor, self._pop, self._store.context)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Empty the visible history. `store.transcript(…).restore(n)` brings it back.

        If the task is cancelled while this waits for the database, nothing is removed.
        """
        self._check_open()
        await write_or_call_off(self._executor, self._clear, self._store.context)

    def close(self) -> Closed:
        """Release the leases that this session holds; the store stays open. May be awaited."""
        self._is_closed = True
        for owner in self._run_usage.owners():
            if self._conversation is not None:
                self._conversation.lease.release_owner(owner)
        return Closed()

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalMove(
                f"The TertuliaSession {self.session_id!r} was closed.",
                hint="Create another one: TertuliaSession(session_id, store).",
            )

    async def _require_conversation(self) -> _Conversation:
        if self._conversation is not None:
            return self._conversation
        return await self._executor.run(self._resolve_conversation)

    def _resolve_conversation(self) -> _Conversation:
        """Return the conversation; the id may be that of an existing session in the store."""
        if self._conversation is None:
            session = None if self._source else self._store.sessions.get(self.session_id)
            session_id = None if session is None else session.id
            source = self._source or (
                session.origin if session else Source(PLATFORM, self.session_id)
            )
            lease = RunLease(
                self._store, self._executor, source, session_id=session_id, wait=self._wait
            )
            self._conversation = _Conversation(source, session_id, lease)
        return self._conversation

    def _running_turn(self, lease: RunLease) -> TurnControl | None:
        turns = [lease.get_turn(owner) for owner in self._run_usage.owners()]
        return next((turn for turn in turns if turn is not None), None)

    def _get_session_id(self) -> str | None:
        """Return the id of the session as it is now, or None if there is none."""
        conversation = self._resolve_conversation()
        if conversation.session_id is not None:
            return self._store.sessions.require(conversation.session_id).id
        session = get_current_session(self._store, conversation.source)
        return None if session is None else session.id

    def _clear(self, context: StoreContext) -> None:
        session_id = self._get_session_id()
        if session_id is not None:
            Transcript(context, session_id).clear()

    def _read_items(self, limit: int | None) -> list[TResponseInputItem]:
        session_id = self._get_session_id()
        if session_id is None:
            return []
        transcript = self._store.transcript(session_id)
        count = limit
        while True:
            entries = transcript.entries(newest=count)
            items = [item for entry in entries for item in items_of(entry)]
            # Some rows are not items, so fewer items than rows may come back: read more rows.
            if limit is None or count is None or len(items) >= limit or len(entries) < count:
                return items if limit is None else items[-limit:]
            count *= 2

    def _pop(self, context: StoreContext) -> TResponseInputItem | None:
        session_id = self._get_session_id()
        if session_id is None:
            return None
        transcript = Transcript(context, session_id)
        while (message := transcript.pop(skip=_HIDDEN)) is not None:
            items = items_of(message)
            if len(items) > 1:
                # A message of another writer may hold several items: store the others again.
                transcript.extend([message_of(item) for item in items[:-1]])
            if items:
                return items[-1]
            # Another writer's message without text and calls holds no item: take the one before.
        return None

    def _with_model(self, usage: Usage) -> Usage:
        return usage if self._model is None else replace(usage, model=self._model)


class _Conversation(NamedTuple):
    """The conversation of a `TertuliaSession`; `session_id` is set if one session is meant."""

    source: Source
    session_id: str | None
    lease: RunLease


class Closed:
    """The result of `close`, which has already finished; callers may await it or not."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class _Counts(NamedTuple):
    """The usage counts of a run at one moment."""

    requests: int
    input: int
    output: int

    @classmethod
    def of(cls, used: RunUsage) -> Self:
        return cls(len(used.request_usage_entries), used.input_tokens, used.output_tokens)


class _RunUsage:
    """The recorded part of each run's usage. The SDK's counts grow while a run goes on."""

    def __init__(self) -> None:
        self._recorded: list[tuple[weakref.ref[RunContextWrapper[Any]], _Counts]] = []

    def owners(self) -> list[RunContextWrapper[Any]]:
        """Return the contexts of runs that may still be in progress."""
        return [owner for ref, _ in self._recorded if (owner := ref()) is not None]

    def begin(self, wrapper: RunContextWrapper[Any]) -> _Counts:
        """Return the recorded counts of a context.

        At the first call, the usage it already has belongs to no run of this session.
        """
        for ref, counts in self._recorded:
            if ref() is wrapper:
                return counts
        self.mark_recorded(wrapper)
        return _Counts.of(wrapper.usage)

    def unrecorded(self, wrapper: RunContextWrapper[Any] | None) -> list[Usage]:
        """Return the usage since the last record, one per model call if the SDK separates them."""
        if wrapper is None:
            return []
        before, used = self.begin(wrapper), wrapper.usage
        calls = used.request_usage_entries[before.requests :]
        if calls:
            return [_usage(request) for request in calls]
        more = Usage(
            max(0, used.input_tokens - before.input), max(0, used.output_tokens - before.output)
        )
        return [more] if more.total else []

    def mark_recorded(self, wrapper: RunContextWrapper[Any] | None) -> None:
        """Note that all usage of a context up to now is stored."""
        if wrapper is not None:
            others = [
                (ref, counts)
                for ref, counts in self._recorded
                if ref() is not None and ref() is not wrapper
            ]
            self._recorded = [*others, (weakref.ref(wrapper), _Counts.of(wrapper.usage))]


def message_of(item: Any) -> dict[str, Any]:
    """Return our message for an SDK item, with the item as its payload.

    Raises `IllegalMove` if the item is not a dict.
    """
    if not isinstance(item, Mapping):
        raise IllegalMove(
            f"An item must be a dict, not {type(item).__name__}.",
            hint='Pass for example {"role": "user", "content": "hello"}.',
        )
    return {**_to_message(item), FIELD: to_payload(item)}


def items_of(entry: Message) -> list[TResponseInputItem]:
    """Return the items of a message: its own, or those made from another writer's message."""
    payload = entry.body.get(FIELD)
    if is_payload(payload):
        return [from_payload(payload)]
    if entry.kind in _HIDDEN:
        return []
    return _items_from_message(entry)


def _to_message(item: Mapping[str, Any]) -> dict[str, Any]:
    kind, role = item.get("type"), item.get("role")
    if isinstance(role, str) and kind in (None, "message"):
        return {"role": _ROLES.get(role, "system"), "content": _content(item.get("content"))}
    if kind == "function_call":
        call = content_parts.tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        return content_parts.assistant_message(None, [call])
    if isinstance(kind, str) and kind.endswith("_output") and "call_id" in item:
        return content_parts.tool_message(item["call_id"], _content(item.get("output")))
    if kind == "reasoning":
        summary = item.get("summary")
        thought = text_of({"content": summary if isinstance(summary, list) else None})
        return {**content_parts.assistant_message(None), "reasoning_content": thought}
    return content_parts.assistant_message(content_parts.placeholder_part(item)["text"])


def _content(content: Any) -> content_parts.Content:
    if not isinstance(content, list):
        return None if content is None else content_parts.to_text(content)
    return content_parts.join_parts([_part(part) for part in content])


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Mapping):
        for name in ("text", "refusal"):
            if isinstance(part.get(name), str):
                return content_parts.text_part(part[name])
        if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
            return content_parts.image_part(part["image_url"])
    return content_parts.placeholder_part(part)


def _items_from_message(entry: Message) -> list[Any]:
    """Return the items for a message that another writer stored."""
    body, text = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(body.get("tool_call_id") or "call")
        return [{"type": "function_call_output", "call_id": call_id, "output": text}]
    if entry.role != "assistant":
        return [{"role": "system" if entry.role == "system" else "user", "content": text}]
    items: list[Any] = [{"role": "assistant", "content": text}] if text else []
    calls = body.get("tool_calls")
    return [*items, *map(_call, calls if isinstance(calls, list) else [])]


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    fields = function if isinstance(function, Mapping) else {}
    return {
        "type": "function_call",
        "call_id": str(call.get("id") or "call") if isinstance(call, Mapping) else "call",
        "name": str(fields.get("name") or ""),
        "arguments": content_parts.to_text(fields.get("arguments") or "{}"),
    }


def _is_answer(item: Any) -> bool:
    """Return whether a run ends with this item: assistant text, after all calls and results."""
    kind = item.get("type")
    return item.get("role") == "assistant" and kind in (None, "message")


def _usage(request: RequestUsage) -> Usage:
    details = request.input_tokens_details
    read = _count(details, "cached_tokens")
    write = _count(details, "cache_write_tokens")
    return Usage(
        max(0, request.input_tokens - read - write),
        request.output_tokens,
        read,
        write,
        _count(request.output_tokens_details, "reasoning_tokens"),
        last_prompt=request.input_tokens,
    )


def _count(details: object, name: str) -> int:
    count = getattr(details, name, 0)
    return count if isinstance(count, int) and count > 0 else 0
