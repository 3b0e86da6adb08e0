"""The contract of a database. The suite `tertulia.testing.store_contract` tests each promise.

1.  **One transaction.** `write(work)` runs `work` in one transaction: all of it is stored, or
    nothing. An exception of `work` comes out of `write`, and then nothing of it is stored.
2.  **Durable.** When `write` returns, its changes survive `kill -9`; with `durability="safe"` they
    survive power loss too.
3.  **Serial.** Writes behave as if they ran one after the other, across threads and processes. Work
    that names its `lane` promises to touch only rows that belong to it (a conversation, a chat) and
    rows that constraints guard; it then waits for other work of its lane only.
4.  **Isolated failures.** A `work` that fails does not make another one fail, also if several are
    committed together.
5.  **Consistent reads.** `read(work)` sees one state of the database: everything that was
    acknowledged before it began, and nothing half-done. It never waits for a writer.
6.  **Repeatable work.** `work` may run more than once before it is stored, so it changes nothing
    but the database and its return value.
7.  **Errors.** Every error of the database comes out as a `tertulia.StoreError`.
8.  **Notifications.** `notify(channel)` soon wakes every waiter on that channel, on any handle. It
    is a hint: a notification can be lost or sent for nothing, so a waiter polls as well.
9.  **One commit.** Calls that `in_one_commit` runs share one transaction and one commit if the
    database `has_one_writer`. Each sees the writes of those before it. Each fails alone, or with
    all the others if the commit fails: so no result may be used before `in_one_commit` returns.
10. **One round trip.** `attempt(steps, lanes=…)` runs statements that need nothing of each other's
    results as one transaction, with the promises of `write`, and in as little time as the database
    allows. It stores everything or nothing; None says that the database refused them and stored
    nothing. It raises `StatementLost` if nobody can tell. `query(statement, params)` reads with one
    statement, as `read` does.
11. **Changes.** `count_changes()` has risen when anything was committed since the last call, by any
    process. It costs next to nothing, so one caller may ask every moment for all that wait. A
    commit of another process at the very moment of `write_quietly` may be missed, so a caller looks
    again now and then all the same.
12. **Closing.** `close()` waits for running calls; afterwards every call raises `StoreError`.

Statements are called by their names in the `.sql` files beside this module; both dialects have the
same list. Times are whole microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tertulia.core.text.search_terms import Phrase
from tertulia.errors import StoreUnavailable

T = TypeVar("T")

Row = tuple[Any, ...]
Params = Mapping[str, Any]
Step = tuple[str, Params]
"""A statement by its name, with its parameters."""
Progress = Callable[[int, int], None]


class StatementLost(Exception):
    """The connection broke while a statement ran: it was stored, is stored soon, or never will be.

    Do the same in a `write` in its lanes, which looks first whether it was stored. The statement's
    condition must be false after that write. `error` is what to raise if the write fails too.
    """

    def __init__(self, error: StoreUnavailable) -> None:
        super().__init__(error.message)
        self.error = error


class Transaction(Protocol):
    """One transaction, as `work` sees it."""

    def run(self, statement: str, params: Params = ...) -> None:
        """Run a statement without waiting for its result.

        An error is raised by the next call that needs a result, or by the commit.
        """

    def changed(self, statement: str, params: Params = ...) -> int:
        """Run a statement and return how many rows it changed."""

    def one(self, statement: str, params: Params = ...) -> Row | None:
        """Run a statement and return its first row, or None."""

    def all(self, statement: str, params: Params = ...) -> list[Row]:
        """Run a statement and return all its rows."""

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        """Run a statement once for each of `rows`."""

    def together(self, steps: Sequence[Step]) -> list[list[Row]]:
        """Run statements that need nothing of each other's results; return the rows of each."""

    def lock(self, name: str, *, shared: bool = False) -> None:
        """Lock a name until the end of the transaction.

        Others that lock it wait, unless all of them lock it with `shared`.
        """

    def search_entry(self, text: str) -> Any:
        """Return a folded text in the form that the search index stores."""

    def search_query(self, phrases: list[Phrase]) -> str:
        """Return a query of the search index that matches texts with all of the phrases."""


class Database(Protocol):
    """A database that keeps conversations; the docstring of the module lists its promises."""

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T: ...

    def attempt(self, steps: Sequence[Step], *, lanes: Sequence[str]) -> list[list[Row]] | None:
        """Run statements as one transaction and return the rows of each; None if it was refused.

        A single statement must see to it that it changes nothing unless the transaction is read
        committed, as `write` in a lane is: it gets the isolation level that the server has as its
        default. If it has a parameter `lane`, it takes the lock of its only lane itself.
        """

    def read(self, work: Callable[[Transaction], T]) -> T: ...

    def query(self, statement: str, params: Params = ...) -> list[Row]:
        """Read with one statement and return its rows."""

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        """Do the same as `write`, with no other write from its beginning to its end."""

    @property
    def has_one_writer(self) -> bool:
        """True if writes run one after the other anyway, so that `in_one_commit` delays no one."""

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Run calls that write; their writes are stored when this returns."""

    def close(self) -> None: ...

    @property
    def is_closed(self) -> bool: ...

    def notify(self, channel: str) -> None:
        """Wake the waiters on a channel."""

    def notifications(self, channel: str) -> int:
        """Return the number of notifications so far.

        Read it before you look for work, then pass it to `wait`.
        """

    def wait(self, channel: str, since: int, seconds: float) -> None:
        """Wait until there are more than `since` notifications, or the time has passed."""

    def count_changes(self) -> int:
        """Return how often something was committed between two calls of this, as seen so far."""

    def write_quietly(self, work: Callable[[Transaction], T]) -> T:
        """Do the same as `write`, for a sign of life: it does not count as a change."""

    @property
    def name(self) -> str:
        """The address for people to read, without secrets."""

    @property
    def identity(self) -> str:
        """A text that is the same for every handle on the same database."""

    def has_space(self, size: int) -> bool:
        """Return whether there is space for so many bytes; True if that cannot be known."""

    def check(self) -> list[str]:
        """Return a description of every fault; an empty list for a sound database."""

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        """Copy the database to a new file while it is in use."""

    def vacuum(self) -> tuple[int, int]:
        """Give unused space back; return the size in bytes before and after."""
