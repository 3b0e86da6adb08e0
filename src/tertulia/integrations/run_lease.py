"""The session lease that one run of an SDK holds.

An SDK reports when a run begins, but usually not when it fails. So each turn is held on behalf of
an owner, an object that lives as long as the run. The turn is released when

- an answer has been stored;
- the owner was garbage-collected, or the task of the run has ended;
- the same task begins another run: it awaited the previous run, so that one is over;
- a task that it started begins another run, as streaming does, and no function of the SDK is among
  those that the first task awaits.

Lease renewal checks these conditions, and so does the next run of this process in the same
conversation. A run that has stored nothing for ten minutes, such as one that waits for a user's
approval, is no longer renewed: it may continue unless another turn has begun in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import time
import weakref
from contextvars import ContextVar
from typing import Any

from tertulia.aio.executor import ThreadExecutor
from tertulia.aio.turn import TurnControl
from tertulia.core.source import Source
from tertulia.errors import IllegalMove
from tertulia.store import Store

# Seconds after which a run that has stored nothing is no longer renewed.
LONGEST_SILENCE = 600.0

# The real path of the database and the session key.
_Conversation = tuple[str, str]
# The held turns of this process by conversation, so that the next run finds and releases a turn
# that is over. The database decides which turn may begin; this dictionary does not.
_held_turns: dict[_Conversation, list[HeldTurn]] = {}
# Runs add turns in the threads of their event loops, lease renewal removes them in its own.
_held_turns_lock = threading.Lock()
# The last task that began a run in this context; a task inherits it from the one that started it.
_last_task: ContextVar[weakref.ref[asyncio.Task[Any]] | None] = ContextVar("task", default=None)


class HeldTurn:
    """A turn that is held on behalf of an owner."""

    def __init__(self, conversation: _Conversation, turn: TurnControl, owner: object) -> None:
        self.turn = turn
        self._conversation = conversation
        self._owner = weakref.ref(owner)
        task = asyncio.current_task()
        self._task = None if task is None else weakref.ref(task)
        self._sdk = _calling_package()
        self.used_at = time.monotonic()
        with _held_turns_lock:
            _held_turns.setdefault(conversation, []).append(self)

    def remove(self) -> None:
        """Remove this turn from the held turns; do nothing if another thread has removed it."""
        with _held_turns_lock:
            turns = _held_turns.get(self._conversation, [])
            with contextlib.suppress(ValueError):
                turns.remove(self)
            if not turns:
                _held_turns.pop(self._conversation, None)

    def is_owned_by(self, owner: object) -> bool:
        return self._owner() is owner

    def is_over(self, next_task: asyncio.Task[Any] | None = None) -> bool:
        """Return whether the run has ended, as far as this process can tell.

        `next_task` is the task that wants to begin another run.
        """
        if self._owner() is None:
            return True
        task = None if self._task is None else self._task()
        if task is None or task.done() or task is next_task:
            return True
        parent = _last_task.get()
        is_child = next_task is not None and parent is not None and parent() is task
        return is_child and not _awaits_package(task, self._sdk)

    def is_given_up(self) -> bool:
        """Return whether lease renewal must stop; release the turn if its run is over."""
        if self.is_over():
            self.remove()
            self.turn.sync.leave(failed=True, keep_calls=True)
            return True
        return time.monotonic() - self.used_at > LONGEST_SILENCE


class RunLease:
    """The lease of one conversation for the runs of an SDK."""

    def __init__(
        self,
        store: Store,
        executor: ThreadExecutor,
        source: Source,
        *,
        session_id: str | None = None,
        wait: float = 30.0,
    ) -> None:
        self._store = store
        self._executor = executor
        self._source = source
        self._session_id = session_id
        self._wait = wait
        self._conversation = os.path.realpath(store.path), store.sessions.key(source)

    def get_turn(self, owner: object) -> TurnControl | None:
        """Return the turn that is held for an owner, or None."""
        for held_turn in self._held_turns():
            if held_turn.is_owned_by(owner):
                held_turn.used_at = time.monotonic()
                return held_turn.turn
        return None

    async def claim(self, owner: object) -> TurnControl:
        """Return the turn of an owner; begin one if it has none.

        Waits while another turn holds the lease, and raises `SessionBusy` after `wait` seconds.
        """
        turn = self.get_turn(owner)
        if turn is not None:
            return turn
        await self._release_ended_runs()
        task = asyncio.current_task()
        _last_task.set(None if task is None else weakref.ref(task))
        turn = await self.begin()
        turn.sync.is_abandoned = HeldTurn(self._conversation, turn, owner).is_given_up
        return turn

    async def begin(self) -> TurnControl:
        """Begin a turn without a user message.

        Raises `IllegalMove` if this lease is for one session and that session has ended.
        """
        control = self._store.turn_control(self._source, wait=self._wait)
        turn = TurnControl(control, self._executor)
        await turn.__aenter__()
        if self._session_id is None or turn.session.id == self._session_id:
            return turn
        await self.release(turn)
        raise IllegalMove(
            f"The session {self._session_id} has ended.",
            hint=f"Resume it: store.sessions.switch({turn.session.key!r}, {self._session_id!r}).",
            session_id=self._session_id,
        )

    async def release(self, turn: TurnControl) -> None:
        """End a turn and release its lease."""
        self._remove(turn)
        await asyncio.shield(self._executor.run(turn.sync.leave, keep_calls=True))

    def release_owner(self, owner: object) -> None:
        """End the turn that is held for an owner, in this thread; do nothing if there is none."""
        turn = self.get_turn(owner)
        if turn is not None:
            self._remove(turn)
            turn.sync.leave(failed=True, keep_calls=True)

    async def _release_ended_runs(self) -> None:
        next_task = asyncio.current_task()
        for held_turn in self._held_turns():
            if held_turn.is_over(next_task):
                held_turn.remove()
                leaving = self._executor.run(
                    held_turn.turn.sync.leave, failed=True, keep_calls=True
                )
                await asyncio.shield(leaving)

    def _held_turns(self) -> list[HeldTurn]:
        """Return a copy of the turns that this process holds in the conversation."""
        with _held_turns_lock:
            return list(_held_turns.get(self._conversation, ()))

    def _remove(self, turn: TurnControl) -> None:
        for held_turn in self._held_turns():
            if held_turn.turn is turn:
                held_turn.remove()


def _calling_package() -> str:
    """Return the package whose function called this integration: that of the SDK."""
    frame = inspect.currentframe()
    own_package = __name__.partition(".")[0]
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != own_package:
            return package
        frame = frame.f_back
    return own_package


def _awaits_package(task: asyncio.Task[Any], package: str) -> bool:
    """Return whether a function of a package is among those that a suspended task awaits."""
    awaitable: Any = task.get_coro()
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name.partition(".")[0] == package:
                return True
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return False
