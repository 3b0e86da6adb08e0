"""The id by which each person of an account is known, on every machine of the store.

A platform may have two ids for a person and leave one of them out later, as WhatsApp does with a
phone number that is hidden. The first id that was seen stays that of the person, or one
conversation would become two (decision 0040).
"""

from __future__ import annotations

from tertulia.core.arguments import checks_arguments
from tertulia.core.text.storable import storable
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros


@checks_arguments
class PersonIds:
    """The ids of people in a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def remember(self, platform: str, account: str, user_id: str, new_id: str) -> str:
        """Return the id by which a person is known; a new person is known by `new_id`."""
        key = {"platform": platform, "account": account, "user_id": storable(user_id)}
        known_id = self._db.read(lambda tx: _get(tx, key))
        if known_id is not None:
            return known_id
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            tx.run("person_id_insert", {**key, "known_id": storable(new_id), "now": now})

        self._db.write(work, lane="person ids")
        # Of two nodes that saw the person at once, the first counts.
        return self._db.read(lambda tx: _get(tx, key)) or new_id


def _get(tx: Transaction, key: dict[str, str]) -> str | None:
    row = tx.one("person_id_get", key)
    return None if row is None else str(row[0])
