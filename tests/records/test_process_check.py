"""Whether processes run is asked outside the transaction, and only if it has to be known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tertulia import Session, Store
from tertulia.records.process_check import (
    NO_ANSWERS,
    NeedsProcessCheck,
    ProcessAnswers,
    has_running_process,
    is_protected,
    write_with_process_check,
)
from tertulia.storage.base import Transaction
from tertulia.testing import Handles
from tests.records.store_inspection import ANA
from tests.transfer.filled_stores import program


def test_transaction_that_needs_a_check_is_rolled_back_and_run_again(handles: Handles) -> None:
    checked: list[tuple[str, str | None]] = []

    def has_processes(key: str) -> bool:
        checked.append((key, store.sessions.require(session.id).title))
        return key == "busy"

    def work(tx: Transaction, answers: ProcessAnswers) -> tuple[bool, bool]:
        tx.run("session_rename", {"ref": 1, "title": "changed"})
        return (
            is_protected(tx, store.context, "busy", answers),
            is_protected(tx, store.context, "idle", answers),
        )

    store = handles.open(has_active_processes=has_processes)
    session = store.sessions.open(ANA)
    assert write_with_process_check(store.context, work) == (True, False)
    assert checked == [("busy", None), ("idle", None)]
    assert store.sessions.require(session.id).title == "changed"


def test_no_check_is_needed_without_a_function(store: Store) -> None:
    assert not store.context.db.read(lambda tx: is_protected(tx, store.context, "k", NO_ANSWERS))


def test_stored_process_protects_without_a_check(handles: Handles) -> None:
    store = handles.open(has_active_processes=lambda key: False)
    session: Session = store.sessions.open(ANA)
    db, key = store.context.db, session.key
    assert not db.read(lambda tx: has_running_process(tx, key))
    with pytest.raises(NeedsProcessCheck):
        db.read(lambda tx: is_protected(tx, store.context, key, NO_ANSWERS))
    store.processes.begin(replace(program(store), key=key))
    assert db.read(lambda tx: has_running_process(tx, key))
    assert db.read(lambda tx: is_protected(tx, store.context, key, NO_ANSWERS))
