"""The context that all rows share: sizes, a folder, stores that are built once, other stores."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import BUSY_COMMIT
from benchmarks.peers import Peer
from benchmarks.raw_sqlite import commit_seconds
from benchmarks.report import PeerRow


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work of a run.

    A burst of turns is long enough to contain a checkpoint, so that the worst turn of a burst is
    the same kind of turn in all bursts.
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
    flood: tuple[int, int, float]
    peer_sessions: tuple[int, int]
    peer_messages: tuple[int, int]
    peer_turns: int
    peer_budget: float
    patience: float

    @property
    def judges_stalls(self) -> bool:
        """Return whether bursts are long enough; the worst of a few short bursts is random."""
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
    flood=(200, 2_000, 60.0),
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
    flood=(40, 200, 4.0),
    peer_sessions=(200, 600),
    peer_messages=(400, 1_000),
    peer_turns=500,
    peer_budget=0.3,
    patience=0.0,
)


@dataclass(slots=True)
class RunContext:
    """One run: its folder, its sizes and the other stores that take part."""

    folder: Path
    sizes: Sizes
    peers: list[Peer]
    peer_rows: list[PeerRow] = field(default_factory=list)
    _built: dict[str, Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def new_path(self, name: str) -> Path:
        """Return the path of a new file."""
        return self.folder / f"{name}-{next(self._numbers)}.db"

    def built(self, name: str, build: Callable[[Path], None]) -> Path:
        """Return the file of a name; build it at the first call."""
        if name not in self._built:
            path = self.new_path(name)
            with timed_step(f"building {name}"):
                build(path)
            self._built[name] = path
        return self._built[name]

    def is_busy(self) -> bool:
        """Return whether other work keeps the disk or the processors busy now."""
        return commit_seconds(self.new_path("probe")) > BUSY_COMMIT

    def is_quiet(self) -> bool:
        """Return whether the machine is idle now, or becomes idle within `patience` seconds."""
        end = time.monotonic() + self.sizes.patience
        while self.is_busy():
            if time.monotonic() >= end:
                return False
            time.sleep(1)
        return True


@contextmanager
def timed_step(what: str) -> Iterator[None]:
    """Print the name of a step and the time it took."""
    start = time.perf_counter()
    yield
    print(f"  {what}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
