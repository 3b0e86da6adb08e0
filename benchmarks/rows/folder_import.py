"""Importing a folder of another system, against only inserting the same messages."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks import store_under_test
from benchmarks.nanobot_folder import write_nanobot
from benchmarks.raw_sqlite import NOW, PUT_MESSAGE, connect
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext
from tertulia.transfer import import_from

SESSIONS = 100
ROUNDS = 3
# The importer commits as many messages at once.
BATCH = 2_000
MINIMUM_RATE = 20_000


def run(context: RunContext) -> list[Row]:
    folder = context.folder / "elsewhere"
    size = int(context.sizes.megabytes * 1_000_000) * 4 // SESSIONS
    count = write_nanobot(folder, sessions=SESSIONS, size=size)
    bodies = list(_bodies(folder))
    mine, raw = [], []
    for _ in range(ROUNDS):
        raw.append(_insert_seconds(context.new_path("raw"), bodies))
        mine.append(_import_seconds(context.new_path("moving"), folder, count))
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
    least = Limit("≥", MINIMUM_RATE, "/s")
    return [
        ratio,
        replace(ratio, name="moving_in_rate", what=second, figure=rate, limit=least, unit="/s"),
    ]


def _import_seconds(path: Path, folder: Path, count: int) -> float:
    with store_under_test.open_store(path) as store:
        start = time.perf_counter()
        report = import_from(store, "nanobot", folder)
        seconds = time.perf_counter() - start
    if (report.messages, report.problems) != (count, ()):
        raise RuntimeError(f"{report.messages} of {count} messages came: {report.problems[:3]}")
    return seconds


def _bodies(folder: Path) -> list[tuple[str, str]]:
    """Return the role and body of each message, ready to be bound."""
    bodies = []
    for file in sorted(folder.rglob("*.jsonl")):
        lines = file.read_text("utf-8").splitlines()[1:]
        bodies += [(str(json.loads(line)["role"]), line) for line in lines]
    return bodies


def _insert_seconds(path: Path, bodies: list[tuple[str, str]]) -> float:
    places = itertools.count(1 << 32)
    with closing(connect(path, "safe")) as connection:
        start = time.perf_counter()
        for first in range(0, len(bodies), BATCH):
            batch = bodies[first : first + BATCH]
            connection.execute("begin immediate")
            rows = [(next(places), 1, role, NOW, body) for role, body in batch]
            connection.executemany(PUT_MESSAGE, rows)
            connection.execute("commit")
        return time.perf_counter() - start
