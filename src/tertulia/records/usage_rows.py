"""The rows of one model call: its row in the ledger, and the sums it is added to."""

from __future__ import annotations

from tertulia.storage.base import Params, Transaction


def insert_call(tx: Transaction, params: Params) -> None:
    """Enter one model call; call this at the end of a transaction.

    Calls of a person in the same quarter of an hour change the same row of the sums. Whoever has it
    waits for nothing more, so that no two transactions wait for each other.
    """
    tx.run("usage_insert", params)
    tx.run("usage_sums_add", params)
