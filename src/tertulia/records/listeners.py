"""Accounts of chat platforms across nodes: which node listens, the stored cursor, and problems.

A lease is held by one node and identified by its epoch, which every takeover raises. All times come
from the database, so that the clocks of the nodes do not matter (decision 0019). If that clock is
set back, a lease that ends further in the future than a new one would is treated as expired.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

import msgspec

from tertulia.core import keys
from tertulia.core.arguments import checks_arguments
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import LeaseLost
from tertulia.records.queues.base import lease_micros
from tertulia.records.store_context import FRESH_SECONDS, StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "listeners"
# A node that dies is replaced after at most this time; a node that lives renews in a third of it.
LEASE_SECONDS = 15.0
_FORGET_SECONDS: Final = 86_400.0
_POLL_SECONDS: Final = 1.0


class ListenerLease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one node to listen for an account, and the cursor to begin at."""

    platform: str
    account: str
    node: str
    epoch: int
    cursor: str | None = None


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of one node to an account, as the node last reported it.

    `is_fresh` is False if the report is old: the node does not run any more, or cannot reach the
    database.
    """

    platform: str
    account: str
    node: str
    listening: bool
    since: datetime | None = None
    heard_at: datetime | None = None
    problem: str | None = None
    is_fresh: bool = True


@checks_arguments
class Listeners:
    """The listeners of a store's accounts."""

    def __init__(self, context: StoreContext) -> None:
        self._db = context.db

    def claim(
        self, platform: str, account: str, node: str, *, lease_seconds: float = LEASE_SECONDS
    ) -> ListenerLease | None:
        """Take the lease of an account for a node; return None while another node has it."""
        params = {
            "platform": platform,
            "account": account,
            "node": node,
            "lease": lease_micros(lease_seconds),
        }
        row = self._db.write(lambda tx: tx.one("listener_claim", params))
        if row is None:
            return None
        epoch, cursor = row
        return ListenerLease(
            platform=platform, account=account, node=node, epoch=epoch, cursor=cursor
        )

    def wait(self, platform: str, account: str, seconds: float) -> bool:
        """Wait until no node has the lease of an account; return False after `seconds`."""
        lease = lease_micros(LEASE_SECONDS)
        params = {"platform": platform, "account": account, "lease": lease}
        deadline = time.monotonic() + seconds
        while True:
            notifications = self._db.notifications(CHANNEL)
            row = self._db.read(lambda tx: tx.one("listener_is_free", params))
            if row is not None and row[0]:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._db.wait(CHANNEL, notifications, min(left, _POLL_SECONDS))

    def renew(self, lease: ListenerLease, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Extend a lease; raise `LeaseLost` if another node has taken it over."""
        params = {**_params(lease), "lease": lease_micros(lease_seconds)}
        if self._db.write_quietly(lambda tx: tx.changed("listener_renew", params)) == 0:
            raise _lease_lost(lease.platform)

    def advance(self, lease: ListenerLease, cursor: str) -> None:
        """Store the cursor to continue from; raise `LeaseLost` if another node listens now.

        Everything that the platform sent before this cursor must be stored already.
        """
        params = {**_params(lease), "cursor": storable(cursor)}
        if self._db.write(lambda tx: tx.changed("listener_advance", params)) == 0:
            raise _lease_lost(lease.platform)

    def release(self, lease: ListenerLease) -> None:
        """Give a lease back, so that another node takes it at once."""
        self._db.write(lambda tx: tx.run("listener_release", _params(lease)))
        self._db.notify(CHANNEL)

    def report(self, connection: Connection) -> None:
        """Store the connection of a node to an account."""
        params = {
            "platform": connection.platform,
            "account": connection.account,
            "node": connection.node,
            "listening": int(connection.listening),
            "since": _optional_micros(connection.since),
            "heard_at": _optional_micros(connection.heard_at),
            "problem": storable(connection.problem),
        }
        self._db.write_quietly(lambda tx: tx.run("connection_report", params))

    def forget(self, node: str) -> None:
        """Delete the connections of a node that stops, and those of nodes gone for a day."""
        params = {"node": node, "age": round(_FORGET_SECONDS * 1e6)}
        self._db.write(lambda tx: tx.run("connection_forget", params))

    def connections(self) -> list[Connection]:
        """Return the connections of all nodes, by platform, account and node."""
        params = {"age": round(FRESH_SECONDS * 1e6)}
        return self._db.read(lambda tx: [*map(_to_connection, tx.all("connection_find", params))])

    def admit_bot(
        self, source: Source, message_id: str, *, limit: int = 20, seconds: float = 60
    ) -> bool:
        """Count a message of another program; return False if its chat had too many lately.

        The same message is counted once.
        """
        chat = ":".join(map(keys.key_part, (source.platform, source.account, source.chat_id)))

        def work(tx: Transaction) -> bool:
            tx.run("bot_message_forget", {"seconds": round(seconds * 1e6)})
            message = {"chat": chat, "message_id": keys.key_part(message_id)}
            if tx.changed("bot_message_put", message) == 0:
                return True
            (count,) = tx.one("bot_message_count", {"chat": chat}) or (0,)
            return int(count) <= limit

        return self._db.write(work, lane=f"bots {chat}")


def _lease_lost(platform: str) -> LeaseLost:
    return LeaseLost(
        f"Another node listens for {platform} now.",
        hint="Stop listening: the other node goes on from the stored cursor.",
    )


def _params(lease: ListenerLease) -> dict[str, str | int]:
    return {"platform": lease.platform, "account": lease.account, "epoch": lease.epoch}


def _to_connection(row: Row) -> Connection:
    platform, account, node, listening, since, heard_at, problem, is_fresh = row
    return Connection(
        platform=platform,
        account=account,
        node=node,
        listening=bool(listening),
        since=None if since is None else from_micros(since),
        heard_at=None if heard_at is None else from_micros(heard_at),
        problem=problem,
        is_fresh=bool(is_fresh),
    )


def _optional_micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)
