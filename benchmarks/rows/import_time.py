"""`import tertulia` in a new interpreter, minus the time of the interpreter alone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks import child_processes, peer_results, peers
from benchmarks.measure import Operation, Samples, Seconds, interleave
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.run_context import RunContext


@dataclass(frozen=True, slots=True)
class ImportedModule:
    """A module in an interpreter; an interpreter with it and one without it are contestants."""

    module: str
    python: str
    environment: dict[str, str]

    def contestants(self) -> list[Operation]:
        return [
            Operation(f"bare {self.module}", lambda: self._run("pass")),
            Operation(self.module, lambda: self._run(f"import {self.module}")),
        ]

    def added(self, samples: dict[str, Samples]) -> Seconds:
        return samples[self.module].median - samples[f"bare {self.module}"].median

    def _run(self, program: str) -> None:
        command = [self.python, "-c", program]
        subprocess.run(command, env=self.environment, cwd=os.sep, capture_output=True, check=True)


def run(context: RunContext) -> list[Row]:
    # With bytecode, as an installed package has it; the warm-up round writes it.
    bytecode = {"PYTHONPYCACHEPREFIX": str(context.folder / "bytecode")}
    ours = ImportedModule("tertulia", sys.executable, child_processes.environment() | bytecode)
    others = {
        peer.name: (peer, _imported_module(context, peer))
        for peer in context.peers
        if not peer.problem
    }
    everyone = [ours, *(module for _, module in others.values())]
    samples = interleave(
        [contestant for module in everyone for contestant in module.contestants()],
        rounds=2 * context.sizes.fresh_starts,
        times=1,
        budget=context.sizes.peer_budget,
    )
    mine, bare = ours.added(samples), samples["bare tertulia"].median
    for peer, module in others.values():
        added = module.added(samples) * 1000
        peer_results.add_row(context, "import", peer, added, size=module.module, ours=mine * 1000)
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


def _imported_module(context: RunContext, peer: peers.Peer) -> ImportedModule:
    package = peer.package
    return ImportedModule(package.imported, str(package.python), peers.environment(context.folder))
