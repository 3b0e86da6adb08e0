"""Sessions: reset, switch, fork, rename and explain."""

from __future__ import annotations

import pytest

from tertulia import AccessDenied, ConfigError, Duplicate, NotFound, StaleWrite, Store
from tests.records.store_inspection import ANA, BEN


def test_reset_of_an_unknown_key_returns_none(store: Store) -> None:
    assert store.sessions.reset("nobody") is None


def test_switch_makes_an_earlier_session_current(store: Store) -> None:
    first = store.sessions.open(ANA)
    second = store.sessions.reset(first.key)
    assert second is not None
    assert store.sessions.switch(first.key, first.id).ended_at is None
    assert store.sessions.require(second.id).end_reason == "switch"
    with pytest.raises(AccessDenied):
        store.sessions.switch(store.sessions.key(BEN), second.id)


def test_fork_needs_a_visible_message(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.transcript(session.id).append({"role": "user", "content": "a"})
    with pytest.raises(NotFound):
        store.sessions.fork(session.id, at=2)
    assert store.sessions.fork(session.id, at=1).parent_id == session.id


def test_end_needs_a_reason_and_keeps_the_first(store: Store) -> None:
    session = store.sessions.open(ANA)
    with pytest.raises(ConfigError):
        store.sessions.end(session.id, "")
    assert store.sessions.end(session.id, "done").end_reason == "done"
    assert store.sessions.end(session.id, "again").end_reason == "done"


def test_titles_are_unique_for_their_owner(store: Store) -> None:
    first, bens = store.sessions.open(ANA), store.sessions.open(BEN)
    store.sessions.rename(first.id, "Sevilla")
    store.sessions.rename(bens.id, "Sevilla")
    second = store.sessions.reset(first.key)
    assert second is not None
    with pytest.raises(Duplicate):
        store.sessions.rename(second.id, "Sevilla")
    store.transcript(second.id).append({"role": "user", "content": "Sevilla"})
    suggested = store.sessions.suggest_title(second.id)
    assert suggested is not None
    assert suggested != "Sevilla"
    store.sessions.rename(first.id, None)
    assert store.sessions.rename(second.id, "Sevilla").title == "Sevilla"


def test_metadata_with_an_old_version_is_refused(store: Store) -> None:
    session = store.sessions.open(ANA)
    changed = store.sessions.set_metadata(session.id, {"n": 1}, version=session.version)
    with pytest.raises(StaleWrite):
        store.sessions.set_metadata(session.id, {"n": 2}, version=session.version)
    assert dict(store.sessions.require(session.id).metadata) == {"n": 1}
    assert changed.version > session.version


def test_explain_lists_the_events(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.sessions.rename(session.id, "Sevilla")
    store.sessions.end(session.id, "done")
    text = store.sessions.explain(session.id)
    lines = text.splitlines()
    assert lines[0] == f"Session {session.id} of {session.key}"
    assert [line.split("  ", 1)[1] for line in lines[1:4]] == [
        "began",
        "renamed: title Sevilla",
        "ended: reason done",
    ]
    assert lines[-1].startswith("Policy: ")


def test_explain_has_one_line_for_each_event(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.sessions.end(session.id, "done\n2026-01-01 00:00:00 UTC  resumed\u202e" + "x" * 9_000)
    lines = store.sessions.explain(session.id).splitlines()
    assert len(lines) == 4
    assert lines[2].split("  ", 1)[1].startswith("ended: reason done 2026-01-01")
    assert len(lines[2]) < 600
    assert "\u202e" not in lines[2]
