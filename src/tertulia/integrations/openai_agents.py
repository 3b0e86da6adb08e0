"""The OpenAI Agents SDK: a session that is kept in a Tertulia store.

    session = TertuliaSession("ana", store)
    await Runner.run(agent, "Will it rain?", session=session)

Each item of the SDK is one message, with the item itself beside it. A run is a turn: its lease is
taken when the runner reads the history, before the model is called, and given back with the answer.
`pop_item` and `clear_session` move what is seen; the log keeps everything.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from tertulia.aio.turn import TurnControl
from tertulia.core.message import COMMAND, INTERNAL, INTERRUPTED, Message, text_of
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove
from tertulia.integrations import content_parts
from tertulia.integrations.missing_extra import missing
from tertulia.integrations.payload import given_back, holds, keep
from tertulia.integrations.run_lease import RunLease
from tertulia.integrations.store_access import (
    AnyStore,
    current,
    opened,
)

try:
    from agents.items import TResponseInputItem
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
    from agents.run_context import RunContextWrapper
    from agents.usage import RequestUsage
    from agents.usage import Usage as RunUsage
except ImportError as problem:
    raise missing("openai-agents", problem) from problem

PLATFORM: Final = "openai-agents"
FIELD: Final = "openai_agents"

# Rows that the runner never gave and is never shown.
_HIDDEN: Final = (COMMAND, INTERNAL, INTERRUPTED)
_SPEAKERS: Final = {"user": "user", "assistant": "assistant", "system": "system"}


class TertuliaSession:
    """A conversation of the SDK in a store.

    `session_id` names the conversation, or is the id of a session that the store has. With `source`
    it is the conversation of that chat. `model` is noted with the usage, which the SDK hands over
    without it.
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
        self.session_id = session_id
        self.session_settings = session_settings
        self._store, self._executor = opened(store)
        self._model = model
        self._source = source
        self._wait = wait
        self._is_closed = False
        self._found: _Found | None = None
        self._counted = _Counted()

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """The items of the conversation, or the newest `limit` of them, oldest first."""
        self._check_open()
        wanted = resolve_session_limit(limit, self.session_settings)
        if wrapper is not None:
            self._counted.begin(wrapper)
            await (await self._place()).floor.take(wrapper)
        if wanted is not None and wanted <= 0:
            return []
        return await self._executor.run(self._items, wanted)

    async def add_items(
        self,
        items: list[TResponseInputItem],
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Store items, all of them or none, with what the model calls before them have used."""
        self._check_open()
        messages = [message_of(item) for item in items]
        if not messages:
            return
        floor = (await self._place()).floor
        if wrapper is None and (running := self._running(floor)) is not None:
            # Given by hand while a run of this session is under way, as a tool may do.
            await running.extend(messages)
            return
        turn = await (floor.enter() if wrapper is None else floor.take(wrapper))
        is_answer = _is_answer(items[-1])
        try:
            due = [self._named(usage) for usage in self._counted.due(wrapper)]
            for usage in due[:-1]:
                await turn.add_usage(usage)
            await turn.extend(messages, usage=due[-1] if due else None, is_last=is_answer)
            self._counted.settle(wrapper)
        finally:
            if wrapper is None or is_answer:
                await floor.leave(turn)

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Take the newest item out of what is seen, and give it; None if there is none."""
        self._check_open()
        return await self._executor.run(self._pop)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Show nothing of what there was. `store.transcript(…).restore(n)` brings it back."""
        self._check_open()
        await self._executor.run(self._clear)

    def close(self) -> Closed:
        """Give back what this session holds; the store stays open. May be awaited."""
        self._is_closed = True
        for owner in self._counted.owners():
            if self._found is not None:
                self._found.floor.drop(owner)
        return Closed()

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalMove(
                f"The session {self.session_id!r} of the SDK was closed.",
                hint="Make another: TertuliaSession(session_id, store).",
            )

    async def _place(self) -> _Found:
        return await self._executor.run(self._look) if self._found is None else self._found

    def _look(self) -> _Found:
        """Which conversation this is; the id may be that of a session which the store has."""
        if self._found is None:
            named = None if self._source else self._store.sessions.get(self.session_id)
            session_id = None if named is None else named.id
            source = self._source or (named.origin if named else Source(PLATFORM, self.session_id))
            floor = RunLease(
                self._store, self._executor, source, session_id=session_id, wait=self._wait
            )
            self._found = _Found(source, session_id, floor)
        return self._found

    def _running(self, floor: RunLease) -> TurnControl | None:
        turns = [floor.held_by(owner) for owner in self._counted.owners()]
        return next((turn for turn in turns if turn is not None), None)

    def _find(self) -> str | None:
        """The session as it stands, if there is one."""
        found = self._look()
        if found.session_id is not None:
            return self._store.sessions.require(found.session_id).id
        session = current(self._store, found.source)
        return None if session is None else session.id

    def _clear(self) -> None:
        found = self._find()
        if found is not None:
            self._store.transcript(found).clear()

    def _items(self, limit: int | None) -> list[TResponseInputItem]:
        found = self._find()
        if found is None:
            return []
        transcript = self._store.transcript(found)
        count = limit
        while True:
            entries = transcript.entries(newest=count)
            items = [item for entry in entries for item in items_of(entry)]
            # Rows that are no items may stand between them: then a longer look is needed.
            if limit is None or count is None or len(items) >= limit or len(entries) < count:
                return items if limit is None else items[-limit:]
            count *= 2

    def _pop(self) -> TResponseInputItem | None:
        found = self._find()
        if found is None:
            return None
        transcript = self._store.transcript(found)
        taken = transcript.pop(skip=_HIDDEN)
        if taken is None:
            return None
        *rest, item = items_of(taken)
        if rest:
            # A message of another writer may hold several items.
            transcript.extend([message_of(one) for one in rest])
        return item

    def _named(self, usage: Usage) -> Usage:
        return usage if self._model is None else replace(usage, model=self._model)


class _Found(NamedTuple):
    """The conversation of a session: its chat, the one session that is meant, who may speak."""

    source: Source
    session_id: str | None
    floor: RunLease


class Closed:
    """Done already; sessions of the SDK are closed with and without `await`."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class _Counts(NamedTuple):
    """How far the counts of a run had come."""

    requests: int
    input: int
    output: int

    @classmethod
    def of(cls, used: RunUsage) -> Self:
        return cls(len(used.request_usage_entries), used.input_tokens, used.output_tokens)


class _Counted:
    """How much of each run's usage is in the ledger. The SDK's counts grow as a run goes on."""

    def __init__(self) -> None:
        self._seen: list[tuple[weakref.ref[RunContextWrapper[Any]], _Counts]] = []

    def owners(self) -> list[RunContextWrapper[Any]]:
        """The contexts of runs that may still be under way."""
        return [owner for ref, _ in self._seen if (owner := ref()) is not None]

    def begin(self, wrapper: RunContextWrapper[Any]) -> _Counts:
        """What a context had used when it came for the first time is not of this session."""
        for ref, counts in self._seen:
            if ref() is wrapper:
                return counts
        self.settle(wrapper)
        return _Counts.of(wrapper.usage)

    def due(self, wrapper: RunContextWrapper[Any] | None) -> list[Usage]:
        """The model calls since the last look, each by itself where the SDK tells them apart."""
        if wrapper is None:
            return []
        before, used = self.begin(wrapper), wrapper.usage
        calls = used.request_usage_entries[before.requests :]
        if calls:
            return [_usage(one) for one in calls]
        more = Usage(
            max(0, used.input_tokens - before.input), max(0, used.output_tokens - before.output)
        )
        return [more] if more.total else []

    def settle(self, wrapper: RunContextWrapper[Any] | None) -> None:
        """What was due is stored."""
        if wrapper is not None:
            others = [one for one in self._seen if one[0]() is not None and one[0]() is not wrapper]
            self._seen = [*others, (weakref.ref(wrapper), _Counts.of(wrapper.usage))]


def message_of(item: Any) -> dict[str, Any]:
    """An item as a message of ours, with the item itself beside it."""
    if not isinstance(item, Mapping):
        raise IllegalMove(
            f"An item is a dict, not {type(item).__name__}.",
            hint='Give for example {"role": "user", "content": "hello"}.',
        )
    return {**_shown(item), FIELD: keep(item)}


def items_of(entry: Message) -> list[TResponseInputItem]:
    """The items a message stands for: its own, or what another writer's message would be."""
    kept = entry.body.get(FIELD)
    if holds(kept):
        return [given_back(kept)]
    if entry.kind in _HIDDEN:
        return []
    return _foreign(entry)


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    kind, role = item.get("type"), item.get("role")
    if isinstance(role, str) and kind in (None, "message"):
        return {"role": _SPEAKERS.get(role, "system"), "content": _content(item.get("content"))}
    if kind == "function_call":
        called = content_parts.call(item.get("call_id"), item.get("name"), item.get("arguments"))
        return content_parts.assistant(None, [called])
    if isinstance(kind, str) and kind.endswith("_output") and "call_id" in item:
        return content_parts.result(item["call_id"], _content(item.get("output")))
    if kind == "reasoning":
        summary = item.get("summary")
        thought = text_of({"content": summary if isinstance(summary, list) else None})
        return {**content_parts.assistant(None), "reasoning_content": thought}
    return content_parts.assistant(content_parts.unknown(item)["text"])


def _content(content: Any) -> content_parts.Content:
    if not isinstance(content, list):
        return None if content is None else content_parts.written(content)
    return content_parts.joined([_part(part) for part in content])


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Mapping):
        for name in ("text", "refusal"):
            if isinstance(part.get(name), str):
                return content_parts.text(part[name])
        if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
            return content_parts.image(part["image_url"])
    return content_parts.unknown(part)


