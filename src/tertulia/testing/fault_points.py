"""Fault points: something is called right before and right after each commit of a store.

A test dies there, raises there, or counts:

    watch(store, lambda number, moment: die() if (number, moment) == (3, "before") else None)

Before a commit, all statements of the transaction have run; after it, only the caller does not
know yet. What is called before a commit may raise, and then nothing is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tertulia.storage.base import Transaction
from tertulia.store import Store

T = TypeVar("T")

Moment = Literal["before", "after"]


def watch(store: Store, call: Callable[[int, Moment], Any]) -> None:
    """Call `call(number, moment)` around the write transactions of this handle, counted from 1.

    Only those of the calling thread: what renews leases and what indexes go on undisturbed.
    """
    write = store.context.db.write
    thread = threading.get_ident()
    number = 0

    def watched(work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        nonlocal number
        if threading.get_ident() != thread:
            return write(work, lane=lane)
        number += 1

        def to_the_end(tx: Transaction) -> T:
            result = work(tx)
            call(number, "before")
            return result

        result = write(to_the_end, lane=lane)
        call(number, "after")
        return result

    setattr(store.context.db, "write", watched)  # noqa: B010 — a type checker lets no method be replaced
