"""`kill -9` at arbitrary moments: acknowledged writes are there, once, and the store works.

Tested in two ways: child processes are killed at random times, and the files are copied between
every two disk operations, and each copy is opened.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Settings, Usage
from tertulia.testing import FakeClock
from tests.storage.child_process import ChildProcess
from tests.storage.child_programs import source
from tests.storage.watched_disk import Disk, Step

pytestmark = pytest.mark.check

WRITERS = 4
MOMENTS = (0, 50, 1, 200, 2, 10, 3)

often = pytest.mark.parametrize(
    "kills", [20, pytest.param(200, marks=pytest.mark.slow)], ids=["20 times", "200 times"]
)


class Ledger:
    """The lines of the child processes, and the comparison with the store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: dict[str, int] = {}
        self.sessions: dict[str, str] = {}

    def run_and_kill(self, name: str, after: int) -> None:
        """Start a child that writes, and kill it shortly after it has reported `after` lines."""
        durability = random.choice(("safe", "fast"))
        with ChildProcess("write_until_killed", str(self.path), name, WRITERS, durability) as child:
            for _ in range(after):
                self.note(child.read())
            time.sleep(random.uniform(0, 0.003))
            child.kill()
            for line in child.read_all():
                self.note(line)

    def note(self, line: object) -> None:
        if isinstance(line, list):
            who, session_id, count = line
            assert count == self.acknowledged.get(who, -1) + 1
            self.acknowledged[who] = count
            self.sessions[who] = session_id

    def compare(self) -> None:
        with tertulia.open(self.path, settings=Settings(zone="UTC")) as store:
            assert store.check() == []
            for session in store.sessions.find(limit=1000, platform="telegram").items:
                self.compare_session(store, session)
                # The next write works.
                before = store.transcript(session.id).count()
                store.transcript(session.id).append({"role": "system", "content": "went on"})
                assert store.transcript(session.id).count() == before + 1
            store.settle()
            assert store.check() == []
        # The next connection removes all files that a killed one left.
        assert os.listdir(self.path.parent) == [self.path.name]

    def compare_session(self, store: tertulia.Store, session: tertulia.Session) -> None:
        messages = [
            message
            for message in store.transcript(session.id).load()
            if message["role"] != "system"
        ]
        times = Counter(message["content"] for message in messages)
        assert set(times.values()) <= {1}
        counts_by_writer: dict[str, list[int]] = {}
        for question, answer in zip(messages[::2], messages[1::2], strict=True):
            who, count, _ = question["content"].split()
            # Both messages of a call are stored, or none.
            assert answer["content"] == f"{who} {count} assistant"
            assert answer.get("padding", f"{who} {count} " * 5000) == f"{who} {count} " * 5000
            counts_by_writer.setdefault(who, []).append(int(count))
        for who, counts in counts_by_writer.items():
            acknowledged = self.acknowledged.get(who, -1)
            # In order, and at most one more than it could report.
            assert counts == list(range(len(counts)))
            assert len(counts) - 1 in (acknowledged, acknowledged + 1)
        missing = {
            who for who, session_id in self.sessions.items() if session_id == session.id
        } - set(counts_by_writer)
        assert not missing
        calls = len(messages) // 2
        entered = store.usage.sum("session").get(session.id, Usage())
        assert session.usage.input == entered.input == calls


@often
def test_acknowledged_writes_survive_kill(tmp_path: Path, kills: int) -> None:
    ledger = Ledger(tmp_path / "talk.db")
    for number in range(kills):
        # From the start of the process to long after many commits, each equally often.
        ledger.run_and_kill(f"run{number}", MOMENTS[number % len(MOMENTS)])
        if number % 5 == 4:
            ledger.compare()
    ledger.compare()
    assert len(ledger.acknowledged) >= kills // 5


def test_new_file_survives_kill_of_its_creator(tmp_path: Path) -> None:
    for number in range(8):
        ledger = Ledger(tmp_path / str(number) / "talk.db")
        ledger.path.parent.mkdir()
        ledger.run_and_kill("first", 1)  # it has started and is about to create the file
        ledger.compare()
        ledger.run_and_kill("second", 20)
        ledger.compare()


def test_notice_is_given_once_across_a_kill(tmp_path: Path) -> None:
    """A process that is killed after it created the new session has received the notice.

    If it is killed before that, the next process receives it.
    """
    given_before = given_after = 0
    for number in range(12):
        path = tmp_path / f"{number}.db"
        clock = FakeClock()
        settings = Settings(zone="UTC")
        with tertulia.open(path, settings=settings, clock=clock) as store:
            first = store.sessions.open(source(0))
        later = clock.forward(days=3).isoformat()
        with ChildProcess("come_back", str(path), later, 1) as child:
            assert child.read() == "ready"
            child.resume()
            if number % 2:
                child.read()
            else:
                time.sleep(random.uniform(0, 0.001))
            child.kill()
        with tertulia.open(path, settings=settings, clock=clock) as store:
            was_made = store.sessions.count() == 2
            session = store.sessions.open(source(0))
            assert (session.notice is None) == was_made
            assert session.parent_id == first.id
            given_before += was_made
            given_after += not was_made
            assert store.sessions.open(source(0)).notice is None
    assert given_before
    assert given_before + given_after == 12


