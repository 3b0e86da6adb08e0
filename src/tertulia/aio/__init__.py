"""The same store, to be awaited: `store = await tertulia.aio.open("talk.db")`.

    async with tertulia.aio.open("talk.db") as store:
        async with store.turn(source, "hola") as turn:
            await turn.add_assistant("¡hola!")

Each call hops to a thread once, for its whole transaction, so that nothing blocks the event loop
and a cancelled task cannot tear a transaction: what it began is committed or not, as a whole.
"""

from __future__ import annotations

from tertulia.aio.opening import open as open
from tertulia.aio.records import (
    Inbox,
    Ledger,
    Outbox,
    People,
    Sessions,
    Store,
    Transcript,
    Visible,
)
from tertulia.aio.turns import Turn

__all__ = [
    "Inbox",
    "Ledger",
    "Outbox",
    "People",
    "Sessions",
    "Store",
    "Transcript",
    "Turn",
    "Visible",
]
