"""Input that nobody wrote by accident, and some that somebody did."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Store
from tertulia.errors import ConfigError, NotFound, StaleWrite
from tertulia.transfer import (
    Report,
    import_from,
)
from tertulia.transfer.importers import (
    importer,
    safe_files,
)
from tests.transfer.trees import SETTINGS, all_sessions, dump, planted, print_of

HEAD = {
    "_type": "metadata",
    "key": "telegram:42",
    "created_at": "2026-03-01T10:00:00",
    "updated_at": "2026-03-01T11:00:00",
    "metadata": {},
    "last_consolidated": 0,
}
ORIGIN: dict[str, Any] = {"platform": "telegram", "chat_id": "42"}
HELLO = {"role": "user", "content": "hello", "timestamp": "2026-03-01T10:00:01"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "there" / "sessions"
    made.mkdir(parents=True)
    return made


def write(path: Path, *rows: Any) -> None:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")


def kinds(report: Report) -> set[str]:
    return {problem.kind for problem in report.problems}


def test_a_line_of_thirty_megabytes(store: Store, folder: Path) -> None:
    words = "x" * 30_000_000
    write(folder / "telegram_42.jsonl", HEAD, HELLO, {"role": "assistant", "content": words})
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, report.problems) == (2, ())
    (session,) = all_sessions(store)
    assert store.transcript(session.id).load()[1]["content"] == words


def test_a_line_that_is_longer_than_memory_should_hold(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_files, "LONGEST_LINE", 1000)
    long = {"role": "user", "content": "x" * 5000}
    write(folder / "telegram_42.jsonl", HEAD, long, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert report.messages == 1
    assert [(p.kind, p.line) for p in report.problems] == [("line_too_long", 2)]


def test_ten_thousand_files(store: Store, folder: Path) -> None:
    for number in range(10_000):
        write(folder / f"telegram_{number}.jsonl", {**HEAD, "key": f"telegram:{number}"}, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.sessions, report.messages, report.problems) == (10_000, 10_000, ())
    assert store.sessions.count() == 10_000


def test_keys_that_collide_in_file_names_stay_apart(store: Store, folder: Path) -> None:
    for number, key in enumerate(["a:b_c", "a:b:c", "a_b:c", "a:b%3Ac", "a:b~c", "A:b_c"]):
        write(folder / f"a_b_c {number}.jsonl", {**HEAD, "key": key}, HELLO)
    assert import_from(store, "nanobot", folder.parent).sessions == 6
    assert len({session.key for session in all_sessions(store)}) == 6


ODD: list[Any] = [None, True, -1, 1.5, 10**30, 1e400, "", "\ud800", "\0", [], {}, [[[]]], {"a": {}}]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_the_wrong_type_in_every_field_of_nanobot(store: Store, folder: Path, value: Any) -> None:
    for number, name in enumerate(HEAD):
        write(
            folder / f"telegram_{number}.jsonl", {**HEAD, "key": f"telegram:{number}", name: value}
        )
    fields = (
        "role",
        "content",
        "timestamp",
        "tool_calls",
        "tool_call_id",
        "name",
        "media",
        "_type",
    )
    rows = [{**HELLO, name: value} for name in fields]
    write(folder / "telegram_99.jsonl", {**HEAD, "key": "telegram:99"}, *rows, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert report.sessions == len(HEAD) + 1
    found = [s for s in all_sessions(store) if s.metadata["imported"].get("key") == "telegram:99"]
    lost = {p.line for p in report.problems if p.file.endswith("99.jsonl")}
    # A `_type` makes a record of a row, and a record is kept with the session.
    assert len(store.transcript(found[0].id).load()) >= len(rows) - len(lost)
    assert store.check() == []
    for session in all_sessions(store):
        store.transcript(session.id).history()


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_the_wrong_type_in_every_field_of_hermes(store: Store, folder: Path, value: Any) -> None:
    entry: dict[str, Any] = {
        "session_key": "agent:main:telegram:dm:42", "session_id": "20260301_100000_aaaaaaaa",
        "created_at": "2026-03-01T10:00:00", "updated_at": "2026-03-01T11:00:00",
        "display_name": "Ana", "platform": "telegram", "chat_type": "dm", "input_tokens": 1,
        "output_tokens": 2, "total_tokens": 3, "last_prompt_tokens": 4, "estimated_cost_usd": 0.5,
        "cost_status": "estimated", "origin": ORIGIN,
    }  # fmt: skip
    index = {}
    for number, name in enumerate(entry):
        session_id = f"20260301_100000_{number:08x}"
        index[f"k{number}"] = {
            **entry,
            "session_key": f"k{number}",
            "session_id": session_id,
            name: value,
        }
        write(folder / f"{session_id}.jsonl", HELLO)
    for number, name in enumerate(ORIGIN):
        session_id = f"20260301_100001_{number:08x}"
        origin = {**ORIGIN, name: value}
        index[f"o{number}"] = {
            **entry,
            "session_key": f"o{number}",
            "session_id": session_id,
            "origin": origin,
        }
        write(folder / f"{session_id}.jsonl", HELLO)
    (folder / "sessions.json").write_text(json.dumps(index))
    report = import_from(store, "hermes", folder.parent)
    assert report.messages == len(entry) + 2
    assert store.check() == []
    assert len(dump(store)["sessions"]) == report.sessions


def test_parents_in_a_circle(store: Store, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    db = sqlite3.connect(home / "state.db")
    db.execute(
        "create table sessions (id text, source text, parent_session_id text, started_at real)"
    )
    db.execute(
        "create table messages (id integer primary key, session_id text, role text, content text)"
    )
    circle = {"s1": "s2", "s2": "s3", "s3": "s1", "s4": "s1", "s5": "s5", "s6": "gone"}
    for name, parent in circle.items():
        db.execute("insert into sessions values (?, 'telegram', ?, 1.0)", (name, parent))
        db.execute(
            "insert into messages (session_id, role, content) values (?, 'user', 'x')", (name,)
        )
    db.commit()
    db.close()
    report = import_from(store, "hermes", home)
    assert kinds(report) == {"parent_cycle"}
    parents = {session.id: session.parent_id for session in all_sessions(store)}
    for name in parents:
        passed, place = [], name
        while place is not None:
            assert place not in passed
            passed.append(place)
            place = parents.get(place)  # type: ignore[assignment]


def test_a_database_that_is_in_use(store: Store, tmp_path: Path) -> None:
    home = planted("hermes019_moved_home", tmp_path)
    live = sqlite3.connect(home / "state.db", isolation_level=None)
    live.execute("pragma journal_mode = wal")
    live.execute("pragma wal_autocheckpoint = 0")
    (session_id,) = live.execute("select id from sessions limit 1").fetchone()
    live.execute(
        "insert into messages (session_id, role, content, timestamp) values (?, 'user', 'live', 1)",
        (session_id,),
    )
    live.execute("begin immediate")  # and it is about to write more
    live.execute("update messages set content = 'not yet' where content = 'live'")
    before = print_of(home)
    report = import_from(store, "hermes", home)
    assert print_of(home) == before
    live.execute("rollback")
    live.close()
    assert report.messages == 89
    assert store.transcript(session_id).load()[-1]["content"] == "live"


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "nothing", "text", "empty"])
def test_a_database_that_is_none(store: Store, tmp_path: Path, what: str) -> None:
    home = planted("dmg_hermes001_crlf", tmp_path)
    path = home / "state.db"
    match what:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(tmp_path / "talk.db")
        case "text":
            path.write_text("not a database at all, but long enough to look at its head" * 20)
        case "empty":
            path.write_bytes(b"")
    wanted = {
        "folder": {"not_a_file"}, "fifo": {"not_a_file"}, "link": {"symlink"},
        "text": {"database_damaged"},
    }  # fmt: skip
    report = import_from(store, "hermes", home)
    assert (report.sessions, report.messages) == (5, 57)
    assert kinds(report) == wanted.get(what, set())


def test_a_folder_of_sessions_that_is_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    outside = planted("hermes001_main", tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "sessions").symlink_to(outside / "sessions")
    for kind in ("hermes", "nanobot", "openclaw", "jsonl"):
        report = import_from(store, kind, home)
        assert report.sessions == 0
    assert store.sessions.count() == 0


def test_files_that_this_user_may_not_read(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    (folder / "telegram_42.jsonl").chmod(0)
    if os.access(folder / "telegram_42.jsonl", os.R_OK):
        pytest.skip("this user may read everything")
    report = import_from(store, "nanobot", folder.parent)
    assert kinds(report) == {"unreadable"}
    assert not report.is_whole


def test_a_folder_that_is_not_there(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no folder"):
        import_from(store, "hermes", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="Unknown kind of import"):
        import_from(store, "skype", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a store"):
        import_from(None, "hermes", tmp_path)


def test_what_was_said_there_since_comes_with_the_next_import(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    more = {"role": "assistant", "content": "hi", "timestamp": "2026-03-01T10:00:02"}
    write(folder / "telegram_42.jsonl", HEAD, HELLO, more)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.sessions, report.messages, report.skipped) == (1, 1, 0)
    (session,) = all_sessions(store)
    assert store.transcript(session.id).load() == [HELLO, more]


def test_two_imports_at_once_do_not_double_anything(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "_MESSAGES", 5)
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


def test_a_session_that_was_reset_there_makes_way_for_the_next_one(
    store: Store, tmp_path: Path
) -> None:
    home = planted("dmg_hermes001_crlf", tmp_path)
    import_from(store, "hermes", home)
    index = json.loads((home / "sessions/sessions.json").read_text("utf-8"))
    key = "agent:main:telegram:dm:5550100201"
    old, new = index[key]["session_id"], "20260401_100000_abcdef01"
    index[key].update(session_id=new, created_at="2026-04-01T10:00:00")
    (home / "sessions/sessions.json").write_text(json.dumps(index))
    write(home / f"sessions/{new}.jsonl", HELLO)
    report = import_from(store, "hermes", home)
    assert (report.sessions, report.skipped, report.problems) == (1, 5, ())
    current = store.sessions.current(key)
    assert current is not None
    assert current.id == new
    assert store.sessions.require(old).end_reason == "imported"


def test_copies_of_a_file_come_once_whichever_is_newest(store: Store, folder: Path) -> None:
    later = {**HEAD, "updated_at": "2026-03-02T00:00:00"}
    (folder / "more").mkdir()
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    write(folder / "copy.jsonl", later, HELLO)
    write(folder / "more/copy.jsonl", HEAD, HELLO)
    assert import_from(store, "nanobot", folder.parent).sessions == 3
    latest = {**HEAD, "updated_at": "2026-03-03T00:00:00"}
    write(folder / "telegram_42.jsonl", latest, HELLO)
    assert import_from(store, "nanobot", folder.parent).skipped == 3
    assert store.sessions.count() == 3


def test_a_transcript_that_was_rewritten_there_changes_nothing_here(
    store: Store, folder: Path
) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    before = dump(store)
    write(folder / "telegram_42.jsonl", HEAD, {**HELLO, "content": "other"}, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, kinds(report)) == (0, {"changed_since_import"})
    assert dump(store) == before


def test_what_was_said_here_and_there_is_not_mixed(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    (session,) = all_sessions(store)
    store.transcript(session.id).append({"role": "user", "content": "here"})
    write(folder / "telegram_42.jsonl", HEAD, HELLO, {**HELLO, "content": "there"})
    report = import_from(store, "nanobot", folder.parent)
    assert (report.messages, kinds(report)) == (0, {"continued_here"})
    assert [m["content"] for m in store.transcript(session.id).load()] == ["hello", "here"]


def test_a_conversation_that_goes_on_here_stays_current(store: Store, folder: Path) -> None:
    here = store.sessions.open(Source("telegram", "42"))
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert kinds(report) == {"key_in_use"}
    current = store.sessions.current(here.key)
    assert current is not None
    assert current.id == here.id
    (other,) = [session for session in all_sessions(store) if session.id != here.id]
    assert (other.key, other.end_reason) == (here.key, "imported")


def test_a_direct_message_finds_the_conversation_under_the_key_hermes_gave_it(
    tmp_path: Path,
) -> None:
    never = Settings(zone="UTC", policies=Policies(default=ResetPolicy(mode="none")))
    with tertulia.open(tmp_path / "talk.db", settings=never) as store:
        import_from(store, "hermes", planted("hermes019_main", tmp_path))
        chat = "12025550120@s.whatsapp.net"
        found = store.sessions.open(Source("whatsapp", chat, user_id=chat))
        assert found.id == "20260721_061236_7493fe50"
        assert found.key == "agent:main:whatsapp:dm:12025550120"


def test_a_conversation_of_many_is_handed_to_none_of_them(store: Store, tmp_path: Path) -> None:
    import_from(store, "hermes", planted("hermes002_main", tmp_path))
    shared = store.sessions.current("agent:main:telegram:dm")
    assert shared is not None
    assert store.sessions.find(person="telegram:5550100001").items == ()
    assert store.for_person(shared.origin).find().items == ()
    assert store.sessions.open(shared.origin).id != shared.id


def test_the_policy_is_asked_from_the_activity_that_was_stored(store: Store, folder: Path) -> None:
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    import_from(store, "nanobot", folder.parent)
    (old,) = all_sessions(store)
    assert old.ended_at is None
    new = store.sessions.open(Source("telegram", "42"))
    assert new.id != old.id
    assert store.sessions.require(old.id).end_reason in ("idle", "daily")


def test_a_session_that_is_deleted_here_can_be_imported_again(store: Store, folder: Path) -> None:
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
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_mangled_stores_never_crash_and_the_rest_is_read(
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
