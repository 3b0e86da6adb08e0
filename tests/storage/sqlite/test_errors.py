"""Faults of the file, the disk or another process raise a Tertulia error and store nothing."""

from __future__ import annotations

import glob
import itertools
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia import (
    ConfigError,
    NotFound,
    Settings,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from tertulia.storage.sqlite import errors, group_commit
from tertulia.storage.sqlite import open as sqlite_open
from tertulia.testing.fixtures import wait_until
from tests.storage.child_process import ChildProcess
from tests.storage.child_programs import source
from tests.storage.sqlite.store_files import (
    create_store,
    error_of,
    opened,
    refused,
    said,
    texts,
    unchanged,
)
from tests.storage.store_internals import sqlite_of
from tests.storage.watched_disk import Disk, Step, fail


class TestDamage:
    """Bytes that differ from those that were written."""

    def damage(self, path: Path, number: int) -> None:
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
    def test_random_damage_raises_store_errors(self, tmp_path: Path, numbers: range) -> None:
        sound = tmp_path / "sound.db"
        create_store(sound, messages=300)
        path = tmp_path / "talk.db"
        errors_by_class: Counter[str] = Counter()
        for number in numbers:
            for leftover in glob.glob(f"{path}*"):
                os.unlink(leftover)
            shutil.copy(sound, path)
            self.damage(path, number)
            with unchanged(path):  # reading does not make it worse
                problem = error_of(lambda: self.read_everything(path))
            if isinstance(problem, NotFound):
                # A sound index with a wrong id of a session: SQLite looks the id up and does not
                # find it. Only a check finds the damage.
                with opened(path) as store:
                    assert store.check(), number
            elif problem is not None:
                assert isinstance(problem, StoreError), number
                assert problem.hint
                errors_by_class[type(problem).__name__] += 1
        assert errors_by_class["StoreCorrupt"] > len(numbers) // 3

    def test_truncated_file_is_corrupt(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        create_store(path)
        os.truncate(path, path.stat().st_size // 2)
        with unchanged(path), refused(StoreCorrupt, retryable=False):
            opened(path)

    @pytest.mark.parametrize(
        "harm",
        [
            "update messages set body = substr(body, 3) where place & 4294967295 = 5",
            "update messages set body = cast(x'7b22ff' as text) where place & 4294967295 = 5",
            "update messages set body = body || char(0) where place & 4294967295 = 5",
            'update messages set away = \'[[["content"],"none"]]\' where place & 4294967295 = 5',
            'update messages set away = \'[[["a","b"],"x"]]\' where place & 4294967295 = 5',
            "update messages set away = 'x' where place & 4294967295 = 5",
            "update blobs set data = x'00'",
            "delete from blobs",
            "update revisions set ranges = '[[1]]'",
            "update revisions set ranges = '{'",
        ],
    )
    def test_damaged_message_row_is_corrupt(self, tmp_path: Path, harm: str) -> None:
        """One damaged byte raises an error; it does not give an empty conversation."""
        path = tmp_path / "talk.db"
        session_id = create_store(path)
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
    def test_damaged_session_row_is_corrupt(self, tmp_path: Path, harm: str) -> None:
        path = tmp_path / "talk.db"
        session_id = create_store(path)
        connection = apsw.Connection(str(path))
        connection.execute(harm)
        connection.close()
        with unchanged(path), opened(path) as store:
            for call in (store.sessions.find, lambda: store.sessions.require(session_id)):
                with refused(StoreCorrupt):
                    call()


@pytest.mark.check
class TestLocked:
    """Another process keeps the file locked."""

    def test_write_fails_while_another_process_keeps_the_lock(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        session_id = create_store(path)
        with ChildProcess("lock", str(path), ["begin immediate"]) as holder:
            assert holder.read() == "locked"
            with opened(path) as store:
                with unchanged(path), refused(StoreUnavailable, retryable=True):
                    store.transcript(session_id).append(said("in vain"))
                assert store.transcript(session_id).count() == 21
                holder.resume()
                holder.process.wait()
                store.transcript(session_id).append(said("at last"))
                assert texts(store, session_id)[-1] == "at last"
                assert "in vain" not in texts(store, session_id)

    def test_open_fails_while_another_process_locks_exclusively(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        create_store(path)
        statements = ["pragma locking_mode = exclusive", "begin immediate", "select * from people"]
        with ChildProcess("lock", str(path), statements) as holder:
            assert holder.read() == "locked"
            with unchanged(path), refused(StoreUnavailable, retryable=True):
                opened(path)
            holder.resume()
        opened(path).close()

    def test_open_fails_while_a_new_file_is_locked(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with ChildProcess("lock", str(path), ["begin exclusive"]) as holder:
            assert holder.read() == "locked"
            with refused(StoreUnavailable, retryable=True):
                opened(path)
            holder.resume()
        opened(path).close()

    @pytest.mark.parametrize("lock", ["begin exclusive", "begin immediate"])
    def test_open_waits_while_a_new_file_is_briefly_locked(self, tmp_path: Path, lock: str) -> None:
        """Two processes create it at once: the second one waits."""
        path = tmp_path / "talk.db"
        outcome: list[object] = []

        def create() -> None:
            try:
                tertulia.open(path, settings=Settings(zone="UTC")).close()
            except StoreError as problem:
                outcome.append(problem)

        with ChildProcess("lock", str(path), [lock]) as holder:
            assert holder.read() == "locked"
            creator = threading.Thread(target=create)
            creator.start()
            creator.join(0.2)  # a call that does not wait has returned by now
            holder.resume()
            creator.join()
        assert outcome == []
        with opened(path) as store:
            assert store.check() == []

    def test_queued_writers_do_not_restart_the_busy_timeout(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Callers wait in a queue; the last of them waits no longer than the first."""

        class Time:
            """A clock that only `sleep` advances, so that no real time is measured; sleeps block
            until `runs` is set."""

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
        session_id = create_store(path)
        with opened(path) as store:
            holder = apsw.Connection(str(path))
            holder.execute("begin immediate")
            clock = Time()
            for module in (sqlite_open, group_commit):
                monkeypatch.setattr(module, "time", clock)
            problems: list[Exception] = []

            def write() -> None:
                try:
                    store.transcript(session_id).append(said("in vain"))
                except StoreUnavailable as problem:
                    problems.append(problem)

            threads = [threading.Thread(target=write) for _ in range(10)]
            for thread in threads:
                thread.start()
            wait_until(
                lambda: len(sqlite_of(store)._group.waiting) == 9,
                "the others wait behind the first",
            )
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
    def test_full_disk_loses_nothing_acknowledged(self, small: Path, durability: str) -> None:
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
            # It can still be read, through this handle and a new one.
            assert texts(store, session.id) == acknowledged
            ballast.unlink()
            transcript.append(said("again"))
            assert texts(store, session.id) == [*acknowledged, "again"]
            assert store.check() == []
        with opened(path) as store:
            assert texts(store, session.id) == [*acknowledged, "again"]
            assert store.check() == []

    def test_new_store_on_a_full_disk_is_refused(self, small: Path) -> None:
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

    def test_backup_on_a_full_disk_is_named(
        self, small: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        with pytest.raises(OSError, match="No space"):
            (small / "ballast").write_bytes(bytes(3_000_000))
        large = tmp_path_factory.mktemp("large") / "talk.db"
        with opened(large) as store, pytest.raises(StoreFull) as caught:
            store.backup(small / "copy.db")
        assert str(small / "copy.db") in caught.value.message
        assert not (small / "copy.db").exists()

    def test_file_size_limit_loses_nothing_acknowledged(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with ChildProcess("fill_up", str(path), 8_000_000) as child:
            name, hint, session_id, acknowledged = child.read()
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
    def test_commit_that_fails_at_any_disk_operation_stores_nothing(
        self, tmp_path: Path, disk: Disk, kind: str, durability: str
    ) -> None:
        """The n-th write or sync fails, for every n; later calls succeed."""
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

    def test_broken_disk_raises_until_it_works_again(self, tmp_path: Path, disk: Disk) -> None:
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

    @pytest.mark.check
    def test_creation_that_fails_at_any_disk_operation_can_be_repeated(
        self, tmp_path: Path, disk: Disk
    ) -> None:
        """If any disk operation of the creation fails, the next attempt creates the store."""
        failures = 0
        # The first operations create the file; then the pages of the schema follow.
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

    def test_failed_commit_raises_in_every_caller(self, tmp_path: Path, disk: Disk) -> None:
        path = tmp_path / "talk.db"
        store = opened(path)
        store._indexer.stop()
        session = store.sessions.open(source(1))
        transcript = store.transcript(session.id)
        disk.before = lambda step: fail(step) if step.kind == "sync" else None
        errors_raised: list[str] = []

        def write(number: int) -> None:
            try:
                transcript.append(said(f"in vain {number}"))
            except StoreUnavailable as problem:
                errors_raised.append(str(problem))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        disk.before = lambda step: None
        assert len(errors_raised) == 20
        assert texts(store, session.id) == []
        transcript.append(said("after"))
        store.close()
        with opened(path) as store:
            assert texts(store, session.id) == ["after"]


def test_every_error_of_sqlite_is_translated() -> None:
    kinds = [
        kind
        for kind in vars(apsw).values()
        if isinstance(kind, type) and issubclass(kind, apsw.Error)
    ]
    assert len(kinds) > 30
    for kind in kinds:
        error = errors.translate_errors(kind("any text"), "/a/path")
        assert isinstance(error, StoreError)
        assert error.hint
        assert "/a/path" in str(error)
        assert error.where == "/a/path"
    broken = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert type(errors.translate_errors(broken, "x")) is StoreCorrupt
    half = UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    for problem in (half, OverflowError("int too big to convert")):
        assert type(errors.translate_errors(problem, "x")) is ConfigError
