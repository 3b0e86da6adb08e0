"""What goes wrong around a store is told in Tertulia's words, and changes nothing."""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import tertulia
from tertulia import (
    ConfigError,
    NotAStore,
    NotFound,
    SchemaMismatch,
    Settings,
    Store,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from tertulia.storage.sqlite import (
    database,
    errors,
)
from tertulia.testing.fixtures import until
from tests.storage.children import Child
from tests.storage.disk import Disk, Step, fail
from tests.storage.inside import sqlite_of
from tests.storage.programs import source


def opened(path: Path | str, **settings: Any) -> Store:
    return tertulia.open(path, settings=Settings(zone="UTC", busy_seconds=0.3, **settings))


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(store: Store, session_id: str) -> list[str]:
    return [message["content"] for message in store.transcript(session_id).load()]


def make(path: Path, messages: int = 20) -> str:
    """A store with a conversation in it; the id of its session."""
    with opened(path) as store:
        session = store.sessions.open(source(1))
        store.transcript(session.id).extend(said(f"message {n}") for n in range(messages))
        store.transcript(session.id).append(said("large " * 20_000))
        store.settle()
    return session.id


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    before = fingerprint(path)
    yield
    assert fingerprint(path) == before


@contextmanager
def refused(kind: type[tertulia.Error], *, retryable: bool | None = None) -> Iterator[None]:
    """It raises exactly that, with what to do next."""
    with pytest.raises(tertulia.Error) as caught:
        yield
    assert type(caught.value) is kind
    assert caught.value.hint
    if retryable is not None:
        assert caught.value.retryable is retryable


def error_of(call: Callable[[], object]) -> tertulia.Error | None:
    """What a call raises of ours, if it does."""
    try:
        call()
    except tertulia.Error as problem:
        return problem
    return None


class TestOpening:
    """A file that is no store, or cannot be one now."""

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"\n", id="one byte"),
            pytest.param(b"hello", id="a word"),
            pytest.param(b"hello\n" * 10_000, id="a text"),
            pytest.param(bytes(8192), id="zeros"),
            pytest.param(b"SQLite format 3\x00", id="a head alone"),
            pytest.param(b"SQLite format 3\x00" + b"x" * 5000, id="a false head"),
            pytest.param(b"PK\x03\x04" * 5000, id="an archive"),
        ],
    )
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with unchanged(path), refused(NotAStore, retryable=False):
            opened(path)
        assert os.listdir(tmp_path) == ["notes.txt"]

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_the_database_of_another_program(self, tmp_path: Path, mode: str) -> None:
        path = tmp_path / "other.db"
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", mode)
        connection.execute("create table birds (name); insert into birds values ('wren')")
        with unchanged(path), refused(NotAStore):
            opened(path)
        connection.close()
        with unchanged(path), refused(NotAStore):
            opened(path)
        assert apsw.Connection(str(path)).execute("select * from birds").fetchall() == [("wren",)]

    def test_the_empty_database_of_another_program(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        connection = apsw.Connection(str(path))
        connection.execute("pragma application_id = 77")
        connection.close()
        with unchanged(path), refused(NotAStore):
            opened(path)

    def test_what_another_program_left_half_done(self, tmp_path: Path) -> None:
        """A hot journal: only who may write can read the file."""
        path, copy = tmp_path / "other.db", tmp_path / "copy.db"
        connection = apsw.Connection(str(path))
        connection.execute("pragma cache_size = 1; create table birds (name)")
        connection.execute("begin")
        connection.execute(
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000)"
            " insert into birds select printf('%200d', i) from n"
        )
        shutil.copy(path, copy)
        shutil.copy(f"{path}-journal", f"{copy}-journal")
        connection.execute("rollback")
        journal = Path(f"{copy}-journal")
        with unchanged(copy), unchanged(journal), refused(NotAStore):
            opened(copy)
        assert apsw.Connection(str(copy)).execute("select * from birds").fetchall() == []

    def test_a_store_of_a_newer_program(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        session_id = make(path)
        connection = apsw.Connection(str(path))
        connection.execute("insert into migrations values ('9999_the_future', '2030-01-01')")
        connection.close()
        with unchanged(path), refused(SchemaMismatch, retryable=False):
            opened(path)
        connection = apsw.Connection(str(path))
        connection.execute("delete from migrations where name = '9999_the_future'")
        connection.close()
        with opened(path) as store:
            assert store.transcript(session_id).count() == 21

    def test_a_newer_store_that_is_in_use(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        make(path)
        connection = apsw.Connection(str(path))
        connection.execute("insert into migrations values ('9999_the_future', '2030-01-01')")
        log = Path(f"{path}-wal")
        with unchanged(path), unchanged(log), refused(SchemaMismatch):
            opened(path)
        connection.close()

    def test_a_folder(self, tmp_path: Path) -> None:
        with refused(NotAStore):
            opened(tmp_path)
        assert os.listdir(tmp_path) == []

    def test_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable):
            opened(tmp_path / "nowhere" / "talk.db")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("name", ["a\x00b", "\ud800.db", "", ":memory:", "postgresql://x/y"])
    def test_what_is_no_name_of_a_file(self, name: str) -> None:
        with pytest.raises(tertulia.Error) as caught:
            opened(name)
        assert caught.value.hint

    def test_a_name_that_is_too_long(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable):
            opened(tmp_path / ("x" * 300))

    def test_a_device(self) -> None:
        with refused(StoreUnavailable):
            opened("/dev/null")

    def test_a_store_that_is_made_while_it_is_looked_at(self, tmp_path: Path) -> None:
        """Its first look finds an empty file, its second a store: that is no other program's."""
        path = tmp_path / "talk.db"
        empty = apsw.Connection(str(path))
        empty.pragma("journal_mode", "wal")
        empty.close()
        makers: list[threading.Thread] = []

        def make_it(event: dict[str, Any]) -> None:
            if "application_id" in event["sql"] or "sqlite_schema" in event["sql"]:
                event["connection"].trace_v2(0)
                maker = threading.Thread(target=lambda: opened(path).close())
                makers.append(maker)
                maker.start()
                maker.join()

        def watch(connection: apsw.Connection) -> None:
            if not makers and connection.readonly("main"):
                connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, make_it)

        apsw.connection_hooks.append(watch)
        try:
            opened(path).close()
        finally:
            apsw.connection_hooks.remove(watch)
        assert len(makers) == 1

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into Linux's /proc")
    def test_who_keeps_the_error_does_not_keep_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with Disk() as disk:
            disk.before = lambda step: fail(step) if step.path.endswith("-wal") else None
            problem = error_of(lambda: opened(path))
            assert type(problem) is StoreUnavailable
            links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
            files = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert [name for name in files if name.startswith(str(path))] == []


