"""Who has the floor: the lease of a conversation while a run of an SDK is under way.

An SDK says when a run begins, and mostly not when it has failed. So a turn is held for an owner, an
object that lives as long as the run, and is given back when

- an answer has been stored;
- the owner is gone, or the task that the run was in has ended;
- the same task begins another run: it awaited the one before, so that one is over.

Whoever renews the lease looks at that, and so does the next one of this process who wants the
floor. A run that has stored nothing for ten minutes, such as one that waits for a person's consent,
is not renewed any more: it may go on, unless somebody came in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from typing import Any

from tertulia.aio.executor import ThreadExecutor
from tertulia.aio.turn import TurnControl
from tertulia.core.source import Source
from tertulia.errors import IllegalMove
from tertulia.store import Store

LONGEST_SILENCE = 600.0

_Place = tuple[str, str]
# For each database and conversation the turns of this process, so that one that is over is found by
# whoever comes next. What may enter is decided in the database.
_held: dict[_Place, list[HeldTurn]] = {}


class HeldTurn:
    """A turn that is held for an owner."""

    def __init__(self, place: _Place, turn: TurnControl, owner: object) -> None:
        self.turn = turn
        self._place = place
        self._owner = weakref.ref(owner)
        task = asyncio.current_task()
        self._task = None if task is None else weakref.ref(task)
        self.used_at = time.monotonic()
        _held.setdefault(place, []).append(self)

    def forget(self) -> None:
        """Take it out of what is held; another thread may have been quicker."""
        turns = _held.get(self._place, [])
        with contextlib.suppress(ValueError):
            turns.remove(self)
        if not turns:
            _held.pop(self._place, None)

    def is_for(self, owner: object) -> bool:
        return self._owner() is owner

    def is_over(self, asking: asyncio.Task[Any] | None = None) -> bool:
        """Whether its run has ended, as far as that can be told."""
        if self._owner() is None:
            return True
        task = None if self._task is None else self._task()
        return task is None or task.done() or task is asking

    def is_given_up(self) -> bool:
        """Asked by whoever renews the lease; a run that is over gives its turn back here."""
        if self.is_over():
            self.forget()
            self.turn.sync.leave(failed=True, keep_calls=True)
            return True
        return time.monotonic() - self.used_at > LONGEST_SILENCE


class RunLease:
    """The right to speak in one conversation."""

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
        self._place = os.path.realpath(store.path), store.sessions.key(source)

    def held_by(self, owner: object) -> TurnControl | None:
        """The turn that is held for an owner, if there is one."""
        for held in _held.get(self._place, ()):
            if held.is_for(owner):
                held.used_at = time.monotonic()
                return held.turn
        return None

    async def take(self, owner: object) -> TurnControl:
        """The turn of an owner, begun if it has none; waits while another has the floor."""
        found = self.held_by(owner)
        if found is not None:
            return found
        await self._clear()
        turn = await self.enter()
        turn.sync.is_abandoned = HeldTurn(self._place, turn, owner).is_given_up
        return turn

    async def enter(self) -> TurnControl:
        """Begin a turn in which nobody has said anything yet."""
        control = self._store.turn_control(self._source, wait=self._wait)
        turn = TurnControl(control, self._executor)
        await turn.__aenter__()
        if self._session_id is None or turn.session.id == self._session_id:
            return turn
        await self.leave(turn)
        raise IllegalMove(
            f"The session {self._session_id} has ended.",
            hint=f"Resume it: store.sessions.switch({turn.session.key!r}, {self._session_id!r}).",
            session_id=self._session_id,
        )

    async def leave(self, turn: TurnControl) -> None:
        """Give the floor back."""
        self._forget(turn)
        await asyncio.shield(self._executor.run(turn.sync.leave, keep_calls=True))

    def drop(self, owner: object) -> None:
        """Give back what is held for an owner, at once."""
        turn = self.held_by(owner)
        if turn is not None:
            self._forget(turn)
            turn.sync.leave(failed=True, keep_calls=True)

    async def _clear(self) -> None:
        """Give back what belongs to runs that are over."""
        asking = asyncio.current_task()
        for held in list(_held.get(self._place, ())):
            if held.is_over(asking):
                held.forget()
                leaving = self._executor.run(held.turn.sync.leave, failed=True, keep_calls=True)
                await asyncio.shield(leaving)

    def _forget(self, turn: TurnControl) -> None:
        for held in list(_held.get(self._place, ())):
            if held.turn is turn:
                held.forget()
