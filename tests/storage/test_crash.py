"""`kill -9` at arbitrary moments: what was acknowledged is there, once, and work goes on.

Twice over: children that are really killed whenever it happens, and every single moment between two
operations on the disk, played from copies of the files as they were at that moment.
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
from tests.storage.children import Child
from tests.storage.disk import Disk, Step
from tests.storage.programs import source

WRITERS = 4
MOMENTS = (0, 50, 1, 200, 2, 10, 3)

often = pytest.mark.parametrize(
    "kills", [20, pytest.param(200, marks=pytest.mark.slow)], ids=["20 times", "200 times"]
)


class Ledger:
    """What the children said, and whether the store says the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: dict[str, int] = {}
        self.sessions: dict[str, str] = {}

    def run_and_kill(self, name: str, after: int) -> None:
        """Let a child write, and kill it some moments after it has said so much."""
        durability = random.choice(("safe", "fast"))
        with Child("write_until_killed", str(self.path), name, WRITERS, durability) as child:
            heard = 0
            while heard < after:
                self.note(child.said())
                heard += 1
            time.sleep(random.uniform(0, 0.003))
            child.kill()
            for line in child.rest():
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
        # Everything that a connection leaves behind is tidied up by the next.
        assert os.listdir(self.path.parent) == [self.path.name]

    def compare_session(self, store: tertulia.Store, session: tertulia.Session) -> None:
        found = [
            message
            for message in store.transcript(session.id).load()
            if message["role"] != "system"
        ]
        times = Counter(message["content"] for message in found)
        assert set(times.values()) <= {1}
        seen: dict[str, list[int]] = {}
        for question, answer in zip(found[::2], found[1::2], strict=True):
            who, count, _ = question["content"].split()
            # Both of a call are there, or none.
            assert answer["content"] == f"{who} {count} assistant"
            assert answer.get("padding", f"{who} {count} " * 5000) == f"{who} {count} " * 5000
            seen.setdefault(who, []).append(int(count))
        for who, counts in seen.items():
            acknowledged = self.acknowledged.get(who, -1)
            # In order, and at most one more than it could still say.
            assert counts == list(range(len(counts)))
            assert len(counts) - 1 in (acknowledged, acknowledged + 1)
        missing = {who for who, found in self.sessions.items() if found == session.id} - set(seen)
        assert not missing
        calls = len(found) // 2
        entered = store.usage.sum("session").get(session.id, Usage())
        assert session.usage.input == entered.input == calls


@often
def test_a_writer_is_killed(tmp_path: Path, kills: int) -> None:
    ledger = Ledger(tmp_path / "talk.db")
    for number in range(kills):
        # From the first moment of the process to well after many commits; each as often.
        ledger.run_and_kill(f"run{number}", MOMENTS[number % len(MOMENTS)])
        if number % 5 == 4:
            ledger.compare()
    ledger.compare()
    assert len(ledger.acknowledged) >= kills // 5


def test_a_new_file_whose_maker_was_killed(tmp_path: Path) -> None:
    for number in range(8):
        ledger = Ledger(tmp_path / str(number) / "talk.db")
        ledger.path.parent.mkdir()
        ledger.run_and_kill("first", 1)  # it has started, and is about to make the file
        ledger.compare()
        ledger.run_and_kill("second", 20)
        ledger.compare()


def test_a_notice_is_given_once_across_a_kill(tmp_path: Path) -> None:
    """Whoever is killed after it made the new session has been given the notice, nobody else.

    Whoever is killed before that leaves it to the next.
    """
    given_before = given_after = 0
    for number in range(12):
        path = tmp_path / f"{number}.db"
        clock = FakeClock()
        settings = Settings(zone="UTC")
        with tertulia.open(path, settings=settings, clock=clock) as store:
            first = store.sessions.open(source(0))
        later = clock.forward(days=3).isoformat()
        with Child("come_back", str(path), later, 1) as child:
            assert child.said() == "ready"
            child.go_on()
            if number % 2:
                child.said()
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


