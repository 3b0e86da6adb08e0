"""Statements of several threads run in one transaction (decision 0063).

A statement that takes the lock of its lane itself (decision 0060) is a whole transaction: a commit
that waits for the disk, and for each side a message to send, to wait for and to receive. While a
few of them run, others wait, and the next transaction takes all that wait. So a lone caller waits
for nobody, and under load one commit serves many callers.

Nobody waits for long: two transactions that do not end, because a connection hangs or a table is
locked, would stop every turn of the process. A statement that no transaction takes soon runs alone,
if there is a connection for it.

The main thread takes no part: an interrupt from the keyboard may end its call at any moment, and
would leave those waiting who rely on it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from tertulia.storage.base import Row
from tertulia.storage.statements import Query

_BATCH_LIMIT: Final = 32  # a larger batch would only make its last statement wait for its first
_LEAST_RUNNING: Final = 2  # while the server runs one transaction, the next one is prepared
# What a statement costs the processors of both sides. If a transaction takes longer than that, it
# waits for the network or for the disk; more of them run at once then.
_PROCESSOR_SECONDS: Final = 0.00025
_WAIT_SECONDS: Final = 0.25  # longer than a statement waits for a lock
_WINDOW: Final = 64  # transactions after which the number that run at once is decided again


class Statement:
    """A statement with its values, and what came of it.

    `rows` is None if the server refused it, and then nothing was stored; `error` is to be raised.
    """

    __slots__ = ("error", "is_leader", "query", "rows", "values", "wakeup")

    def __init__(self, query: Query, values: Sequence[Any]) -> None:
        self.query = query
        self.values = values
        self.rows: list[Row] | None = None
        self.error: Exception | None = None
        self.is_leader = False
        self.wakeup: threading.Lock | None = None  # released when there is an outcome, or it leads

    def outcome(self) -> list[Row] | None:
        """Return the rows, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.rows


class SharedTransactions:
    """The queue of statements in front of the connections.

    `run` runs statements in one transaction and sets what came of each, also if it raises.
    `most_running` is how many transactions may run at once where waiting costs more than work.
    """

    def __init__(self, run: Callable[[Sequence[Statement]], None], most_running: int) -> None:
        self._run = run
        self._most_running = most_running
        self._mutex = threading.Lock()
        self._waiting: deque[Statement] = deque()
        self._running = 0
        self._limit = most_running
        self._timed = 0  # transactions of this window
        self._fastest = self._fastest_before = math.inf  # seconds for each statement of one

    def submit(self, statement: Statement) -> list[Row] | None:
        """Run a statement, alone or with others; return its rows or raise its error."""
        if threading.get_ident() == threading.main_thread().ident:
            self._run([statement])
            return statement.outcome()
        try:
            with self._mutex:
                if self._running < self._limit:
                    self._running += 1
                    statement.is_leader = True
                else:
                    statement.wakeup = threading.Lock()
                    statement.wakeup.acquire()
                    self._waiting.append(statement)
            if statement.wakeup is not None:
                self._wait(statement, statement.wakeup)
            if statement.is_leader:
                self._lead(statement)
        except BaseException:
            self._withdraw(statement)
            raise
        return statement.outcome()

    def _wait(self, statement: Statement, wakeup: threading.Lock) -> None:
        """Wait until a statement has an outcome or leads; run it alone if nobody takes it."""
        if wakeup.acquire(timeout=_WAIT_SECONDS):
            return
        with self._mutex:
            is_taken = statement not in self._waiting
            if not is_taken:
                self._waiting.remove(statement)
        if is_taken:
            wakeup.acquire()  # its transaction runs
        else:
            self._run([statement])

    def _lead(self, first: Statement) -> None:
        """Run a statement together with those that wait, then pass the lead on."""
        batch = [first]
        if self._waiting:
            with self._mutex:
                while self._waiting and len(batch) < _BATCH_LIMIT:
                    batch.append(self._waiting.popleft())
        began_at = time.perf_counter()
        try:
            self._run(batch)
        finally:
            self._pass_lead(first, (time.perf_counter() - began_at) / len(batch))
            for statement in batch[1:]:
                statement.wakeup.release()  # type: ignore[union-attr]

    def _pass_lead(self, leader: Statement, seconds: float) -> None:
        """Make the first that waits a leader, or let one transaction less run."""
        with self._mutex:
            leader.is_leader = False
            self._note_time(seconds)
            if not self._waiting or self._running > self._limit:
                self._running -= 1
                return
            successor = self._waiting.popleft()
            successor.is_leader = True
            successor.wakeup.release()  # type: ignore[union-attr]

    def _withdraw(self, statement: Statement) -> None:
        """Leave the queue, or give up the lead, after an exception."""
        with self._mutex:
            if statement in self._waiting:
                self._waiting.remove(statement)
        if statement.is_leader:
            self._pass_lead(statement, math.inf)

    def _note_time(self, seconds: float) -> None:
        """Decide how many may run at once, by the fastest transactions of the last two windows.

        The fastest has waited for no processor: what it took beyond its work is network and disk.
        """
        self._fastest = min(self._fastest, seconds)
        self._timed += 1
        if self._timed % _WINDOW == 0:
            fastest = min(self._fastest, self._fastest_before)
            wanted = min(fastest / _PROCESSOR_SECONDS, self._most_running)
            self._limit = max(_LEAST_RUNNING, math.ceil(wanted))
            self._fastest, self._fastest_before = math.inf, self._fastest
