"""`import tertulia` in a new interpreter, less what the interpreter alone needs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import against, children, peers
from benchmarks.measure import Seconds
from benchmarks.peers import Peer, PeerError
from benchmarks.report import Limit, PeerRow, Row, milliseconds
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    times = 2 * stage.sizes.fresh_starts
    environment = children.environment() | {"PYTHONPYCACHEPREFIX": str(stage.folder / "bytecode")}
    bare, mine = import_seconds(sys.executable, "tertulia", environment, times)
    against.figures(stage, "import", _asked(stage, mine))
    return [
        Row(
            "import",
            "import tertulia",
            mine * 1000,
            Limit("≤", 80, "ms"),
            unit="ms",
            ours=milliseconds(mine),
            against=f"python alone {milliseconds(bare)}",
            numbers={"ours_ms": mine * 1000, "against_ms": bare * 1000},
        )
    ]


def import_seconds(
    python: str, module: str, environment: dict[str, str], times: int
) -> tuple[Seconds, Seconds]:
    """What the bare interpreter needs, and what the import adds to it."""
    commands = [[python, "-c", "pass"], [python, "-c", f"import {module}"]]
    found: list[list[Seconds]] = [[], []]
    for command in commands:
        _spent(command, environment)  # the first writes bytecode and fills the file cache
    for _ in range(times):
        for command, seconds in zip(commands, found, strict=True):
            seconds.append(_spent(command, environment))
    bare, full = map(statistics.median, found)
    return bare, full - bare


def _spent(command: list[str], environment: dict[str, str]) -> Seconds:
    begin = time.perf_counter()
    done = subprocess.run(
        command, env=environment, cwd=os.sep, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return time.perf_counter() - begin


def _asked(stage: Stage, mine: Seconds) -> Callable[[Peer], PeerRow]:
    def ask(peer: Peer) -> PeerRow:
        if peer.problem:
            raise PeerError(peer.problem)
        package = peer.package
        home = peers.environment(stage.folder)
        times = max(2, stage.sizes.fresh_starts // 2)
        _, seconds = import_seconds(str(package.python), package.imported, home, times)
        return PeerRow(
            "import",
            peer.name,
            size=package.imported,
            value=seconds * 1000,
            against_ours=seconds / mine,
        )

    return ask
