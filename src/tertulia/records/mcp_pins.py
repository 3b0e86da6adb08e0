"""Pinned definitions: the tools of MCP servers as the owner accepted them, and as last seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tertulia.core.arguments import checks_arguments
from tertulia.core.message import from_json, to_json
from tertulia.errors import NotFound
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

Definitions = Mapping[str, Mapping[str, Any]]


class PinnedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one server by name; `offered` is None if it equals the accepted tools."""

    server: str
    accepted: dict[str, dict[str, Any]]
    offered: dict[str, dict[str, Any]] | None
    accepted_at: datetime


@checks_arguments
class McpPins:
    """The pinned definitions of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def find(self) -> list[PinnedTools]:
        """Return the pinned tools of all servers."""
        return [_to_pins(row) for row in self._db.read(lambda tx: tx.all("mcp_pins_all"))]

    def get(self, server: str) -> PinnedTools | None:
        """Return the pinned tools of a server, or None if it has never offered any."""
        return self._db.read(lambda tx: _get(tx, server))

    def note_offered(self, server: str, definitions: Definitions) -> bool:
        """Store a server's tool definitions; return whether the owner must be told of a change.

        The first definitions are accepted, because the owner added the server. Later ones are
        stored as offered. The owner must be told if they differ from the accepted definitions and
        from those offered before.
        """
        text = to_json(definitions)
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> bool:
            pins = _get(tx, server)
            if pins is None:
                tx.run("mcp_pins_insert", {"server": server, "accepted": text, "now": now})
                return False
            offered = from_json(text)
            is_accepted = offered == pins.accepted
            if offered == pins.offered or (is_accepted and pins.offered is None):
                return False
            params = {"server": server, "seen": None if is_accepted else text, "now": now}
            tx.run("mcp_pins_set_seen", params)
            return not is_accepted

        return self._db.write(work, lane="mcp pins")

    def accept(self, server: str) -> PinnedTools:
        """Accept the tools of a server as it last offered them, and return them.

        Raise `NotFound` if it has never offered any.
        """
        params = {"server": server, "now": to_micros(self._context.clock.now())}

        def work(tx: Transaction) -> PinnedTools:
            tx.run("mcp_pins_accept", params)
            pins = _get(tx, server)
            if pins is None:
                raise NotFound(
                    f"Nothing is known of the MCP server {server!r} yet.",
                    hint=f"Look at it first: tertulia mcp check {server}",
                )
            return pins

        return self._db.write(work, lane="mcp pins")

    def delete(self, server: str) -> None:
        """Forget the definitions of a server; an unknown one changes nothing."""
        self._db.write(lambda tx: tx.run("mcp_pins_delete", {"server": server}), lane="mcp pins")


def _get(tx: Transaction, server: str) -> PinnedTools | None:
    row = tx.one("mcp_pins_get", {"server": server})
    return None if row is None else _to_pins(row)


def _to_pins(row: Row) -> PinnedTools:
    server, accepted, offered, accepted_at = row
    return PinnedTools(
        server=server,
        accepted=from_json(accepted),
        offered=None if offered is None else from_json(offered),
        accepted_at=from_micros(accepted_at),
    )
