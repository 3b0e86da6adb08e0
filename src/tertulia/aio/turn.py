"""A turn in async code: each step runs in a thread, and the event loop does the waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self

from tertulia.aio.executor import T, ThreadExecutor
from tertulia.core.history.formats import Format, Timestamps
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import StoreError
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.turns import control as sync_turn
from tertulia.records.turns.turn import TurnProperties
from tertulia.records.turns.waiting import AnsweredCall, Suspension


class Turn(TurnProperties):
    """One exchange. Used in an `async with` block; see `tertulia.Turn`."""

    def __init__(self, control: sync_turn.TurnControl, executor: ThreadExecutor) -> None:
        self._control = control
        self._executor = executor

    async def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
        *,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages for the model, the user's last."""
        return await self._executor.run_batched(
            self._control.history, max_messages, max_tokens, timestamps, format, model=model
        )

    async def add_assistant(
        self,
        text: str | None,
        *,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        reasoning: str | None = None,
        usage: Usage | None = None,
        deliver: str | None = None,
        deliver_as: Mapping[str, str | None] = MappingProxyType({}),
        more: bool = False,
        **fields: Any,
    ) -> None:
        """Store a message of the model; without tool calls it is the answer."""
        prepare = partial(
            self._control.prepare_assistant,
            text,
            tool_calls=tool_calls,
            reasoning=reasoning,
            usage=usage,
            deliver=deliver,
            deliver_as=deliver_as,
            more=more,
            **fields,
        )
        await self._write(prepare)

    async def add_tool_result(self, call_id: str, content: Any, *, name: str | None = None) -> None:
        """Store the result of a call of this turn."""
        await self._add_tool_result(call_id, content, name=name)

    async def _add_tool_result(self, call_id: str, content: Any, **options: str | None) -> None:
        try:
            await self._executor.run_batched(
                self._control.add_tool_result, call_id, content, **options
            )
        except StoreError:
            self._control.reopen_call(call_id)
            raise

    async def add_usage(self, usage: Usage) -> None:
        """Enter a model call that left no message."""
        await self._executor.run_batched(self._control.add_usage, usage)

    async def deliver(self, text: str, to: str = "origin", *, delivery: str | None = None) -> str:
        """Put a message into the outbox; return the id of the delivery."""
        return await self._executor.run_batched(self._control.deliver, text, to, delivery=delivery)

    async def __aenter__(self) -> Self:
        try:
            if not await self._try_enter():
                await self._wait_to_enter()
        except BaseException:
            await asyncio.shield(self._executor.run(self._control.abort))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._control.is_closed:
            # The answer has closed the turn: leaving does not use the database.
            self._control.leave(failed=problem is not None)
            return
        # Not batched: releasing the lease must not depend on other calls' transaction.
        leaving = self._executor.run(self._control.leave, failed=problem is not None)
        await asyncio.shield(leaving)

    async def _write(self, prepare: Callable[[], Callable[[], T]]) -> T:
        """Make a write that may end the turn; if its commit fails, it has not ended."""
        state = self._control.state
        try:
            return await self._executor.run_prepared(prepare)
        except StoreError:
            self._control.state = state
            raise

    async def _wait_to_enter(self) -> None:
        """Try again whenever a turn of this process leaves the conversation, and at intervals."""
        loop = asyncio.get_running_loop()
        has_left = asyncio.Event()

        def notify() -> None:
            loop.call_soon_threadsafe(has_left.set)

        deadline = loop.time() + self._control.wait
        self._control.add_listener(notify)
        try:
            while not await self._try_enter():
                seconds = deadline - loop.time()
                if seconds <= 0:
                    raise self._control.busy_error()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(has_left.wait(), min(self._control.retry_delay, seconds))
                has_left.clear()
        finally:
            self._control.remove_listener(notify)

    async def _try_enter(self) -> bool:
        """Try once. A cancelled task waits for the end of its try, and then aborts the turn."""
        trying = asyncio.ensure_future(self._executor.run_batched(self._enter_once))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            await asyncio.wait([trying])
            raise

    def _enter_once(self) -> bool:
        if not self._control.try_enter():
            return False
        # Rendered in this thread, since it may read the session before this one.
        assert self._control.context_prompt
        return True


class TurnControl(Turn):
    """A turn with the calls that gateways and integrations need beside those of `Turn`."""

    @property
    def sync(self) -> sync_turn.TurnControl:
        """The control in sync code."""
        return self._control

    @property
    def executor(self) -> ThreadExecutor:
        """The threads that its calls run in."""
        return self._executor

    @property
    def is_interrupted(self) -> bool:
        """With `duplicate`: the message was never answered, and its turn cannot be resumed."""
        return self._control.is_interrupted

    @property
    def is_waiting(self) -> bool:
        """With `duplicate`: the turn of the message waits for an approval."""
        return self._control.is_waiting

    @property
    def has_settled_item(self) -> bool:
        """True if the answer has settled the inbox item that the turn was made with."""
        return self._control.has_settled_item

    async def add_tool_result(
        self, call_id: str, content: Any, *, name: str | None = None, whole: str | None = None
    ) -> None:
        """Store the result of a call; `whole` is its text before it was shortened for the model."""
        await self._add_tool_result(call_id, content, name=name, whole=whole)

    async def extend(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        usage: Usage | None = None,
        is_last: bool = False,
    ) -> int:
        """Store messages as they are, in one transaction; return the last sequence number."""
        write = partial(self._control.extend, messages, usage=usage, is_last=is_last)
        return await self._write(lambda: write)

    @property
    def answered_calls(self) -> tuple[AnsweredCall, ...]:
        """The calls of a turn that waited for an approval, to be run or declined now."""
        return self._control.answered_calls

    async def suspend(self, suspension: Suspension) -> None:
        """Let the turn wait until people have answered for its calls, and release the lease."""
        await self._write(lambda: partial(self._control.suspend, suspension))

    async def add_inbox_item(self, item: InboxItem) -> None:
        """Let this turn answer a message that waits in the inbox for the same conversation."""
        await self._executor.run_batched(self._control.add_inbox_item, item)


def control_of(turn: Turn) -> TurnControl:
    """Return the control behind a turn, for integrations that are handed a `Turn`."""
    return TurnControl(turn._control, turn._executor)
