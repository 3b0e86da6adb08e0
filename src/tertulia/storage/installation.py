"""Values that belong to a store as a whole, by name: its secret, watermarks, notes of a move."""

from __future__ import annotations

from tertulia.errors import StoreError
from tertulia.storage.base import Transaction


def get(tx: Transaction, name: str) -> str | None:
    """Return the value of a name, or None."""
    row = tx.one("installation_get", {"name": name})
    return None if row is None else row[0]


def require(tx: Transaction, name: str) -> str:
    """Return the value of a name; raise `StoreError` if the store has none."""
    value = get(tx, name)
    if value is None:
        raise StoreError(f"The store has no value {name!r}.", hint="Run: tertulia store check")
    return value


def put(tx: Transaction, name: str, value: str) -> None:
    """Store a value under a name, in place of the one before."""
    tx.run("installation_set", {"name": name, "value": value})


def delete(tx: Transaction, name: str) -> None:
    """Delete the value of a name, if there is one."""
    tx.run("installation_delete", {"name": name})
