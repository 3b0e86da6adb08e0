"""The async turn: each step runs in a thread, and the event loop does the waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tertulia.aio.executor import (
    P,
    T,
    ThreadExecutor,
)
from tertulia.core.history.formats import (
    Format,
    Timestamps,
)
from tertulia.core.message import ToolCall
from tertulia.core.session import Notice, Session
from tertulia.core.usage import Usage
from tertulia.errors import StoreError
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.turns import turn as sync


class Turn:
    """One turn, for use in an `async with` block; see `tertulia.Turn`."""

    def __init__(self, turn: sync.Turn, executor: ThreadExecutor) -> None:
        self.sync = turn
        self._executor = executor

    @property
    def session(self) -> Session:
        return self.sync.session

    @property
    def notice(self) -> Notice | None:
        return self.sync.notice

    @property
    def duplicate(self) -> bool:
        return self.sync.duplicate

    @property
    def is_cut_off(self) -> bool:
        """True if a duplicate has no answer and it is too late to continue its turn."""
        return self.sync.is_cut_off

    @property
    def answer(self) -> str | None:
        return self.sync.answer

    @property
    def context_prompt(self) -> str:
        return self.sync.context_prompt

    async def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
    ) -> list[dict[str, Any]]:
        """Return the messages for the model, the user's message last."""
        return await self._executor.run_batched(
            self.sync.history, max_messages, max_tokens, timestamps, format
        )

    async def add_assistant(
        self,
        text: str | None,
        *,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        reasoning: str | None = None,
        usage: Usage | None = None,
        deliver: str | None = None,
        more: bool = False,
        **fields: Any,
    ) -> None:
        """Store a message of the model; without tool calls it is the answer."""
        await self._run_step(
            self.sync.add_assistant,
            text,
            tool_calls=tool_calls,
            reasoning=reasoning,
            usage=usage,
            deliver=deliver,
            more=more,
            **fields,
        )

    async def add_tool_result(self, call_id: str, content: Any, *, name: str | None = None) -> None:
        """Store the result of a tool call of this turn."""
        try:
            await self._executor.run_batched(self.sync.add_tool_result, call_id, content, name=name)
        except StoreError:
            self.sync.reopen_call(call_id)
            raise

    async def extend(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        usage: Usage | None = None,
        is_last: bool = False,
    ) -> int:
        """Store messages unchanged, in one transaction; return the last sequence number."""
        return await self._run_step(self.sync.extend, messages, usage=usage, is_last=is_last)

    async def _run_step(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that stores a step and may end the turn.

        If its commit fails, restore the state of the turn from before the call.
        """
        before = self.sync.standing
        try:
            return await self._executor.run_batched(call, *args, **kwargs)
        except StoreError:
            self.sync.standing = before
            raise

    async def add_usage(self, usage: Usage) -> None:
        """Enter the usage of a model call that stored no message."""
        await self._executor.run_batched(self.sync.add_usage, usage)

    async def take_in(self, item: InboxItem) -> None:
        """Let this turn answer a message of the same conversation that waits in the inbox."""
        await self._executor.run_batched(self.sync.take_in, item)

    async def deliver(self, text: str, to: str = "origin", *, delivery: str | None = None) -> str:
        """Put a text into the outbox; return the id of the delivery."""
        return await self._executor.run_batched(self.sync.deliver, text, to, delivery=delivery)

    async def __aenter__(self) -> Self:
        try:
            if not await self._try_to_enter():
                await self._wait_to_enter()
        except BaseException:
            await asyncio.shield(self._executor.run(self.sync.abandon))
            raise
        return self

    async def _wait_to_enter(self) -> None:
        """Try to enter whenever a turn of this process leaves the session, and at intervals.

        Raise `SessionBusy` when the time to wait is over.
        """
        loop = asyncio.get_running_loop()
        has_left = asyncio.Event()

        def notify() -> None:
            loop.call_soon_threadsafe(has_left.set)

        deadline = loop.time() + self.sync.wait
        self.sync.listen(notify)
        try:
            while not await self._try_to_enter():
                left = self._require_time_left(deadline - loop.time())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(has_left.wait(), min(self.sync.pause, left))
                has_left.clear()
        finally:
            self.sync.ignore(notify)

    def _require_time_left(self, seconds: float) -> float:
        if seconds <= 0:
            raise self.sync.busy()
        return seconds

    async def _try_to_enter(self) -> bool:
        """Try once to enter. A cancelled task waits for the end of its attempt first."""
        attempt = asyncio.ensure_future(self._executor.run_batched(self._enter))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            await asyncio.wait([attempt])
            raise

    def _enter(self) -> bool:
        if not self.sync.try_to_enter():
            return False
        # Rendered in this thread, because it may read the previous session.
        assert self.sync.context_prompt
        return True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.sync.is_over:
            self.sync.leave(failed=problem is not None)  # the answer ended it: no write
            return
        # Not batched: releasing the lease must not depend on other calls' transaction.
        leaving = self._executor.run(self.sync.leave, failed=problem is not None)
        await asyncio.shield(leaving)
