"""Moving a store: everything arrives, whatever happens on the way; nothing is written astray."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tertulia
from tertulia import NotAStore, Store, transfer
from tertulia.testing.fixtures import dm, wait_until
from tests.servers.postgres import Server
from tests.transfer.filled_stores import ANA, everything, opened, parts, talk

pytestmark = pytest.mark.check

Places = tuple[str, str]


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """An old place and a new one."""

    def place(kind: str, name: str) -> str:
        if kind == "sqlite":
            return str(tmp_path / f"{name}.db")
        server: Server = request.getfixturevalue("postgres")
        return server.database(server.template)

    old, _, new = request.param.split()
    return place(old, "old"), place(new, "new")


def archived(where: str, path: Path) -> dict[str, bytes]:
    """Everything that a store holds, in a form that can be compared."""
    with opened(where) as store:
        transfer.write_archive(store, path)
    return parts(path)


def test_move_copies_everything(places: Places, tmp_path: Path) -> None:
    old, new = places
    with opened(old) as store:
        everything(store)
        left_in_old = store.sessions.count()
    before = archived(old, tmp_path / "old.zip")
    steps: list[tuple[int, int]] = []
    moved = transfer.move(old, new, progress=lambda done, total: steps.append((done, total)))
    assert moved.tables["sessions"].rows == left_in_old > 0
    assert steps == sorted(steps)
    assert archived(new, tmp_path / "new.zip") == before
    with opened(new) as store:
        assert store.check() == []
        store.settle()
        assert store.search("talk").items
        talk(store, ANA, "and on it goes")


def test_old_store_names_the_new_location(places: Places) -> None:
    old, new = places
    with opened(old) as store:
        talk(store, ANA, "hello")
        transfer.move(old, new)
        for write in (
            lambda: talk(store, ANA, "astray"),
            lambda: store.sessions.open(dm("new")),
            store.sessions.find,
        ):
            with pytest.raises(tertulia.SchemaMismatch, match="moved"):
                write()
    with pytest.raises(NotAStore, match="were moved to"):
        opened(old)
    with pytest.raises(tertulia.IllegalMove, match="was moved to"):
        transfer.move(old, str(Path(old).parent / "third.db") if "://" not in old else "third.db")


def test_store_is_moved_while_it_is_in_use(places: Places) -> None:
    """What was acknowledged is in the new store; what was not, was refused."""
    old, new = places
    acknowledged: list[str] = []
    is_over = threading.Event()

    def write(store: Store, name: str) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                with store.turn(dm(name), f"{name} {number}") as turn:
                    turn.add_assistant(f"re {name} {number}")
                if number % 10 == 0:
                    store.sessions.reset(turn.session.key)
            except tertulia.Error:
                return  # the store was closed under it
            acknowledged.append(f"re {name} {number}")

    with opened(old, clock=None) as store:
        for number in range(200):
            store.inbox.put(dm(f"{number}"), "before", message_id=number)
        writers = [threading.Thread(target=write, args=(store, f"w{n}")) for n in range(3)]
        for writer in writers:
            writer.start()
        wait_until(lambda: len(acknowledged) > 10, "people write")
        transfer.move(old, new)
        is_over.set()
        for writer in writers:
            writer.join()
    with opened(new) as store:
        assert store.check() == []
        found = [
            message["content"]
            for page in _pages(store)
            for session in page
            for message in store.transcript(session.id).load()
        ]
        assert {text for text in acknowledged if text not in found} == set()
        assert len(found) == len(set(found))


def _pages(store: Store) -> list[tuple[tertulia.Session, ...]]:
    pages, cursor = [], None
    while True:
        page = store.sessions.find(limit=100, cursor=cursor)
        pages.append(page.items)
        cursor = page.next
        if cursor is None:
            return pages


MOVE = "import sys; from tertulia import transfer; transfer.move(sys.argv[1], sys.argv[2])"


def test_killed_move_resumes(places: Places, tmp_path: Path) -> None:
    old, new = places
    with opened(old) as store:
        everything(store)
        for number in range(300):
            store.transcript(store.sessions.open(dm(f"{number % 7}")).id).append(
                {"role": "user", "content": f"message {number}"}
            )
    before = archived(old, tmp_path / "old.zip")
    chance = random.Random(7)
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", MOVE, old, new], stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.1, 0.6))
        child.kill()
        child.wait()
    transfer.move(old, new)
    assert archived(new, tmp_path / "new.zip") == before


def test_move_interrupted_before_its_last_step_resumes(places: Places, tmp_path: Path) -> None:
    """The old store is closed, and the new one is still marked as not whole."""
    old, new = places
    with opened(old) as store:
        talk(store, ANA, "hello")
    before = archived(old, tmp_path / "old.zip")
    transfer.move(old, new)
    with opened(new) as store:
        store.context.db.write(
            lambda tx: tx.run("installation_set", {"name": "moving", "value": _mark(store)})
        )
    with pytest.raises(NotAStore, match="not whole"):
        opened(new)
    transfer.move(old, new)
    assert archived(new, tmp_path / "new.zip") == before


def _mark(store: Store) -> str:
    import hashlib

    row = store.context.db.read(lambda tx: tx.one("installation_get", {"name": "secret"}))
    assert row is not None
    return hashlib.sha256(row[0].encode()).hexdigest()


def test_target_with_conversations_is_refused(places: Places) -> None:
    old, new = places
    for where, words in ((old, "from here"), (new, "was here before")):
        with opened(where) as store:
            talk(store, ANA, words)
    with pytest.raises(NotAStore, match="already"):
        transfer.move(old, new)
    for where in (old, new):
        with opened(where) as store:
            assert store.check() == []
            talk(store, ANA, "still here")


def test_second_store_cannot_move_to_the_same_target(tmp_path: Path) -> None:
    one, other, new = (str(tmp_path / f"{name}.db") for name in ("one", "other", "new"))
    for where in (one, other):
        with opened(where) as store:
            talk(store, ANA, where)
    _begin_to_move(one, new)
    with pytest.raises(NotAStore, match="Another store is being moved"):
        transfer.move(other, new)
    transfer.move(one, new)


def _begin_to_move(old: str, new: str) -> None:
    """A move that has begun and got no further."""
    with opened(new) as store, opened(old) as source:
        mark = _mark(source)
        store.context.db.write(
            lambda tx: tx.run("installation_set", {"name": "moving", "value": mark})
        )


def test_missing_source_and_move_to_itself_are_refused(tmp_path: Path) -> None:
    old = str(tmp_path / "old.db")
    with opened(old):
        pass
    with pytest.raises(tertulia.IllegalMove, match="itself"):
        transfer.move(old, old)
    with opened(old) as store:
        talk(store, ANA, "still here")


def test_damage_during_the_move_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that does not arrive as it left: the old store stays the one in use."""
    from tertulia.storage.tables import Table

    old, new = str(tmp_path / "old.db"), str(tmp_path / "new.db")
    with opened(old) as store:
        talk(store, ANA, "hello")
    put = Table.put

    def spoil(table: Table, tx: object, rows: object) -> None:
        given = list(rows)  # type: ignore[call-overload]
        put(table, tx, given[:-1] if table.name == "messages" else given)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "put", spoil)
    with pytest.raises(tertulia.StoreCorrupt, match="messages"):
        transfer.move(old, new)
    monkeypatch.undo()
    with opened(old) as store:
        talk(store, ANA, "still here")
    transfer.move(old, new)
