"""Sessions are imported once, and never mixed with what the store has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Source, Store
from tertulia.errors import StaleWrite
from tertulia.transfer import Report, import_from
from tertulia.transfer.importers import importer
from tests.transfer.foreign_folders import SETTINGS, all_sessions, dump, planted
from tests.transfer.importers.source_files import HEAD, HELLO, kinds, write


def test_next_import_adds_new_messages(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    more = {"role": "assistant", "content": "hi", "timestamp": "2026-03-01T10:00:02"}
    write(folder / "telegram_42.jsonl", HEAD, HELLO, more)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.sessions, report.messages, report.skipped) == (1, 1, 0)
    (session,) = all_sessions(store)
    assert store.transcript(session.id).load() == [HELLO, more]


def test_concurrent_imports_store_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "_BATCH_MESSAGES", 5)
    folder = planted("nanobothead_migrated", tmp_path)
    others: list[Report] = []

    def meanwhile(done: int, total: int) -> None:
        if not others:
            others.append(Report())
            with tertulia.open(store.path, settings=SETTINGS) as other:
                others.append(import_from(other, "nanobot", folder))

    with pytest.raises(StaleWrite, match="Another import"):
        import_from(store, "nanobot", folder, progress=meanwhile)
    assert others[1].sessions == 8
    before = dump(store)
    assert import_from(store, "nanobot", folder).skipped == 8
    assert dump(store) == before


def test_rewritten_source_changes_nothing(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    before = dump(store)
    write(folder / "telegram_42.jsonl", HEAD, {**HELLO, "content": "other"}, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, kinds(report)) == (0, {"changed_since_import"})
    assert dump(store) == before


def test_new_messages_on_both_sides_are_not_mixed(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    (session,) = all_sessions(store)
    store.transcript(session.id).append({"role": "user", "content": "here"})
    write(folder / "telegram_42.jsonl", HEAD, HELLO, {**HELLO, "content": "there"})
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, kinds(report)) == (0, {"continued_here"})
    assert [m["content"] for m in store.transcript(session.id).load()] == ["hello", "here"]


def test_newer_session_of_the_store_stays_current(store: Store, folder: Path) -> None:
    here = store.sessions.open(Source("telegram", "42"))
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert kinds(report) == {"key_in_use"}
    current = store.sessions.current(here.key)
    assert current is not None
    assert current.id == here.id
    (other,) = [session for session in all_sessions(store) if session.id != here.id]
    assert (other.key, other.end_reason) == (here.key, "imported")


def test_shared_conversation_belongs_to_nobody(store: Store, tmp_path: Path) -> None:
    import_from(store, "hermes", planted("hermes002_main", tmp_path))
    shared = store.sessions.current("agent:main:telegram:dm")
    assert shared is not None
    assert store.sessions.find(person="telegram:5550100001").items == ()
    assert store.for_person(shared.origin).find().items == ()
    assert store.sessions.open(shared.origin).id != shared.id


def test_policy_uses_the_imported_activity(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    (old,) = all_sessions(store)
    assert old.ended_at is None
    new = store.sessions.open(Source("telegram", "42"))
    assert new.id != old.id
    assert store.sessions.require(old.id).end_reason in ("idle", "daily")


def test_metadata_nested_too_deeply_stops_no_import(store: Store, folder: Path) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    write(
        folder / "telegram_1.jsonl", {**HEAD, "key": "telegram:1", "metadata": {"x": deep}}, HELLO
    )
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.sessions, report.messages) == (2, 2)
    assert kinds(report) == {"metadata_not_storable"}
    origins = [session.metadata["imported"]["key"] for session in all_sessions(store)]
    assert sorted(origins) == ["telegram:1", "telegram:42"]
    assert import_from(store, "nanobot", folder.parent).skipped == 2


def test_deleted_session_can_be_imported_again(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    (session,) = all_sessions(store)
    store.sessions.delete(session.id)
    assert import_from(store, "nanobot", folder.parent).sessions == 1


@st.composite
def mangled(draw: st.DrawFn, sound: bytes) -> bytes:
    """A file with some of its bytes cut out, doubled, or replaced."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        first = draw(st.integers(0, len(data) - 1))
        last = min(len(data), first + draw(st.integers(0, 400)))
        match draw(st.sampled_from(["cut", "double", "noise", "end"])):
            case "cut":
                del data[first:last]
            case "double":
                data[first:first] = data[first:last]
            case "noise":
                data[first:last] = draw(st.binary(max_size=40))
            case _:
                del data[first:]
    return bytes(data)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sound")
    trees = {
        "hermes": "dmg_hermes001_crlf",
        "nanobot": "nanobothead_migrated",
        "database": "hermes019_moved_home",
    }
    return {name: planted(tree, place) for name, tree in trees.items()}


@pytest.mark.parametrize("name", ["hermes", "nanobot", "database"])
@settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_mangled_sources_never_crash_the_import(
    name: str, sound: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home = sound[name]
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.stat().st_size)
    if name == "database":
        files = [home / "state.db"]
    chosen = data.draw(st.sampled_from(files))
    whole = chosen.read_bytes()
    place = tmp_path_factory.mktemp("mangled")
    kind: Any = "nanobot" if name == "nanobot" else "hermes"
    try:
        chosen.write_bytes(data.draw(mangled(whole)))
        with tertulia.open(place / "talk.db", settings=SETTINGS) as store:
            report = import_from(store, kind, home)
            found = dump(store)
            assert sum(len(s["messages"]) for s in found["sessions"].values()) == report.messages
            assert store.check() == []
            again = import_from(store, kind, home)
            assert (again.sessions, again.messages) == (0, 0)
            assert dump(store) == found
    finally:
        chosen.write_bytes(whole)
