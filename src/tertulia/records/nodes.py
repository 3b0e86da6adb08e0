"""Nodes: the gateways that work on a store, each with its sign of life.

A message that was typed in the terminal of a node is claimed by that node alone, while it shows
signs of life (`part_is_ours`, decision 0039); everything else is decided by leases. Times are those
of the database.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from tertulia.core.arguments import checks_arguments
from tertulia.core.text.storable import storable
from tertulia.process_identity import has_ended, own_identity
from tertulia.records import listeners
from tertulia.records.queues import inbox, outbox
from tertulia.records.queues.base import lease_micros
from tertulia.records.store_context import FRESH_SECONDS, StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros

_FORGET_SECONDS: Final = 86_400.0
_MOST_NODES: Final = 1000


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as it last reported itself: when it began, and how many turns it was running.

    `is_fresh` is False if it has not reported lately: it does not run any more, or cannot reach
    the database.
    """

    name: str
    version: str
    turns: int
    began_at: datetime
    seen_at: datetime
    is_fresh: bool


class AccountLease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of the node that listens for an account; `epoch` counts the takeovers."""

    platform: str
    account: str
    node: str
    epoch: int
    until: datetime
    is_held: bool


@checks_arguments
class Nodes:
    """The nodes of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def serve_terminal(self, name: str, *, version: str) -> None:
        """Let this handle of the store claim and put what belongs to the terminal of a node."""
        self.report(name, version=version, turns=0)
        self._context.terminal.name = storable(name)

    def report(self, name: str, *, version: str, turns: int) -> None:
        """Store that a node lives, and how many turns it runs."""
        params = {
            "name": storable(name),
            "version": version,
            "turns": turns,
            "process": own_identity(),
        }
        self._db.write_quietly(lambda tx: tx.run("node_report", params))

    def forget(self, name: str) -> None:
        """Delete a node that stops, and those that have been silent for a day."""
        self._db.write(lambda tx: _forget(tx, storable(name)))

    def forget_ended(self) -> list[str]:
        """Delete the nodes whose process has ended on this machine; return their names.

        Nobody has to wait for their leases: messages that they were answering, deliveries to their
        terminal and accounts that they listened for are free at once. Their turns are free anyway:
        see `session_rows.has_holder_ended`.
        """
        rows = self._db.read(lambda tx: tx.all("nodes_processes", {"limit": _MOST_NODES}))
        names = [name for name, process in rows if has_ended(process)]
        for name in names:
            self._db.write(partial(_forget_ended, name))
        if names:
            for channel in (inbox.CHANNEL, outbox.CHANNEL, listeners.CHANNEL):
                self._db.notify(channel)
        return names

    def find(self) -> list[Node]:
        """Return the nodes, the one that began first at the beginning."""
        params = {"age": round(FRESH_SECONDS * 1e6), "limit": _MOST_NODES}
        return [_to_node(row) for row in self._db.read(lambda tx: tx.all("nodes_find", params))]

    def leases(self) -> list[AccountLease]:
        """Return who listens for each account, by platform and account."""
        params = {"limit": _MOST_NODES, "lease": lease_micros(listeners.LEASE_SECONDS)}
        rows = self._db.read(lambda tx: tx.all("listeners_find", params))
        return [
            AccountLease(
                platform=platform,
                account=account,
                node=node,
                epoch=epoch,
                until=from_micros(until),
                is_held=bool(is_held),
            )
            for platform, account, node, epoch, until, is_held in rows
        ]


def _forget(tx: Transaction, name: str) -> None:
    tx.run("node_forget", {"name": name, "age": round(_FORGET_SECONDS * 1e6)})


def _forget_ended(name: str, tx: Transaction) -> None:
    for statement in ("node_end_claims", "node_end_sending", "node_end_listening"):
        tx.run(statement, {"name": name})
    _forget(tx, name)


def _to_node(row: Row) -> Node:
    name, version, turns, began_at, seen_at, is_fresh = row
    return Node(
        name=name,
        version=version,
        turns=turns,
        began_at=from_micros(began_at),
        seen_at=from_micros(seen_at),
        is_fresh=bool(is_fresh),
    )