class TestRights:
    """Files that this user may not write or not even read."""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """One that everybody may look into, unlike a test's own."""
        folder = Path(tempfile.mkdtemp(prefix="tertulia-rights-"))
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)
        shutil.rmtree(folder)

    def told(self, path: Path) -> tuple[str, str]:
        with Child("as_somebody_else", str(path)) as child:
            name, words, hint = child.said()
        assert name == "it was opened" or str(path) in words
        return name, hint

    @pytest.mark.parametrize(
        ("folder_mode", "file_mode"),
        [(0o777, 0o444), (0o555, 0o666), (0o555, 0o444), (0o777, 0o000)],
        ids=["a file to read", "a folder to read", "both to read", "not even to read"],
    )
    def test_a_store_without_the_right_to_write(
        self, folder: Path, folder_mode: int, file_mode: int
    ) -> None:
        inside = folder / "inside"
        inside.mkdir()
        path = inside / "talk.db"
        make(path)
        path.chmod(file_mode)
        inside.chmod(folder_mode)
        with unchanged(path) if os.geteuid() == 0 or file_mode else ExitStack():
            name, hint = self.told(path)
        assert name == "StoreUnavailable"
        assert "write" in hint
        inside.chmod(0o755)

    def test_a_new_store_where_nothing_may_be_made(self, folder: Path) -> None:
        inside = folder / "inside"
        inside.mkdir()
        inside.chmod(0o555)
        name, hint = self.told(inside / "talk.db")
        assert name == "StoreUnavailable"
        assert "folder" in hint
        assert os.listdir(inside) == []
        inside.chmod(0o755)


