"""`python -m benchmarks`: measure, print a table, write the figures as JSON."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import apsw

from benchmarks import report
from benchmarks.catalogue import ROWS
from benchmarks.peers import PACKAGES, Peer
from benchmarks.report import Row
from benchmarks.run_context import FULL, QUICK, RunContext, timed_step

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tertulia-bench-", dir=options.dir))
    context = RunContext(folder, QUICK if options.quick else FULL, [])
    begin = time.perf_counter()
    try:
        if not options.no_peers:
            context.peers = _start_peers(folder)
        rows = [row for name in options.only or ROWS for row in measure(name, context)]
    finally:
        for peer in context.peers:
            peer.close()
        shutil.rmtree(folder, ignore_errors=True)
    about = _about(options.quick, time.perf_counter() - begin)
    _show(about, rows, context)
    report.write_json(options.json, about=about, rows=rows, peers=context.peer_rows)
    return 0


def measure(name: str, context: RunContext) -> Sequence[Row]:
    """Measure the rows of a name; an error becomes a row too, so that the others still run."""
    was_busy = not context.is_quiet()
    try:
        with timed_step(name):
            rows = ROWS[name](context)
    except Exception as problem:  # noqa: BLE001 - any error is shown in the table
        why = f"{type(problem).__name__}: {problem}"
        return [Row(name, "could not be measured", None, problem=why)]
    if was_busy or context.is_busy():
        return [replace(row, disturbed=row.is_timed) for row in rows]
    return rows


def _start_peers(folder: Path) -> list[Peer]:
    peers = [Peer(package, folder / package.name) for package in PACKAGES]
    for peer in peers:
        peer.start()
    return peers


def _about(quick: bool, seconds: float) -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "seconds": round(seconds, 1),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def _show(about: dict[str, object], rows: Sequence[Row], context: RunContext) -> None:
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if about["quick"]:
        print("Quick: the sizes are smaller than those that the limits are for.")
    print(f"\n{report.table(rows)}")
    if any(row.disturbed for row in rows):
        print(
            "\nDisturbed: other work kept the disk or the processors busy, so that a single "
            "commit took over a millisecond.\n"
            "The ratios of such rows are not reliable; measure again on an idle machine."
        )
    if context.peer_rows:
        print(f"\nOther stores, in the same run\n{report.peer_table(context.peer_rows)}")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument(
        "--only", action="append", choices=list(ROWS), metavar="NAME", help=", ".join(ROWS)
    )
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--no-peers", action="store_true", help="do not measure other stores")
    parser.add_argument("--dir", type=Path, help="folder to write to; use a disk, not memory")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
