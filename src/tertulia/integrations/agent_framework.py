"""Microsoft Agent Framework: a history provider that keeps its messages in a Tertulia store.

    agent = Agent(client, context_providers=[TertuliaHistoryProvider(store)])
    await agent.run("Will it rain?", session=agent.create_session(session_id="ana"))

A run is a turn: its lease is claimed and the user message is stored before the model is called; the
lease is released when the answer is stored. Each message of the framework is stored as the payload
of ours, in the form that the framework's own `to_dict` returns.
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
from tertulia.integrations.missing_extra import missing_extra
from tertulia.integrations.payload import (
    attach_payload,
    from_payload,
    is_continuation,
    is_payload,
    to_payload,
)
from tertulia.integrations.run_lease import RunLease
from tertulia.integrations.store_access import AnyStore, get_current_session, unwrap_store

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
    raise missing_extra("agent-framework", problem) from problem

PLATFORM: Final = "agent-framework"
FIELD: Final = "agent_framework"

_HIDDEN: Final = (COMMAND, INTERNAL, INTERRUPTED)
_ROLES: Final = ("user", "assistant", "system", "tool")


class TertuliaHistoryProvider(HistoryProvider):
    """A history provider that stores the messages of every session of an agent.

    The flags are those of the framework's own providers. A session without an id is "default".
    `model` is recorded with the usage, because the framework reports usage without a model name.
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
        self._store, self._executor = unwrap_store(store)
        self.skip_excluded = skip_excluded
        self._model = model
        self._wait = wait

    def source(self, session_id: str | None) -> Source:
        """Return the source of the conversation that stores a session of the framework."""
        return Source(PLATFORM, session_id or "default")

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the stored messages of a session, oldest first."""
        messages = await self._executor.run(self._read_messages, session_id, None)
        if not self.skip_excluded:
            return messages
        return [
            message for message in messages if not message.additional_properties.get("_excluded")
        ]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the new messages. The list may begin with messages that are stored already."""
        run = _run.get()
        if run is not None and run.provider is self and run.session_id == session_id:
            await self._add(run, messages)
        elif messages:
            lease = self._lease(session_id)
            turn = await lease.begin()
            try:
                await self._add(_Run(self, session_id, turn, {}), messages)
            finally:
                await lease.release(turn)

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Claim the lease, load the history, store the user message."""
        lease = self._lease(context.session_id)
        turn = await lease.claim(_owner(agent, session, context))
        await super().before_run(agent=agent, session=session, context=context, state=state)
        # Context messages of other providers come before the input, so with them everything is
        # stored after the run.
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
        """Store the output of the run with its usage, and release the lease."""
        lease = self._lease(context.session_id)
        owner = _owner(agent, session, context)
        turn = await lease.claim(owner)
        stored = _stored.setdefault(turn, {})
        run = _Run(self, context.session_id, turn, stored, self._usage(context))
        token = _run.set(run)
        is_unfinished = False
        try:
            await super().after_run(agent=agent, session=session, context=context, state=state)
            if run.usage is not None:
                await turn.add_usage(run.usage)
            is_unfinished = owner is session and _waits_for_results(context)
        finally:
            _run.reset(token)
            if not is_unfinished:
                await lease.release(turn)

    def _lease(self, session_id: str | None) -> RunLease:
        return RunLease(self._store, self._executor, self.source(session_id), wait=self._wait)

    async def _add(
        self, run: _Run, messages: Sequence[Message], *, is_answer: bool | None = None
    ) -> None:
        candidates = [message for message in messages if id(message) not in run.stored]
        stored = await self._executor.run(self._read_messages, run.session_id, len(candidates) + 1)
        new_messages = find_new_messages(stored, candidates)
        run.stored.update((id(message), message) for message in messages)
        if not new_messages:
            return
        store_messages = [
            store_message
            for message in new_messages
            for store_message in to_store_messages(message)
        ]
        is_last = _is_answer(new_messages[-1]) if is_answer is None else is_answer
        await run.turn.extend(store_messages, usage=run.usage, is_last=is_last)
        run.usage = None

    def _read_messages(self, session_id: str | None, newest: int | None) -> list[Message]:
        """Return the newest messages of the framework, or all of them with None."""
        session = get_current_session(self._store, self.source(session_id))
        if session is None:
            return []
        transcript = self._store.transcript(session.id)
        count = newest
        while True:
            entries = transcript.entries(newest=count)
            messages = [
                message for entry in entries if (message := from_store_message(entry)) is not None
            ]
            # One message may be stored as several of ours: read more if there are too few.
            if newest is None or count is None or len(messages) >= newest or len(entries) < count:
                return messages if newest is None else messages[-newest:]
            count *= 2

    def _usage(self, context: SessionContext) -> Usage | None:
        used = None if context.response is None else context.response.usage_details
        if not used:
            return None
        read = _count(used, "cache_read_input_token_count")
        write = _count(used, "cache_creation_input_token_count")
        total = _count(used, "input_token_count")
        # Some services include cached tokens in the input count, others count them separately.
        uncached = total - read - write if total >= read + write else total
        return Usage(
            uncached,
            _count(used, "output_token_count"),
            read,
            write,
            _count(used, "reasoning_output_token_count"),
            model=self._model,
        )


@dataclass
class _Run:
    """A run in progress: its turn, the messages it has stored, and its usage."""

    provider: TertuliaHistoryProvider
    session_id: str | None
    turn: TurnControl
    # By `id()`; the references keep the messages alive, so that no id can be reused.
    stored: dict[int, Message]
    usage: Usage | None = None


# The messages stored by the turns in progress.
_stored: WeakKeyDictionary[TurnControl, dict[int, Message]] = WeakKeyDictionary()
_run: ContextVar[_Run | None] = ContextVar("tertulia_agent_framework_run", default=None)


def find_new_messages(stored: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are new; the list may begin with messages that are stored already.

    `stored` are the newest stored messages, at least one more than `messages` if there are so many.
    `messages` contains all stored messages, or continues from the end of them. A single user
    message without an id counts as new: users repeat themselves.
    """
    old = [_identity(message) for message in stored]
    new = [_identity(message) for message in messages]
    if old and len(old) <= len(new):
        for start in range(len(new) - len(old) + 1):
            is_repeat = start == 0 and len(old) == 1 and _may_be_repeated(stored[-1])
            if new[start : start + len(old)] == old and not is_repeat:
                return list(messages[start + len(old) :])
    for count in range(min(len(old), len(new)), 0, -1):
        if old[-count:] == new[:count] and not (count == 1 and _may_be_repeated(stored[-1])):
            return list(messages[count:])
    return list(messages)


