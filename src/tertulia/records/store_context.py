"""The context that all records of one open store share: database, settings, clock, time zone.

`Store.context` is also the inner interface for the other packages that work on a store (`compat`,
`integrations`, `transfer`). They may rely on these promises:

1. `read(work)` and `write(work)` run `work` in one transaction, with the promises of
   `tertulia.storage.base`: all or nothing, durable, serial, and `work` may run more than once.
2. `work` gets the transaction only to pass it to functions of `records` and `storage`. Statements,
   tables and the database itself are theirs; `make lint` refuses them elsewhere.
3. After a write that stored messages, `notify_indexer()` makes them searchable soon.
4. `settings`, `clock` and `zone` do not change while the store is open.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import Final, NamedTuple, TypeVar

from tertulia.core.clock import Clock
from tertulia.core.settings import Settings, require_zone
from tertulia.core.text.excerpt import short_repr
from tertulia.core.text.redact import Redactor
from tertulia.errors import Error, ProcessCheckFailed
from tertulia.storage.base import Database, Transaction

T = TypeVar("T")

# A node that has not reported for so long does not run any more.
FRESH_SECONDS: Final = 30.0


class TerminalNode:
    """The node of this process, if it serves the terminal; `Nodes.serve_terminal` sets it."""

    name: str | None = None


class StoreContext(NamedTuple):
    """The parts of one open store that its records use."""

    db: Database
    settings: Settings
    clock: Clock
    zone: tzinfo
    notify_indexer: Callable[[], None]  # wakes the indexer: there are new messages
    index_new_messages: Callable[[], object]  # indexes new messages, in a bounded number of steps
    redactor: Callable[[], Redactor | None]  # for prompts and logs; None if redaction is off
    forget_secret: Callable[[], None]  # the stored secret was replaced: read it again when needed
    terminal: TerminalNode

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in one read transaction and return its result."""
        return self.db.read(work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in one write transaction and return its result when it is stored."""
        return self.db.write(work)

    def redacted_key(self, key: str) -> str:
        """Return a key as logs may show it: redacted if `Settings.redact_pii` is on."""
        redactor = self.redactor()
        return key if redactor is None else redactor.key(key)

    def has_processes(self, key: str) -> bool:
        """Return whether processes run for a conversation.

        This calls user code (`Settings.has_active_processes`): never within a transaction. Raise
        `ProcessCheckFailed` if that fails; an `Error`, such as one of this store, is passed on.
        """
        guard = self.settings.has_active_processes
        try:
            return bool(guard and guard(key))
        except Error:
            raise
        except Exception as problem:
            raise ProcessCheckFailed(
                f"has_active_processes failed: {short_repr(problem)}. Nothing was changed.",
                hint="Repair the function that the settings of this store have.",
            ) from problem

    def zone_of(self, person_zone: str | None) -> tzinfo:
        """Return the zone of that name, or the store's zone for None."""
        return self.zone if person_zone is None else require_zone(person_zone)
