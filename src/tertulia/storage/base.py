"""What a database promises. The suite `tertulia.testing.store_contract` plays each promise.

1.  **One transaction.** `write(work)` runs `work` in one transaction: all of it is stored, or
    nothing. What `work` raises comes out of `write`, and then nothing of it is stored.
2.  **Durable.** When `write` returns, what it did survives `kill -9`; with `durability="safe"` it
    survives power loss too.
3.  **Serial.** Writes behave as if they ran one after the other, across threads and processes. Work
    that names its `lane` promises to touch only what belongs to it (a conversation, a chat), and
    what constraints guard; then it waits for others of its lane, and for nobody else.
4.  **Apart.** A `work` that fails takes no other one with it, also where several are committed
    together.
5.  **Consistent reads.** `read(work)` sees one state of the database: everything that was
    acknowledged before it began, and nothing half-done. It never waits for a writer.
6.  **Repeatable work.** `work` may run more than once before it is stored, so it changes nothing
    but the database and what it returns.
7.  **Errors.** Whatever the database raises comes out as a `tertulia.StoreError`.
8.  **Bells.** `ring(name)` wakes whoever waits for that bell, on any handle, soon. It is a hint: a
    bell can be missed or ring for nothing, so whoever waits looks for itself, again and again.
9.  **Together.** Calls that `together` runs share one transaction and one commit where the
    database has `one_writer`. Each sees what those before it wrote. Each fails alone, or with all
    the others if the commit fails: so nobody is told a result before `together` returns.
10. **Closing.** `close()` waits for what is under way; afterwards every call raises `StoreError`.

Statements are called by the names they have in the `.sql` files beside this module; both dialects
have the same list. Times are whole microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from tertulia.core.text.search_terms import Phrase

T = TypeVar("T")

Row = tuple[Any, ...]
Params = Mapping[str, Any]
Progress = Callable[[int, int], None]


class Transaction(Protocol):
    """One transaction, as `work` sees it."""

    def run(self, statement: str, params: Params = ...) -> None:
        """Run a statement. Nobody waits for its outcome: that it failed is told by the next
        question, or by the commit."""

    def changed(self, statement: str, params: Params = ...) -> int:
        """Run a statement; how many rows it changed."""

    def one(self, statement: str, params: Params = ...) -> Row | None:
        """Its first row, or None."""

    def all(self, statement: str, params: Params = ...) -> list[Row]:
        """All its rows."""

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        """Run a statement once for each of `rows`."""

    def hold(self, name: str, *, shared: bool = False) -> None:
        """Have a name until the end; who wants it meanwhile waits, unless both only share it."""

    def search_entry(self, text: str) -> Any:
        """What its search index takes for a folded text."""

    def search_question(self, phrases: list[Phrase]) -> str:
        """Phrases, all of which must be there, in the language of its search index."""


class Database(Protocol):
    """A place to keep conversations in; the module's head lists its promises."""

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T: ...

    def read(self, work: Callable[[Transaction], T]) -> T: ...

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        """The same as `write`, and nobody else writes from its beginning to its end."""

    @property
    def one_writer(self) -> bool:
        """Whether writes are one after the other anyway, so that `together` costs nobody time."""

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Run calls that write; what they wrote is stored when this returns."""

    def close(self) -> None: ...

    @property
    def is_closed(self) -> bool: ...

    def notify(self, channel: str) -> None:
        """Wake whoever waits for a bell."""

    def notifications(self, channel: str) -> int:
        """A number that grows with every ring; taken before looking, given to `wait`."""

    def wait(self, channel: str, since: int, seconds: float) -> None:
        """Wait until a bell has rung since then, or the time has passed."""

    @property
    def name(self) -> str:
        """Where it is, for people; no secret in it."""

    @property
    def identity(self) -> str:
        """The same for every handle on the same database."""

    def check(self) -> list[str]:
        """Every fault in it, in words; an empty list if it is sound."""

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        """Copy it to a new file while it is in use."""

    def vacuum(self) -> tuple[int, int]:
        """Give unused space back; its size in bytes before and after."""