# -- every disk operation


def snapshot(store: tertulia.Store) -> dict[str, Any]:
    """Return everything that the public calls of a store return."""
    content: dict[str, Any] = {"usage": store.usage.sum("session")}
    for session in store.sessions.find(limit=1000).items:
        transcript = store.transcript(session.id)
        views = [transcript.at(revision.number) for revision in transcript.revisions()]
        content[session.id] = (session, transcript.load(), views)
    return content


class RecordedRun:
    """A run of calls on a store, with a copy of its files before every disk operation.

    A kill leaves all that was written. A power cut leaves, in the worst case, only synced data.
    """

    def __init__(self, folder: Path, durability: str, share: float) -> None:
        self.share = share
        self.last: Step | None = None
        self.real, self.copies = folder / "real", folder / "copies"
        self.synced = folder / "synced"
        for path in (self.real, self.copies, self.synced):
            path.mkdir()
        self.settings = Settings(zone="UTC", durability=durability)  # type: ignore[arg-type]
        self.clock = FakeClock()
        self.snapshots: list[dict[str, Any]] = [{"usage": {}}]
        self.moments: list[tuple[str, int, Path]] = []

    def record(self, calls: list[Callable[[tertulia.Store], object]]) -> None:
        with Disk() as disk:
            disk.before = self.before
            disk.after = self.after
            store = tertulia.open(self.real / "talk.db", settings=self.settings, clock=self.clock)
            # One of the calls does the indexing, so that its disk operations are recorded.
            store._indexer.stop()
            for call in calls:
                call(store)
                self.snapshots.append(snapshot(store))
                self.copy("power cut", self.synced)
            store.close()
            self.copy("power cut", self.synced)

    def before(self, step: Step) -> None:
        if step.kind == "read":
            return
        # Consecutive writes to the same file are almost the same moment: only a share of them is
        # copied.
        if step != self.last or random.random() < self.share:
            self.copy("kill", self.real)
        self.last = step

    def after(self, step: Step) -> None:
        path = Path(step.path)
        if step.kind == "sync" and path.exists():
            shutil.copy(path, self.synced / path.name)
        if step.kind == "delete":
            (self.synced / path.name).unlink(missing_ok=True)

    def copy(self, kind: str, files: Path) -> None:
        target = self.copies / str(len(self.moments))
        shutil.copytree(files, target)
        # Memory shared between processes does not survive a power cut.
        if kind == "power cut":
            (target / "talk.db-shm").unlink(missing_ok=True)
        self.moments.append((kind, len(self.snapshots) - 1, target))

    def reopened(self, target: Path) -> dict[str, Any]:
        """Open a copy and return its content; also check that it is sound and can be written."""
        settings = self.settings
        with tertulia.open(target / "talk.db", settings=settings, clock=self.clock) as store:
            assert store.check() == []
            content = snapshot(store)
            session = store.sessions.open(source(9))
            store.transcript(session.id).append({"role": "user", "content": "the next write"})
            assert store.transcript(session.id).count() == 1
        shutil.rmtree(target)
        return content


def calls_to_record() -> list[Callable[[tertulia.Store], object]]:
    """Return calls, each of which is one transaction."""
    large = "a large text " * 5_000

    def first(store: tertulia.Store) -> tertulia.Transcript:
        return store.transcript(store.sessions.open(source(1)).id)

    def second(store: tertulia.Store) -> tertulia.Session:
        return store.sessions.open(source(2))

    def messages(*texts: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text} for text in texts]

    return [
        first,
        lambda store: first(store).append(messages("one")[0]),
        lambda store: first(store).extend(messages("two", large), Usage(input=1, cost_usd=1)),
        lambda store: first(store).undo(),
        lambda store: first(store).redo(),
        second,
        lambda store: store.transcript(second(store).id).extend(messages("three", large, "four")),
        lambda store: store.sessions.rename(second(store).id, "Title"),
        lambda store: store.settle(),
        lambda store: first(store).rewrite(messages("five")),
        lambda store: store.sessions.fork(second(store).id, at=2),
        lambda store: first(store).edit(4, messages("six")[0]),
        lambda store: store.sessions.delete(
            next(s.id for s in store.sessions.find(state="ended").items)
        ),
        lambda store: store.usage.add(second(store).id, Usage(output=2, cost_usd=2)),
        lambda store: store.sessions.reset(second(store).key),
        lambda store: store.vacuum(),
        lambda store: first(store).clear(),
    ]


@pytest.mark.parametrize(
    "share", [0.05, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("durability", ["safe", "fast"])
def test_store_survives_a_kill_before_every_disk_operation(
    tmp_path: Path, durability: str, share: float
) -> None:
    run = RecordedRun(tmp_path, durability, share)
    run.record(calls_to_record())
    kills = [moment for moment in run.moments if moment[0] == "kill"]
    assert len(kills) > len(calls_to_record())
    for kind, calls, target in run.moments:
        content = run.reopened(target)
        if kind == "kill":
            # All acknowledged calls, and the one under way wholly or not at all.
            assert content in run.snapshots[calls : calls + 2]
        elif durability == "safe":
            assert content == run.snapshots[calls]
        else:
            # Only the newest calls may be missing, each of them wholly.
            assert content in run.snapshots[: calls + 1]
