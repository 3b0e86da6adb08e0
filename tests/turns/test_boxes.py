"""The boxes in SQLite. What both databases promise of them is in `tertulia.testing`."""

from __future__ import annotations

import pytest

from tertulia import Store
from tests.records.store_inspection import ANA, ask
from tests.storage.inside import sqlite_of


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["outbox_lost", "outbox_claim", "inbox_expire", "inbox_claim"])
def test_claiming_looks_at_what_is_not_settled_only(store: Store, name: str) -> None:
    """However much was sent and answered before."""
    params = {"now": 1, "lease": 1, "limit": 1}
    plan = sqlite_of(store).alone(
        lambda connection: connection.execute(
            f"explain query plan {sqlite_of(store)._sql[name]}", params
        ).fetchall()
    )
    steps = [str(row[3]) for row in plan]
    assert steps
    for step in steps:
        assert (
            not step.startswith("SCAN") or "_due" in step or "_sending" in step or "_taken" in step
        )


def test_nothing_settled_is_lost(store: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    store.outbox.done(*store.outbox.claim())
    store.inbox.put(ANA, "hello")
    store.inbox.done(*store.inbox.claim())
    assert ask(store, "select count(*) from outbox") == 1
    assert ask(store, "select count(*) from inbox") == 1
