"""Compare the speed of this checkout with that of another version, in bursts by turns.

    git worktree add ../before COMMIT
    python -m benchmarks.compare ../before

A machine's speed may change by half within minutes, so two whole runs one after the other say
little. Here each version has its own process. A round is one burst of each, in alternating order.
The result is the median of the ratios within the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import compared_version
from benchmarks.child_processes import ROOT


class Burst(NamedTuple):
    """The seconds of one operation."""

    wall: float
    processor: float


class Version:
    """The process of one version."""

    def __init__(self, checkout: Path, row: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, compared_version.__file__, str(checkout), row, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def burst(self) -> Burst:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A version could not be measured; its error stands above.")
        return Burst(*map(float, line.split()))

    def close(self) -> None:
        self._process.communicate()


def compare(other: Path, row: str, rounds: int, folder: Path) -> str:
    """Measure a row of both versions; return the result as a line of the table."""
    versions = []
    for name, checkout in (("other", other), ("this", ROOT)):
        (folder / name).mkdir()
        versions.append(Version(checkout, row, folder / name))
    try:
        for version in versions:
            version.burst()  # to warm up
        bursts: list[list[Burst]] = [[], []]
        for number in range(rounds):
            for index in (0, 1) if number % 2 else (1, 0):
                bursts[index].append(versions[index].burst())
    finally:
        for version in versions:
            version.close()
    return _format(row, *bursts)


def _format(row: str, other: Sequence[Burst], this: Sequence[Burst]) -> str:
    pairs = list(zip(this, other, strict=True))
    walls = sorted(mine.wall / theirs.wall for mine, theirs in pairs)
    processor = statistics.median(mine.processor / theirs.processor for mine, theirs in pairs)
    low, _, high = statistics.quantiles(walls, n=4)
    times = [statistics.median(burst.wall for burst in bursts) * 1000 for bursts in (other, this)]
    return (
        f"{row:9} {times[0]:8.3f} {times[1]:8.3f}  {statistics.median(walls):5.2f}×"
        f"  ({low:.2f} to {high:.2f})  {processor:5.2f}×"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", type=Path, help="the folder of the other version")
    parser.add_argument("--only", action="append", choices=[*compared_version.ROWS])
    parser.add_argument("--rounds", type=int, default=40, help="at least 2 (default: 40)")
    parser.add_argument("--dir", type=Path, help="folder to write to: a disk, not memory")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if not (checkout / "src" / "tertulia").is_dir():
        parser.error(f"{checkout} is not a checkout of Tertulia: it has no src/tertulia")
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    print("row       other ms  this ms  ratio  (half of them)   processor time")
    for row in options.only or compared_version.ROWS:
        with tempfile.TemporaryDirectory(dir=options.dir, prefix="compare-") as folder:
            rounds = max(2, options.rounds // 4) if row == "gateway" else options.rounds
            print(compare(checkout, row, rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
