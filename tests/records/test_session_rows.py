"""Session rows: ids, owners and errors that all records share."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tertulia import NotFound, Source, Store
from tertulia.errors import ConfigError, StaleWrite
from tertulia.records import session_rows
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow
from tests.records.store_inspection import ANA, let_lease_run_out

GROUP = Source("telegram", "-100", chat_type="group", user_id="42")


def test_require_names_the_unknown_session(store: Store) -> None:
    with pytest.raises(NotFound, match="nobody") as caught:
        store.context.db.read(lambda tx: session_rows.require(tx, "nobody"))
    assert caught.value.code == "not_found"


def test_current_session_is_found_by_its_key_until_it_ends(store: Store) -> None:
    def get_current() -> SessionRow | None:
        return store.context.db.read(lambda tx: session_rows.get_current(tx, session.key))

    session = store.sessions.open(ANA)
    row = get_current()
    assert row is not None
    assert row.id == session.id
    store.sessions.end(session.id, "done")
    assert get_current() is None


def test_metadata_is_replaced_unless_the_version_is_old(store: Store) -> None:
    session = store.sessions.open(ANA)

    def replace_metadata(version: int | None) -> None:
        def work(tx: Transaction) -> None:
            row = session_rows.require(tx, session.id)
            session_rows.set_metadata(tx, row, {"version": version}, version=version)

        store.context.db.write(work)

    replace_metadata(session.version)
    with pytest.raises(StaleWrite):
        replace_metadata(session.version)
    assert dict(store.sessions.require(session.id).metadata) == {"version": session.version}
    replace_metadata(None)
    assert dict(store.sessions.require(session.id).metadata) == {"version": None}


def test_title_is_free_unless_another_session_of_the_owner_has_it(store: Store) -> None:
    session = store.sessions.rename(store.sessions.open(ANA).id, "Trip")
    row = store.context.db.read(lambda tx: session_rows.require(tx, session.id))

    def is_free(owner: str, ref: int) -> bool:
        return store.context.db.read(
            lambda tx: session_rows.is_title_free(tx, owner, "Trip", ref=ref)
        )

    assert is_free(row.owner, row.ref)
    assert not is_free(row.owner, 0)
    assert is_free("somebody else", 0)


def test_a_session_id_begins_with_its_second(store: Store) -> None:
    session = store.sessions.open(ANA)
    assert session.id.startswith(f"{session.created_at:%Y%m%d_%H%M%S}_")


def test_a_shared_chat_has_no_owner(store: Store) -> None:
    context = store.context
    assert session_rows.owner_person(ANA, context) is not None
    assert session_rows.owner_person(GROUP, context) is not None
    thread = Source("telegram", "-100", chat_type="group", user_id="42", thread_id="7")
    is_shared = store.settings.thread_sessions_shared
    assert (session_rows.owner_person(thread, context) is None) == is_shared


def test_a_turn_is_running_until_its_lease_expires(store: Store) -> None:
    def is_running() -> bool:
        def work(tx: Transaction) -> bool:
            row = session_rows.require(tx, turn.session.id)
            return session_rows.has_running_turn(tx, row)

        return store.context.db.read(work)

    with store.turn(ANA, "hello") as turn:
        assert is_running()
        let_lease_run_out(store, turn.session)
        assert not is_running()


def test_errors_of_secondary_work_are_logged_and_not_raised(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ConfigError("no room", hint="make room", field="room")

    with caplog.at_level(logging.WARNING, logger="tertulia"):
        session_rows.log_errors(fail)
        session_rows.log_errors(lambda: store.sessions.require("never stored"))
    assert "no room" in caplog.text
    assert "never stored" not in caplog.text
    with pytest.raises(ZeroDivisionError):
        session_rows.log_errors(lambda: 1 / 0)


def test_touch_stores_the_last_activity(store: Store) -> None:
    session = store.sessions.open(ANA)
    later = session.updated_at + timedelta(hours=1)
    context = store.context
    context.write(lambda tx: session_rows.touch(tx, session_rows.require(tx, session.id), later))
    assert store.sessions.require(session.id).updated_at == later
