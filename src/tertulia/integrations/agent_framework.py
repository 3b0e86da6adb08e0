"""Microsoft Agent Framework: a history provider that keeps its messages in a Tertulia store.

    agent = Agent(client, context_providers=[TertuliaHistoryProvider(store)])
    await agent.run("Will it rain?", session=agent.create_session(session_id="ana"))

A run is a turn: its lease is taken before the model is called, what the person said is stored then
too, and the answer gives it back. Each message of the framework stands beside ours, in the form
that the framework's own `to_dict` gives it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from tertulia.aio.turn import TurnControl
from tertulia.core.message import COMMAND, INTERNAL, INTERRUPTED, text_of
from tertulia.core.message import Message as Entry
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.integrations import content_parts
from tertulia.integrations.missing_extra import missing
from tertulia.integrations.payload import follows, given_back, grouped, holds, keep
from tertulia.integrations.run_lease import RunLease
from tertulia.integrations.store_access import (
    AnyStore,
    current,
    opened,
)

try:
    from agent_framework import (
        AgentSession,
        Content,
        HistoryProvider,
        Message,
        SessionContext,
        SupportsAgentRun,
    )
except ImportError as problem:
    raise missing("agent-framework", problem) from problem

PLATFORM: Final = "agent-framework"
FIELD: Final = "agent_framework"

_HIDDEN: Final = (COMMAND, INTERNAL, INTERRUPTED)
_ROLES: Final = ("user", "assistant", "system", "tool")


class TertuliaHistoryProvider(HistoryProvider):
    """Keeps the history of every session of an agent in a store.

    The flags are those of the framework's own providers. A session without an id is "default".
    `model` is noted with the usage where the framework hands it over without it.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "tertulia"

    def __init__(
        self,
        store: AnyStore,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
        model: str | None = None,
        wait: float = 30.0,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._store, self._executor = opened(store)
        self.skip_excluded = skip_excluded
        self._model = model
        self._wait = wait

    def source(self, session_id: str | None) -> Source:
        """The conversation that a session of the framework is kept in."""
        return Source(PLATFORM, session_id or "default")

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The stored messages of a session, oldest first."""
        found = await self._executor.run(self._messages, session_id, None)
        if not self.skip_excluded:
            return found
        return [one for one in found if not one.additional_properties.get("_excluded")]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the messages that are new. What was stored before may be sent along again."""
        run = _run.get()
        if run is not None and run.provider is self and run.session_id == session_id:
            await self._add(run, messages)
        elif messages:
            floor = self._floor(session_id)
            turn = await floor.enter()
            try:
                await self._add(_Run(self, session_id, turn, {}), messages)
            finally:
                await floor.leave(turn)

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Take the lease, load the history, store what the person said."""
        floor = self._floor(context.session_id)
        turn = await floor.take(_owner(agent, session, context))
        await super().before_run(agent=agent, session=session, context=context, state=state)
        # Messages of other providers go before the input; then all is stored after the run.
        if self.store_inputs and not self.store_context_messages:
            run = _Run(self, context.session_id, turn, _stored.setdefault(turn, {}))
            await self._add(run, context.input_messages, is_answer=False)

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what came out of the run, with what it used, and give the lease back."""
        floor = self._floor(context.session_id)
        owner = _owner(agent, session, context)
        turn = await floor.take(owner)
        stored = _stored.setdefault(turn, {})
        run = _Run(self, context.session_id, turn, stored, self._usage(context))
        token = _run.set(run)
        goes_on = False
        try:
            await super().after_run(agent=agent, session=session, context=context, state=state)
            if run.usage is not None:
                await turn.add_usage(run.usage)
            goes_on = owner is session and _waits_for_results(context)
        finally:
            _run.reset(token)
            if not goes_on:
                await floor.leave(turn)

    def _floor(self, session_id: str | None) -> RunLease:
        return RunLease(self._store, self._executor, self.source(session_id), wait=self._wait)

    async def _add(
        self, run: _Run, messages: Sequence[Message], *, is_answer: bool | None = None
    ) -> None:
        left = [message for message in messages if id(message) not in run.stored]
        before = await self._executor.run(self._messages, run.session_id, len(left) + 1)
        fresh = new_of(before, left)
        run.stored.update((id(message), message) for message in messages)
        if not fresh:
            return
        written = [one for message in fresh for one in messages_of(message)]
        is_last = _is_answer(fresh[-1]) if is_answer is None else is_answer
        await run.turn.extend(written, usage=run.usage, is_last=is_last)
        run.usage = None

    def _messages(self, session_id: str | None, newest: int | None) -> list[Message]:
        """The newest messages of the framework, or all of them."""
        session = current(self._store, self.source(session_id))
        if session is None:
            return []
        transcript = self._store.transcript(session.id)
        count = newest
        while True:
            entries = transcript.entries(newest=count)
            found = [one for entry in entries if (one := message_from(entry)) is not None]
            # One message may be several of ours: then a longer look is needed.
            if newest is None or count is None or len(found) >= newest or len(entries) < count:
                return found if newest is None else found[-newest:]
            count *= 2

    def _usage(self, context: SessionContext) -> Usage | None:
        used = None if context.response is None else context.response.usage_details
        if not used:
            return None
        read = _count(used, "cache_read_input_token_count")
        write = _count(used, "cache_creation_input_token_count")
        whole = _count(used, "input_token_count")
        # Some services count what came from a cache as input, others apart from it.
        plain = whole - read - write if whole >= read + write else whole
        return Usage(
            plain,
            _count(used, "output_token_count"),
            read,
            write,
            _count(used, "reasoning_output_token_count"),
            model=self._model,
        )


@dataclass
class _Run:
    """A run that is under way: its turn, what it has stored, and what it used."""

    provider: TertuliaHistoryProvider
    session_id: str | None
    turn: TurnControl
    # By identity; the messages are held, so that no other can come to the same place.
    stored: dict[int, Message]
    usage: Usage | None = None


# What the turns that are under way have stored.
_stored: WeakKeyDictionary[TurnControl, dict[int, Message]] = WeakKeyDictionary()
_run: ContextVar[_Run | None] = ContextVar("tertulia_agent_framework_run", default=None)


def new_of(before: Sequence[Message], given: Sequence[Message]) -> list[Message]:
    """What of the given messages is new, where the given ones may begin with stored ones.

    `before` are the newest stored ones, at least one more than are given if there are so many. The
    given ones hold all that is stored, or go on from the end of it. One message of a person alone,
    without an id, is new: people repeat themselves.
    """
    old, new = [_identity(one) for one in before], [_identity(one) for one in given]
    if old and len(old) <= len(new):
        for start in range(len(new) - len(old) + 1):
            is_one = start == 0 and len(old) == 1 and _may_be_said_again(before[-1])
            if new[start : start + len(old)] == old and not is_one:
                return list(given[start + len(old) :])
    for count in range(min(len(old), len(new)), 0, -1):
        if old[-count:] == new[:count] and not (count == 1 and _may_be_said_again(before[-1])):
            return list(given[count:])
    return list(given)


def messages_of(message: Message) -> list[dict[str, Any]]:
    """A message of the framework as messages of ours, with itself beside them."""
    for content in message.contents:
        if content.type == "function_call":
            keep(content.arguments)  # refuses what `to_dict` would leave out without a word
    return grouped(_shown(message), FIELD, keep(message.to_dict()))


def message_from(entry: Entry) -> Message | None:
    """The message of the framework that one of ours stands for; None where it stands for none."""
    kept = entry.body.get(FIELD)
    if holds(kept):
        return Message.from_dict(given_back(kept))
    if follows(kept) or entry.kind in _HIDDEN:
        return None
    return _foreign(entry)


def _shown(message: Message) -> list[dict[str, Any]]:
    results = [_result(one) for one in message.contents if one.type == "function_result"]
    calls = [_call(one) for one in message.contents if one.type == "function_call"]
    parts = [
        part
        for one in message.contents
        if one.type not in ("function_result", "function_call", "text_reasoning", "usage")
        for part in [_part(one)]
    ]
    if results:
        said = [{"role": "user", "content": content_parts.joined(parts)}] if parts else []
        return [*results, *said]
    if message.role == "assistant" or calls:
        return [_assistant(message, content_parts.joined(parts), calls)]
    role = message.role if message.role in _ROLES else "system"
    return [{"role": role, "content": content_parts.joined(parts) or ""}]


def _assistant(
    message: Message, content: content_parts.Content, calls: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    shown = content_parts.assistant(content, calls)
    thought = [one.text for one in message.contents if one.type == "text_reasoning" and one.text]
    return {**shown, "reasoning_content": "\n".join(thought)} if thought else shown


def _part(content: Content) -> dict[str, Any]:
    if content.type == "text" and isinstance(content.text, str):
        return content_parts.text(content.text)
    is_image = (content.media_type or "").startswith("image/")
    if content.type in ("data", "uri") and is_image and isinstance(content.uri, str):
        return content_parts.image(content.uri)
    return content_parts.unknown({"type": content.type})


def _call(content: Content) -> dict[str, Any]:
    return content_parts.call(content.call_id, content.name, content.arguments)


def _result(content: Content) -> dict[str, Any]:
    return content_parts.result(content.call_id, content_parts.written(content.result))


def _foreign(entry: Entry) -> Message:
    body, said = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(body.get("tool_call_id") or "call")
        return Message("tool", [Content.from_function_result(call_id, result=said)])
    contents = [Content.from_text(said)] if said else []
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            name, given = str(function.get("name") or ""), function.get("arguments")
            arguments = content_parts.written(given or "{}")
            call_id = str(call.get("id") or "call")
            contents.append(Content.from_function_call(call_id, name, arguments=arguments))
    role = entry.role if entry.role in _ROLES else "user"
    return Message(role, contents)


def _identity(message: Message) -> tuple[str, ...]:
    if message.message_id is not None:
        return ("id", message.message_id)
    contents = [content.to_dict() for content in message.contents]
    return ("content", message.role, json.dumps(contents, sort_keys=True, default=str))


def _may_be_said_again(message: Message) -> bool:
    return message.role == "user" and message.message_id is None


def _is_answer(message: Message) -> bool:
    """Whether a run ends with this message: words of the assistant that call nothing."""
    return message.role == "assistant" and not any(
        content.type == "function_call" for content in message.contents
    )


def _waits_for_results(context: SessionContext) -> bool:
    messages = [] if context.response is None else context.response.messages
    return bool(messages) and not _is_answer(messages[-1])


def _owner(agent: SupportsAgentRun, session: AgentSession, context: SessionContext) -> object:
    """What lives as long as a run. With a context for each model call, that is the session."""
    is_by_call = getattr(agent, "require_per_service_call_history_persistence", False)
    return session if is_by_call else context


def _count(used: Mapping[str, Any], name: str) -> int:
    found = used.get(name)
    return found if isinstance(found, int) and found > 0 else 0