class TestDamage:
    """Bytes that are not what was written."""

    def spoil(self, path: Path, number: int) -> None:
        chosen = random.Random(number)
        size = path.stat().st_size
        with path.open("r+b") as file:
            if number % 4 == 0:
                file.truncate(chosen.randrange(size))
            elif number % 4 == 1:
                for _ in range(20):
                    file.seek(chosen.randrange(size))
                    file.write(chosen.randbytes(1))
            elif number % 4 == 2:
                file.seek(chosen.randrange(size // 4096) * 4096)
                file.write(chosen.randbytes(4096))
            else:
                file.seek(chosen.randrange(size - 64))
                file.write(bytes(64))

    def read_everything(self, path: Path) -> None:
        with opened(path) as store:
            for session in store.sessions.find().items:
                transcript = store.transcript(session.id)
                transcript.load()
                transcript.entries()
                transcript.history()
                for revision in transcript.revisions():
                    transcript.at(revision.number)
                store.sessions.explain(session.id)
            for by in ("day", "session"):
                store.usage.sum(by)
            store.search("message")

    @pytest.mark.parametrize(
        "numbers",
        [range(60), pytest.param(range(60, 2000), marks=pytest.mark.slow)],
        ids=["some", "many"],
    )
    def test_damage_is_told_as_damage(self, tmp_path: Path, numbers: range) -> None:
        sound = tmp_path / "sound.db"
        make(sound, messages=300)
        path = tmp_path / "talk.db"
        seen: Counter[str] = Counter()
        for number in numbers:
            for leftover in glob.glob(f"{path}*"):
                os.unlink(leftover)
            shutil.copy(sound, path)
            self.spoil(path, number)
            with unchanged(path):  # looking at it does not make it worse
                problem = error_of(lambda: self.read_everything(path))
            if isinstance(problem, NotFound):
                # An index that has another id for a session, and is whole otherwise: SQLite looks
                # the id up and does not find it. What is wrong is found by looking for it.
                with opened(path) as store:
                    assert store.check(), number
            elif problem is not None:
                assert isinstance(problem, StoreError), number
                assert problem.hint
                seen[type(problem).__name__] += 1
        assert seen["StoreCorrupt"] > len(numbers) // 3

    def test_a_file_that_was_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        make(path)
        os.truncate(path, path.stat().st_size // 2)
        with unchanged(path), refused(StoreCorrupt, retryable=False):
            opened(path)

    @pytest.mark.parametrize(
        "harm",
        [
            "update messages set body = substr(body, 3) where seq = 5",
            "update messages set body = cast(x'7b22ff' as text) where seq = 5",
            "update messages set body = body || char(0) where seq = 5",
            'update messages set away = \'[[["content"],"no such part"]]\' where seq = 5',
            'update messages set away = \'[[["a","b"],"x"]]\' where seq = 5',
            "update messages set away = 'x' where seq = 5",
            "update blobs set data = x'00'",
            "delete from blobs",
            "update revisions set ranges = '[[1]]'",
            "update revisions set ranges = '{'",
        ],
    )
    def test_a_row_that_makes_no_sense(self, tmp_path: Path, harm: str) -> None:
        """One bad byte is an error with a name, and not an empty conversation."""
        path = tmp_path / "talk.db"
        session_id = make(path)
        connection = apsw.Connection(str(path))
        connection.execute(harm)
        connection.close()
        with unchanged(path), opened(path) as store:
            transcript = store.transcript(session_id)
            for read in (transcript.load, transcript.entries, transcript.history):
                with refused(StoreCorrupt):
                    read()

    @pytest.mark.parametrize(
        "harm",
        [
            "update sessions set origin = 'x'",
            "update sessions set origin = '[]'",
            "update sessions set metadata = '{'",
            "update sessions set certainty = 99",
            "update sessions set created_at = 9223372036854775807",
        ],
    )
    def test_a_session_that_makes_no_sense(self, tmp_path: Path, harm: str) -> None:
        path = tmp_path / "talk.db"
        session_id = make(path)
        connection = apsw.Connection(str(path))
        connection.execute(harm)
        connection.close()
        with unchanged(path), opened(path) as store:
            for call in (store.sessions.find, lambda: store.sessions.require(session_id)):
                with refused(StoreCorrupt):
                    call()


class TestLocked:
    """Another program has the file and does not let go."""

    def test_a_writer_that_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        session_id = make(path)
        with Child("hold", str(path), ["begin immediate"]) as holder:
            assert holder.said() == "held"
            with opened(path) as store:
                with unchanged(path), refused(StoreUnavailable, retryable=True):
                    store.transcript(session_id).append(said("in vain"))
                assert store.transcript(session_id).count() == 21
                holder.go_on()
                holder.process.wait()
                store.transcript(session_id).append(said("at last"))
                assert texts(store, session_id)[-1] == "at last"
                assert "in vain" not in texts(store, session_id)

    def test_a_program_that_shares_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        make(path)
        statements = ["pragma locking_mode = exclusive", "begin immediate", "select * from people"]
        with Child("hold", str(path), statements) as holder:
            assert holder.said() == "held"
            with unchanged(path), refused(StoreUnavailable, retryable=True):
                opened(path)
            holder.go_on()
        opened(path).close()

    def test_a_new_file_that_is_locked(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with Child("hold", str(path), ["begin exclusive"]) as holder:
            assert holder.said() == "held"
            with refused(StoreUnavailable, retryable=True):
                opened(path)
            holder.go_on()
        opened(path).close()

    @pytest.mark.parametrize("lock", ["begin exclusive", "begin immediate"])
    def test_a_new_file_that_is_locked_for_a_moment(self, tmp_path: Path, lock: str) -> None:
        """Two programs that make it at once: the one that comes second waits."""
        path = tmp_path / "talk.db"
        outcome: list[object] = []

        def make_it() -> None:
            try:
                tertulia.open(path, settings=Settings(zone="UTC")).close()
            except StoreError as problem:
                outcome.append(problem)

        with Child("hold", str(path), [lock]) as holder:
            assert holder.said() == "held"
            maker = threading.Thread(target=make_it)
            maker.start()
            maker.join(0.2)  # one that does not wait is through by now
            holder.go_on()
            maker.join()
        assert outcome == []
        with opened(path) as store:
            assert store.check() == []

    def test_patience_is_not_begun_anew_by_each_who_waits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Callers stand in a queue; the last of them waits no longer than the first."""

        class Time:
            """Runs as fast as it is slept away, so that no real time is measured; once all wait."""

            def __init__(self) -> None:
                self.now = 1000.0
                self.lock = threading.Lock()
                self.runs = threading.Event()

            def monotonic(self) -> float:
                return self.now

            def sleep(self, seconds: float) -> None:
                self.runs.wait()
                with self.lock:
                    self.now += seconds
                time.sleep(0.0001)

        path = tmp_path / "talk.db"
        session_id = make(path)
        with opened(path) as store:
            holder = apsw.Connection(str(path))
            holder.execute("begin immediate")
            clock = Time()
            monkeypatch.setattr(database, "time", clock)
            problems: list[Exception] = []

            def write() -> None:
                try:
                    store.transcript(session_id).append(said("in vain"))
                except StoreUnavailable as problem:
                    problems.append(problem)

            threads = [threading.Thread(target=write) for _ in range(10)]
            for thread in threads:
                thread.start()
            until(lambda: len(sqlite_of(store)._waiting) == 9, "the others wait behind the first")
            clock.runs.set()
            for thread in threads:
                thread.join()
            assert len(problems) == 10
            assert clock.now < 1000 + 0.3 * 3
            monkeypatch.undo()
            holder.execute("rollback")
            store.transcript(session_id).append(said("at last"))
            assert store.transcript(session_id).count() == 22


class TestFullDisk:
    """No space left."""

    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        """A file system of two megabytes."""
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
        if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
            pytest.skip("a file system can be mounted by root only; see the test with a limit")
        yield tmp_path
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)

    @pytest.mark.parametrize("durability", ["safe", "fast"])
    def test_nothing_acknowledged_is_lost(self, small: Path, durability: str) -> None:
        path, ballast = small / "talk.db", small / "ballast"
        ballast.write_bytes(bytes(500_000))
        with opened(path, durability=durability) as store:
            session = store.sessions.open(source(1))
            transcript = store.transcript(session.id)
            acknowledged: list[str] = []

            def fill_up() -> None:
                for number in range(100_000):
                    text = f"{number} {'x' * 400}"
                    transcript.append(said(text))
                    acknowledged.append(text)

            with refused(StoreFull, retryable=True):
                fill_up()
            for _ in range(5):
                with refused(StoreFull):
                    transcript.extend([said("y" * 100_000), said("z")])
            # It still can be read, here and by whoever opens it.
            assert texts(store, session.id) == acknowledged
            ballast.unlink()
            transcript.append(said("again"))
            assert texts(store, session.id) == [*acknowledged, "again"]
            assert store.check() == []
        with opened(path) as store:
            assert texts(store, session.id) == [*acknowledged, "again"]
            assert store.check() == []

    def test_a_new_store_on_a_full_disk(self, small: Path) -> None:
        path, ballast = small / "talk.db", small / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(3_000_000))
        with pytest.raises(StoreError) as caught:
            opened(path)
        assert caught.value.hint
        ballast.unlink()
        with opened(path) as store:
            store.sessions.open(source(1))
            assert store.check() == []

    def test_a_limit_on_the_size_of_files(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with Child("fill_up", str(path), 8_000_000) as child:
            name, hint, session_id, acknowledged = child.said()
        assert name in ("StoreFull", "StoreUnavailable")
        assert hint
        assert acknowledged > 100
        with opened(path) as store:
            assert store.check() == []
            assert len(texts(store, session_id)) == acknowledged
            store.transcript(session_id).append(said("again"))


class TestBrokenDisk:
    """Reads, writes and syncs that fail."""

    @pytest.fixture
    def disk(self) -> Iterator[Disk]:
        with Disk() as disk:
            yield disk

    @pytest.mark.parametrize("kind", ["write", "sync"])
    @pytest.mark.parametrize("durability", ["safe", "fast"])
    def test_a_commit_that_fails_at_any_step(
        self, tmp_path: Path, disk: Disk, kind: str, durability: str
    ) -> None:
        """The n-th write or sync fails, for every n; what comes after it works again."""
        path = tmp_path / "talk.db"
        store = opened(path, durability=durability)
        store._indexer.stop()
        session = store.sessions.open(source(1))
        transcript = store.transcript(session.id)
        acknowledged: list[str] = []
        failures = 0
        for number in range(1, 60):
            left = number

            def once(step: Step) -> None:
                nonlocal left
                left -= step.kind == kind
                if left == 0 and step.kind == kind:
                    left -= 1
                    fail(step)

            disk.before = once
            for part in range(4):
                text = f"{number} {part} {'x' * 3000}"
                problem = error_of(partial(transcript.append, said(text)))
                if problem is None:
                    acknowledged.append(text)
                else:
                    assert type(problem) is StoreUnavailable
                    assert problem.hint
                    failures += 1
                assert texts(store, session.id) == acknowledged
            disk.before = lambda step: None
        assert failures or (kind, durability) == ("sync", "fast")
        assert store.check() == []
        store.close()
        with opened(path) as store:
            assert texts(store, session.id) == acknowledged
            assert store.check() == []

    def test_a_disk_that_stays_broken(self, tmp_path: Path, disk: Disk) -> None:
        path = tmp_path / "talk.db"
        store = opened(path)
        session = store.sessions.open(source(1))
        store.transcript(session.id).append(said("before"))
        store.settle()
        store._indexer.stop()
        disk.before = fail
        for _ in range(3):
            with refused(StoreUnavailable, retryable=True):
                store.transcript(session.id).append(said("in vain"))
            with refused(StoreUnavailable):
                store.sessions.open(source(2))
            with refused(StoreUnavailable):
                store.settle()
        with refused(StoreUnavailable):
            opened(path)
        disk.before = lambda step: None
        store.transcript(session.id).append(said("after"))
        assert texts(store, session.id) == ["before", "after"]
        assert store.sessions.count() == 1
        assert store.check() == []
        store.close()

    def test_a_store_that_cannot_be_made(self, tmp_path: Path, disk: Disk) -> None:
        """Whichever step of making it fails, the next try makes it."""
        failures = 0
        # The file itself is made in the first steps; then page after page of the schema follows.
        for number in itertools.chain(range(1, 25), itertools.count(25, 7)):
            path = tmp_path / f"{number}.db"
            left = number

            def once(step: Step) -> None:
                nonlocal left
                left -= step.kind != "read"
                if left == 0 and step.kind != "read":
                    left -= 1
                    fail(step)

            disk.before = once
            problem = error_of(lambda path=path: opened(path).close())  # type: ignore[misc]
            if problem is not None:
                assert isinstance(problem, StoreError)
                assert problem.hint
                failures += 1
            disk.before = lambda step: None
            with opened(path) as store:
                store.sessions.open(source(1))
                assert store.check() == []
            if left > 0:
                break
        assert failures > 20

    def test_everyone_in_a_batch_is_told(self, tmp_path: Path, disk: Disk) -> None:
        path = tmp_path / "talk.db"
        store = opened(path)
        store._indexer.stop()
        session = store.sessions.open(source(1))
        transcript = store.transcript(session.id)
        disk.before = lambda step: fail(step) if step.kind == "sync" else None
        told: list[str] = []

        def write(number: int) -> None:
            try:
                transcript.append(said(f"in vain {number}"))
            except StoreUnavailable as problem:
                told.append(str(problem))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        disk.before = lambda step: None
        assert len(told) == 20
        assert texts(store, session.id) == []
        transcript.append(said("after"))
        store.close()
        with opened(path) as store:
            assert texts(store, session.id) == ["after"]


class TestProcess:
    """What a process does to its own store."""

    def test_after_a_fork_the_store_is_the_parents(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with Child("fork_and_go_on", str(path)) as child:
            hints = child.said()
            assert len(hints) == 3
            assert all("new process" in hint for hint in hints)
            told = child.said()
        assert told == {"code": 0, "texts": ["before", "in the child", "after"]}
        with opened(path) as store:
            assert store.check() == []

    def test_a_program_that_ends_without_closing(self, tmp_path: Path) -> None:
        """Whatever still runs in the background, it ends, and the store is whole."""
        for number in range(5):
            path = tmp_path / f"{number}.db"
            with Child("leave", str(path), 400) as child:
                session_id = child.said()
            with opened(path) as store:
                assert store.transcript(session_id).count() == 400
                assert store.check() == []


def test_every_error_of_sqlite_has_its_own_words() -> None:
    kinds = [
        kind
        for kind in vars(apsw).values()
        if isinstance(kind, type) and issubclass(kind, apsw.Error)
    ]
    assert len(kinds) > 30
    for kind in kinds:
        found = errors.translate_errors(kind("so it goes"), "/a/place")
        assert isinstance(found, StoreError)
        assert found.hint
        assert "/a/place" in str(found)
        assert found.where == "/a/place"
    broken = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert type(errors.translate_errors(broken, "x")) is StoreCorrupt
    half = UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    for problem in (half, OverflowError("int too big to convert")):
        assert type(errors.translate_errors(problem, "x")) is ConfigError
