"""What the rows share: sizes, a folder, stores of a size built once, and the other stores."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import BUSY_COMMIT
from benchmarks.peers import Peer
from benchmarks.raw import commit_seconds
from benchmarks.report import PeerRow


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work a run does.

    A burst of turns is long enough for a checkpoint to fall into each, so that the worst turn of a
    burst is the same kind of turn in all.
    """

    sessions: tuple[int, int, int]
    messages: tuple[int, int]
    turns_before: int
    turns_after: int
    burst: int
    steady_seconds: float
    rounds: int
    commits_before: int
    callers: tuple[int, int]
    caller_seconds: float
    caller_rounds: int
    processes: int
    process_turns: int
    first_opens: int
    fresh_starts: int
    megabytes: float
    talks: int
    crowd: tuple[int, int]
    peer_sessions: tuple[int, int]
    peer_messages: tuple[int, int]
    peer_turns: int
    peer_budget: float
    patience: float

    @property
    def judges_stalls(self) -> bool:
        """The worst of a few short bursts is chance."""
        return self.burst >= 1_000


FULL = Sizes(
    sessions=(1_000, 10_000, 100_000),
    messages=(1_000, 100_000),
    turns_before=2_000,
    turns_after=8_000,
    burst=1_000,
    steady_seconds=7.0,
    rounds=12,
    commits_before=1_500,
    callers=(8, 32),
    caller_seconds=1.0,
    caller_rounds=5,
    processes=4,
    process_turns=400,
    first_opens=80,
    fresh_starts=11,
    megabytes=8.0,
    talks=1_000,
    crowd=(1_000, 20),
    peer_sessions=(1_000, 10_000),
    peer_messages=(1_000, 10_000),
    peer_turns=2_000,
    peer_budget=3.0,
    patience=20.0,
)

QUICK = Sizes(
    sessions=(200, 1_000, 4_000),
    messages=(400, 8_000),
    turns_before=500,
    turns_after=375,
    burst=125,
    steady_seconds=0.0,
    rounds=3,
    commits_before=100,
    callers=(8, 32),
    caller_seconds=0.25,
    caller_rounds=2,
    processes=4,
    process_turns=60,
    first_opens=16,
    fresh_starts=3,
    megabytes=1.0,
    talks=80,
    crowd=(50, 4),
    peer_sessions=(200, 600),
    peer_messages=(400, 1_000),
    peer_turns=500,
    peer_budget=0.3,
    patience=0.0,
)


@dataclass(slots=True)
class Stage:
    """One run: where its files are and who takes part."""

    folder: Path
    sizes: Sizes
    peers: list[Peer]
    peer_rows: list[PeerRow] = field(default_factory=list)
    _built: dict[str, Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def new_path(self, name: str) -> Path:
        """A file that nobody has used yet."""
        return self.folder / f"{name}-{next(self._numbers)}.db"

    def built(self, name: str, build: Callable[[Path], None]) -> Path:
        """The file of that name, built when it is first asked for."""
        if name not in self._built:
            path = self.new_path(name)
            with told(f"building {name}"):
                build(path)
            self._built[name] = path
        return self._built[name]

    def is_busy(self) -> bool:
        """Whether something else keeps the disk or the processors busy right now."""
        return commit_seconds(self.new_path("probe")) > BUSY_COMMIT

    def is_quiet(self) -> bool:
        """Whether it is quiet now, or becomes so before the patience ends."""
        end = time.monotonic() + self.sizes.patience
        while self.is_busy():
            if time.monotonic() >= end:
                return False
            time.sleep(1)
        return True


@contextmanager
def told(what: str) -> Iterator[None]:
    """Says what takes long, and how long it took."""
    start = time.perf_counter()
    yield
    print(f"  {what}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
