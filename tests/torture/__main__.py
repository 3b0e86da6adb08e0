"""Kill, stop and disconnect nodes while they answer 300 conversations.

    python -m tests.torture [--seconds 120] [--database postgres|sqlite] [--seed N] [--gateway]

At the end every message must have been answered once, in order, and every history must be legal.
The run prints its counts and exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.servers.postgres import server
from tests.torture.databases import connection_killer
from tests.torture.run import Plan, Report, Torture


def run_on_postgres(seconds: float, seed: int, node: str = "node") -> Report:
    with server() as running:
        address = running.database()
        plan = Plan(
            address,
            seconds,
            nodes=4,
            seed=seed,
            cut=connection_killer(address, seed),
            restart=running.restart,
            node=node,
        )
        return Torture(plan).run()


def run_on_sqlite(seconds: float, seed: int, node: str = "node") -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "talk.db")
        return Torture(Plan(path, seconds, nodes=2, seed=seed, node=node)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gateway", action="store_true", help="run whole gateways as nodes")
    options = parser.parse_args()
    run = run_on_postgres if options.database == "postgres" else run_on_sqlite
    report = run(options.seconds, options.seed, "gateway" if options.gateway else "node")
    print(report)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