def to_store_messages(message: Message) -> list[dict[str, Any]]:
    """Return our messages for a message of the framework, with it as the payload.

    Raises `IllegalMove` if it cannot be stored exactly.
    """
    for content in message.contents:
        if content.type == "function_call":
            # Raises for values that `to_dict` would leave out without a word.
            to_payload(content.arguments)
    return attach_payload(_convert(message), FIELD, to_payload(message.to_dict()))


def from_store_message(entry: Entry) -> Message | None:
    """Return the framework's message for one of ours; None if it has none of its own."""
    payload = entry.body.get(FIELD)
    if is_payload(payload):
        return Message.from_dict(from_payload(payload))
    if is_continuation(payload) or entry.kind in _HIDDEN:
        return None
    return _from_other_writer(entry)


def _convert(message: Message) -> list[dict[str, Any]]:
    contents = message.contents
    results = [_result(content) for content in contents if content.type == "function_result"]
    calls = [_call(content) for content in contents if content.type == "function_call"]
    parts = [
        _part(content)
        for content in contents
        if content.type not in ("function_result", "function_call", "text_reasoning", "usage")
    ]
    if results:
        user_text = [{"role": "user", "content": content_parts.join_parts(parts)}] if parts else []
        return [*results, *user_text]
    if message.role == "assistant" or calls:
        return [_assistant(message, content_parts.join_parts(parts), calls)]
    role = message.role if message.role in _ROLES else "system"
    return [{"role": role, "content": content_parts.join_parts(parts) or ""}]


def _assistant(
    message: Message, content: content_parts.Content, calls: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    result = content_parts.assistant_message(content, calls)
    thoughts = [
        part.text for part in message.contents if part.type == "text_reasoning" and part.text
    ]
    return {**result, "reasoning_content": "\n".join(thoughts)} if thoughts else result


def _part(content: Content) -> dict[str, Any]:
    if content.type == "text" and isinstance(content.text, str):
        return content_parts.text_part(content.text)
    is_image = (content.media_type or "").startswith("image/")
    if content.type in ("data", "uri") and is_image and isinstance(content.uri, str):
        return content_parts.image_part(content.uri)
    return content_parts.placeholder_part({"type": content.type})


def _call(content: Content) -> dict[str, Any]:
    return content_parts.tool_call(content.call_id, content.name, content.arguments)


def _result(content: Content) -> dict[str, Any]:
    return content_parts.tool_message(content.call_id, content_parts.to_text(content.result))


def _from_other_writer(entry: Entry) -> Message:
    body, text = entry.body, text_of(entry.body)
    if entry.role == "tool":
        call_id = str(body.get("tool_call_id") or "call")
        return Message("tool", [Content.from_function_result(call_id, result=text)])
    contents = [Content.from_text(text)] if text else []
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            name = str(function.get("name") or "")
            arguments = content_parts.to_text(function.get("arguments") or "{}")
            call_id = str(call.get("id") or "call")
            contents.append(Content.from_function_call(call_id, name, arguments=arguments))
    role = entry.role if entry.role in _ROLES else "user"
    return Message(role, contents)


def _identity(message: Message) -> tuple[str, ...]:
    if message.message_id is not None:
        return ("id", message.message_id)
    contents = [content.to_dict() for content in message.contents]
    return ("content", message.role, json.dumps(contents, sort_keys=True, default=str))


def _may_be_repeated(message: Message) -> bool:
    return message.role == "user" and message.message_id is None


def _is_answer(message: Message) -> bool:
    """Return whether a run ends with this message: assistant content without a tool call."""
    return message.role == "assistant" and not any(
        content.type == "function_call" for content in message.contents
    )


def _waits_for_results(context: SessionContext) -> bool:
    messages = [] if context.response is None else context.response.messages
    return bool(messages) and not _is_answer(messages[-1])


def _owner(agent: SupportsAgentRun, session: AgentSession, context: SessionContext) -> object:
    """Return the object that lives as long as a run.

    That is the context, or the session if the framework makes a context for each model call.
    """
    has_context_per_call = getattr(agent, "require_per_service_call_history_persistence", False)
    return session if has_context_per_call else context


def _count(used: Mapping[str, Any], name: str) -> int:
    count = used.get(name)
    return count if isinstance(count, int) and count > 0 else 0
