"""`import tertulia` in a new interpreter, less what the interpreter alone needs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks import against, children, peers
from benchmarks.measure import Operation, Samples, Seconds, interleave
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.stage import Stage


@dataclass(frozen=True, slots=True)
class Imported:
    """A module in an interpreter; with and without it are two contestants."""

    module: str
    python: str
    environment: dict[str, str]

    def contestants(self) -> list[Operation]:
        return [
            Operation(f"bare {self.module}", lambda: self._run("pass")),
            Operation(self.module, lambda: self._run(f"import {self.module}")),
        ]

    def added(self, found: dict[str, Samples]) -> Seconds:
        return found[self.module].median - found[f"bare {self.module}"].median

    def _run(self, program: str) -> None:
        command = [self.python, "-c", program]
        subprocess.run(command, env=self.environment, cwd=os.sep, capture_output=True, check=True)


def run(stage: Stage) -> list[Row]:
    # Bytecode as an installed package has it; the round to warm up writes it.
    bytecode = {"PYTHONPYCACHEPREFIX": str(stage.folder / "bytecode")}
    ours = Imported("tertulia", sys.executable, children.environment() | bytecode)
    others = {peer.name: (peer, _imported(stage, peer)) for peer in stage.peers if not peer.problem}
    everyone = [ours, *(imported for _, imported in others.values())]
    found = interleave(
        [contestant for imported in everyone for contestant in imported.contestants()],
        rounds=2 * stage.sizes.fresh_starts,
        times=1,
        budget=stage.sizes.peer_budget,
    )
    mine, bare = ours.added(found), found["bare tertulia"].median
    for peer, imported in others.values():
        added = imported.added(found) * 1000
        against.note(stage, "import", peer, added, size=imported.module, ours=mine * 1000)
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


def _imported(stage: Stage, peer: peers.Peer) -> Imported:
    package = peer.package
    return Imported(package.imported, str(package.python), peers.environment(stage.folder))
