"""Importing the folder of another system, against inserting the same messages and nothing else."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks import ours
from benchmarks.elsewhere import write_nanobot
from benchmarks.raw import NOW, PUT_MESSAGE, connect
from benchmarks.report import Limit, Row
from benchmarks.stage import Stage
from tertulia.transfer import import_from

SESSIONS = 100
ROUNDS = 3
# As many as the importer commits at once.
AT_ONCE = 2_000
LEAST = 20_000


def run(stage: Stage) -> list[Row]:
    folder = stage.folder / "elsewhere"
    size = int(stage.sizes.megabytes * 1_000_000) * 4 // SESSIONS
    count = write_nanobot(folder, sessions=SESSIONS, size=size)
    bodies = list(_bodies(folder))
    mine, raw = [], []
    for _ in range(ROUNDS):
        raw.append(_inserted(stage.new_path("raw"), bodies))
        mine.append(_imported(stage.new_path("moving"), folder, count))
    rate, base = count / statistics.median(mine), count / statistics.median(raw)
    numbers = {"messages_per_second": rate, "raw_messages_per_second": base}
    ratio = Row(
        "moving_in",
        f"import of {count:,} messages in {SESSIONS} files of nanobot",
        base / rate,
        ours=f"{rate:,.0f} messages/s",
        against=f"raw {base:,.0f} messages/s",
        numbers=numbers,
    )
    second = "the same, messages a second"
    least = Limit("≥", LEAST, "/s")
    return [
        ratio,
        replace(ratio, name="moving_in_rate", what=second, figure=rate, limit=least, unit="/s"),
    ]


def _imported(path: Path, folder: Path, count: int) -> float:
    with ours.open_store(path) as store:
        start = time.perf_counter()
        report = import_from(store, "nanobot", folder)
        spent = time.perf_counter() - start
    if (report.messages, report.problems) != (count, ()):
        raise RuntimeError(f"{report.messages} of {count} messages came: {report.problems[:3]}")
    return spent


def _bodies(folder: Path) -> list[tuple[str, str]]:
    """Role and body of each message, ready to be bound."""
    found = []
    for file in sorted(folder.rglob("*.jsonl")):
        lines = file.read_text("utf-8").splitlines()[1:]
        found += [(str(json.loads(line)["role"]), line) for line in lines]
    return found


def _inserted(path: Path, bodies: list[tuple[str, str]]) -> float:
    places = itertools.count(1 << 32)
    with closing(connect(path, "safe")) as connection:
        start = time.perf_counter()
        for first in range(0, len(bodies), AT_ONCE):
            some = bodies[first : first + AT_ONCE]
            connection.execute("begin immediate")
            rows = [(next(places), 1, role, NOW, body) for role, body in some]
            connection.executemany(PUT_MESSAGE, rows)
            connection.execute("commit")
        return time.perf_counter() - start
