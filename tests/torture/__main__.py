"""Nodes that are killed, stopped and cut off while they answer 300 conversations.

    python -m tests.torture [--seconds 120] [--database postgres|sqlite] [--seed N] [--gateway]

In the end every message was answered once, in order, and every history is legal; it prints what
happened and ends with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.servers.postgres import server
from tests.torture.databases import cutter
from tests.torture.run import Plan, Report, Torture


def on_postgres(seconds: float, seed: int, node: str = "node") -> Report:
    with server() as running:
        address = running.database()
        plan = Plan(
            address,
            seconds,
            nodes=4,
            seed=seed,
            cut=cutter(address, seed),
            restart=running.restart,
            node=node,
        )
        return Torture(plan).run()


def on_sqlite(seconds: float, seed: int, node: str = "node") -> Report:
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "talk.db")
        return Torture(Plan(place, seconds, nodes=2, seed=seed, node=node)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gateway", action="store_true", help="nodes that are whole gateways")
    given = parser.parse_args()
    play = on_postgres if given.database == "postgres" else on_sqlite
    report = play(given.seconds, given.seed, "gateway" if given.gateway else "node")
    print(report)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