# -- every moment


def portrait(store: tertulia.Store) -> dict[str, Any]:
    """All that a store shows of itself."""
    found: dict[str, Any] = {"usage": store.usage.sum("session")}
    for session in store.sessions.find(limit=1000).items:
        transcript = store.transcript(session.id)
        views = [transcript.at(one.number) for one in transcript.revisions()]
        found[session.id] = (session, transcript.load(), views)
    return found


class Life:
    """A short life of a store, with a copy of its files for every moment in which it could end.

    A kill leaves what was written. A power cut leaves, at the worst, only what was synced.
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
        self.portraits: list[dict[str, Any]] = [{"usage": {}}]
        self.moments: list[tuple[str, int, Path]] = []

    def live(self, calls: list[Callable[[tertulia.Store], object]]) -> None:
        with Disk() as disk:
            disk.before = self.before
            disk.after = self.after
            store = tertulia.open(self.real / "talk.db", settings=self.settings, clock=self.clock)
            store._indexer.stop()  # what it does is done by one of the calls, where it is seen
            for call in calls:
                call(store)
                self.portraits.append(portrait(store))
                self.copy("power cut", self.synced)
            store.close()
            self.copy("power cut", self.synced)

    def before(self, step: Step) -> None:
        if step.kind == "read":
            return
        # One write after another to the same file is much the same moment: a share of those is
        # played, and all others.
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
        # What shares memory between processes does not outlive the machine.
        if kind == "power cut":
            (target / "talk.db-shm").unlink(missing_ok=True)
        self.moments.append((kind, len(self.portraits) - 1, target))

    def reopened(self, target: Path) -> dict[str, Any]:
        """What a store shows that is opened on a copy; it also has to be sound and to go on."""
        settings = self.settings
        with tertulia.open(target / "talk.db", settings=settings, clock=self.clock) as store:
            assert store.check() == []
            found = portrait(store)
            session = store.sessions.open(source(9))
            store.transcript(session.id).append({"role": "user", "content": "the next write"})
            assert store.transcript(session.id).count() == 1
        shutil.rmtree(target)
        return found


def a_life() -> list[Callable[[tertulia.Store], object]]:
    """Calls that each are one transaction."""
    large = "a large text " * 5_000

    def first(store: tertulia.Store) -> tertulia.Transcript:
        return store.transcript(store.sessions.open(source(1)).id)

    def second(store: tertulia.Store) -> tertulia.Session:
        return store.sessions.open(source(2))

    def say(*texts: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text} for text in texts]

    return [
        first,
        lambda store: first(store).append(say("one")[0]),
        lambda store: first(store).extend(say("two", large), Usage(input=1, cost_usd=1)),
        lambda store: first(store).undo(),
        lambda store: first(store).redo(),
        second,
        lambda store: store.transcript(second(store).id).extend(say("three", large, "four")),
        lambda store: store.sessions.rename(second(store).id, "Title"),
        lambda store: store.settle(),
        lambda store: first(store).rewrite(say("five")),
        lambda store: store.sessions.fork(second(store).id, at=2),
        lambda store: first(store).edit(4, say("six")[0]),
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
def test_every_moment_is_survived(tmp_path: Path, durability: str, share: float) -> None:
    life = Life(tmp_path, durability, share)
    life.live(a_life())
    kills = [moment for moment in life.moments if moment[0] == "kill"]
    assert len(kills) > len(a_life())
    for kind, calls, target in life.moments:
        found = life.reopened(target)
        if kind == "kill":
            # What was acknowledged, and of what was not, all or nothing.
            assert found in life.portraits[calls : calls + 2]
        elif durability == "safe":
            assert found == life.portraits[calls]
        else:
            # Only the newest may be missing, and then wholly.
            assert found in life.portraits[: calls + 1]
