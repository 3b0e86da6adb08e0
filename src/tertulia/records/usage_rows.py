"""The row of one model call."""

from __future__ import annotations

from tertulia.storage.base import Params, Transaction


def insert_call(tx: Transaction, params: Params) -> None:
    """Enter one model call. It is added to the sums later (`usage_running`)."""
    tx.run("usage_insert", params)