def _foreign(entry: Message) -> list[Any]:
    body, said = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(body.get("tool_call_id") or "call")
        return [{"type": "function_call_output", "call_id": call_id, "output": said}]
    if entry.role != "assistant":
        return [{"role": "system" if entry.role == "system" else "user", "content": said}]
    items: list[Any] = [{"role": "assistant", "content": said}] if said else []
    calls = body.get("tool_calls")
    return items + [_call(call) for call in calls if isinstance(calls, list)] if calls else items


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    named = function if isinstance(function, Mapping) else {}
    return {
        "type": "function_call",
        "call_id": str(call.get("id") or "call") if isinstance(call, Mapping) else "call",
        "name": str(named.get("name") or ""),
        "arguments": content_parts.written(named.get("arguments") or "{}"),
    }


def _is_answer(item: Any) -> bool:
    """Whether a run ends with this item: words of the assistant, after all calls and results."""
    kind = item.get("type")
    return item.get("role") == "assistant" and kind in (None, "message")


def _usage(one: RequestUsage) -> Usage:
    given = one.input_tokens_details
    read = _count(given, "cached_tokens")
    write = _count(given, "cache_write_tokens")
    return Usage(
        max(0, one.input_tokens - read - write),
        one.output_tokens,
        read,
        write,
        _count(one.output_tokens_details, "reasoning_tokens"),
        last_prompt=one.input_tokens,
    )


def _count(details: object, name: str) -> int:
    found = getattr(details, name, 0)
    return found if isinstance(found, int) and found > 0 else 0
