"""Group commit without a writer thread: threads that write at the same time share one commit.

A thread that finds no leader becomes the leader: it opens a transaction, runs its own work, then
the work of all threads that queued in the meantime, commits once, and makes the first of those that
queued during the commit the next leader. So a lone caller commits inline, without a hand-off to
another thread, and under load one fsync serves many callers (decision 0002).

An interrupt (Ctrl-C) can be raised after any call that Python makes. So the leader and its batch
are recorded before anything is done. `GroupCommit.submit` is the only place that sees every
interrupt; from these records it gives back the lead, the transaction and the followers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from tertulia.errors import StoreUnavailable
from tertulia.storage.base import Transaction
from tertulia.storage.sqlite.errors import FOREIGN, translate_errors
from tertulia.storage.sqlite.transaction import RecordedTransaction

T = TypeVar("T")

# A larger batch would only make its last job wait for its first.
_BATCH_LIMIT = 256


class Job:
    """Work that waits for its commit; the job of a leader also lists the jobs it runs."""

    __slots__ = (
        "batch",
        "error",
        "is_abandoned",
        "is_committing",
        "must_lead",
        "queued_at",
        "result",
        "thread",
        "wakeup",
        "work",
    )

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.thread = threading.get_ident()
        self.result: Any = None
        self.error: BaseException | None = None
        self.wakeup: Any = None
        self.queued_at: float | None = None
        self.batch: list[Job] = []
        self.is_committing = False
        self.is_abandoned = False
        self.must_lead = False  # True: no other leader may run it

    def outcome(self) -> Any:
        """Return the result of the work, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit:
    """The queue of writers in front of the one connection that writes.

    `check_usable` raises if the store was closed or the process forked, `check_open` only if it was
    closed. `mutex` guards the leader and the queue. `shared_thread` is the thread whose calls share
    one transaction now, or None; `shared_channels` collects the channels that these calls notify.
    `begun` and `committed` count the jobs whose commit has begun, and has returned.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tx: Transaction,
        shared_tx: RecordedTransaction,
        path: str,
        check_usable: Callable[[], None],
        check_open: Callable[[], None],
        check_file: Callable[[], None],
    ) -> None:
        self._connection = connection
        # One cursor: a new one for each statement takes longer than a savepoint.
        self._execute = connection.cursor().execute
        self._tx = tx
        self._shared_tx = shared_tx
        self._path = path
        self._check_usable = check_usable
        self._check_open = check_open
        self._check_file = check_file
        self.mutex = threading.Lock()
        self.leader: Job | None = None
        self.waiting: deque[Job] = deque()
        self.shared_thread: int | None = None
        self.shared_channels: set[str] = set()
        self._has_savepoint = False  # of the calls that share a transaction
        self.begun = 0
        self.committed = 0

    def waiting_since(self) -> float | None:
        """Return when the leader began to wait; None if it never stood in the queue."""
        return None if self.leader is None else self.leader.queued_at

    def submit(self, job: Job) -> Any:
        """Commit a job, alone or with others; return its result or raise its error."""
        self._check_usable()
        try:
            with self.mutex:
                self._check_open()
                if self.leader is None:
                    self.leader = job
                else:
                    self._enqueue(job)
            if self.leader is not job:
                job.wakeup.acquire()
            if self.leader is job:
                self._lead(job)
        except BaseException:
            self._withdraw(job)
            raise
        return job.outcome()

    def run_calls(self, calls: Callable[[], None]) -> set[str]:
        """Run calls that write in one transaction; return the channels they notified.

        A follower's job is run in the leader's thread, and again after an interrupt. Calls that
        remember what they did must run in their own thread, and once. So this job must lead.
        """
        channels: set[str] = set()

        def work(tx: Transaction) -> None:
            self._shared_tx.keep_prepared()
            self.shared_thread, self.shared_channels = threading.get_ident(), channels
            try:
                calls()
            finally:
                self.shared_thread = None
                self._has_savepoint = False
                self._shared_tx.forget()
            self._check_shared()

        job = Job(work)
        job.must_lead = True
        self.submit(job)
        return channels

    def write_shared(self, work: Callable[[Transaction], T]) -> T:
        """Run the work of one of the calls that share a transaction; its failure is its own.

        A savepoint before each call would copy every page that the call changes, and hardly any
        call fails. So there is one before all of them (decision 0064).
        """
        self._check_shared()
        if not self._has_savepoint:
            self._set_savepoint()
        first = self._shared_tx.record_length
        changes = self._connection.total_changes()
        try:
            return work(self._shared_tx)
        except FOREIGN as problem:
            self._undo_call(first)
            raise translate_errors(problem, self._path) from problem
        except BaseException:
            if self._connection.total_changes() == changes:
                self._shared_tx.forget(first)
            else:
                self._undo_call(first)
            raise

    def run_shared(self, work: Callable[[Transaction], T]) -> T:
        """Run work that only reads, or is a single statement, in the shared transaction.

        There is nothing to undo if it fails. A call sees its own writes and fails together with
        them if they are not stored.
        """
        self._check_shared()
        try:
            return work(self._shared_tx)
        except FOREIGN as problem:
            raise translate_errors(problem, self._path) from problem

    def _undo_call(self, first: int) -> None:
        """Undo the statements of a failed call, which are recorded from a number on.

        Those before it run again, and are part of a new savepoint then: none runs a third time.
        """
        connection = self._connection
        if not connection.in_transaction:
            return  # SQLite has rolled everything back
        self._shared_tx.forget(first)
        try:
            self._execute("rollback to calls")
            self._shared_tx.run_again()
            self._set_savepoint()
        except BaseException as problem:
            if connection.in_transaction:  # a part of the calls must not be stored
                self._execute("rollback")
            if isinstance(problem, FOREIGN):
                raise translate_errors(problem, self._path) from problem
            raise

    def _set_savepoint(self) -> None:
        """Let the next failed call be undone from here: the record begins anew."""
        self._execute("savepoint calls")
        self._has_savepoint = True
        self._shared_tx.forget()

    def _check_shared(self) -> None:
        if not self._connection.in_transaction:
            raise StoreUnavailable(
                "SQLite rolled back the transaction that several calls shared.",
                hint="Try again; the call that failed first reports the reason.",
            )

    def _enqueue(self, job: Job) -> None:
        job.wakeup = threading.Lock()
        job.wakeup.acquire()
        job.queued_at = time.monotonic()
        self.waiting.append(job)

    def _lead(self, first: Job) -> None:
        """Commit `first` together with all waiting jobs, then pass the lead on."""
        first.batch = [first]
        try:
            self._commit(first)
        except Exception as problem:  # noqa: BLE001 — followers must never wait for ever
            error = (
                translate_errors(problem, self._path) if isinstance(problem, FOREIGN) else problem
            )
            for job in first.batch:
                job.error = job.error or error
        self._pass_lead(first)
        _wake_followers(first.batch)
        # The batch contains the leader itself: a reference cycle that keeps all that was written
        # until Python's garbage collector runs, which would stop every thread.
        first.batch = []

    def _commit(self, first: Job) -> None:
        connection = self._connection
        try:
            self._begin()
            self._run_first(first)
            self._run_followers(first)
            self._check_file()
            first.is_committing = True
            self.begun += len(first.batch)
            self._execute("commit")
            self.committed += len(first.batch)
        except Exception:
            first.is_committing = False  # before any statement that an interrupt could prevent
            self.begun = self.committed
            # After a full disk or an I/O error SQLite itself has rolled back.
            if connection.in_transaction:
                self._execute("rollback")
            raise

    def _take_next(self, leader: Job) -> Job | None:
        if not self.waiting:  # whoever comes now leads the next commit
            return None
        with self.mutex:
            while self.waiting:
                job = self.waiting[0]
                if job.must_lead and job is not leader:
                    return None
                if job is not leader:  # a leader that was queued is still at the head of the queue
                    leader.batch.append(job)
                self.waiting.popleft()
                if job is not leader:
                    return job
            return None

    def _begin(self) -> None:
        self._execute("begin immediate")

    def _run_first(self, job: Job) -> None:
        """Run the leader's own work.

        It needs no savepoint: it is the first in the transaction, so its failure rolls back nothing
        else.
        """
        try:
            job.result = job.work(self._tx)
        except FOREIGN as problem:
            job.error = translate_errors(problem, self._path)
        except Exception as problem:  # noqa: BLE001 — raised again in the caller
            job.error = problem
        if job.error is not None:
            if self._connection.in_transaction:
                self._execute("rollback")
            self._begin()

    def _run_followers(self, first: Job) -> None:
        """Run the jobs that wait.

        A savepoint before each of them would copy every page that the job changes, and hardly any
        job fails. So there is one before all; if a job fails that has changed something, those
        before it run again, each with a savepoint of its own. The transaction goes on: whoever lets
        go of the file may not get it again.
        """
        has_savepoints = False
        while len(first.batch) < _BATCH_LIMIT and (job := self._take_next(first)) is not None:
            if len(first.batch) == 2:
                self._execute("savepoint followers")
            if has_savepoints:
                self._run_with_savepoint(job)
            elif not self._run_without_savepoint(job):
                has_savepoints = True
                self._execute("rollback to followers")
                for follower in first.batch[1:]:
                    follower.result = follower.error = None
                    self._run_with_savepoint(follower)

    def _run_without_savepoint(self, job: Job) -> bool:
        """Run a job; return False if it failed and may have changed something.

        SQLite does not count changes of the schema: no job makes one and then fails.
        """
        changes = self._connection.total_changes()
        try:
            job.result = job.work(self._tx)
        except Exception as problem:
            if not self._connection.in_transaction:
                raise  # SQLite rolled everything back, so every job of the batch has failed
            if isinstance(problem, FOREIGN) or self._connection.total_changes() != changes:
                return False
            job.error = problem
        return True

    def _run_with_savepoint(self, job: Job) -> None:
        """Run a job; if it fails, undo what it has changed."""
        connection = self._connection
        self._execute("savepoint job")
        try:
            job.result = job.work(self._tx)
        except Exception as problem:
            if not connection.in_transaction:
                raise  # SQLite rolled everything back, so every job of the batch has failed
            self._execute("rollback to job")
            job.error = (
                translate_errors(problem, self._path) if isinstance(problem, FOREIGN) else problem
            )
        self._execute("release job")

    def _pass_lead(self, leader: Job) -> None:
        with self.mutex:
            if self.waiting and self.waiting[0] is leader:
                self.waiting.popleft()
            successor = self.waiting[0] if self.waiting else None
            # No interrupt can come between these two: Python checks for one only after a call.
            self.leader = successor
            if successor is not None:
                successor.wakeup.release()

    def _withdraw(self, job: Job) -> None:
        """Undo an interrupted call: give up the lead, roll back, and leave no follower waiting."""
        with self.mutex:
            job.is_abandoned = True
            if job in self.waiting:
                self.waiting.remove(job)
            is_leader = self.leader is job
        if is_leader:
            is_open = self._connection.in_transaction
            if is_open:
                self._execute("rollback")
            if is_open or not job.is_committing:
                self._requeue_followers(job)
            self._pass_lead(job)
        _wake_followers(job.batch)

    def _requeue_followers(self, leader: Job) -> None:
        """Put the followers back into the queue: nothing was stored for them."""
        with self.mutex:
            followers = [
                job for job in leader.batch[1:] if not job.is_abandoned and job not in self.waiting
            ]
            for job in followers:
                job.result = job.error = None
            self.waiting.extendleft(reversed(followers))
            leader.batch = []


def _wake_followers(batch: list[Job]) -> None:
    """Wake the followers, whose work is done.

    An interrupt in here may cause a second call, which does no harm.
    """
    for job in batch[1:]:
        if job.wakeup.locked():
            job.wakeup.release()
