"""Several processes on one file: lost messages, failed calls, and turns per second."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from benchmarks import child_processes, raw_sqlite, store_under_test
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext
from tertulia import Store

NONE = Limit("=", 0, "")
_ROUNDS = 3


def run(context: RunContext) -> list[Row]:
    return [*_same_sessions(context), _rate(context), *_first_opens(context)]


def _same_sessions(context: RunContext) -> list[Row]:
    """Let all processes write to the same sessions of a new file."""
    count, turns = context.sizes.processes, context.sizes.process_turns
    path = context.new_path("processes")
    started = [child_processes.start("write", path, number, turns) for number in range(count)]
    failed = _failures(child_processes.run_together(started))
    with store_under_test.open_store(path) as store:
        errors = _count_errors(store, count * turns)
    sessions = child_processes.SESSIONS
    what = f"{count} processes, {count * turns:,} turns in the same {sessions} new sessions"
    return [
        _row("processes_lost", f"{what}: lost", sum(errors.values()), _describe(errors)),
        _row("processes_failed", f"{what}: failed", len(failed), _example(failed)),
    ]


def _rate(context: RunContext) -> Row:
    """Compare the turns per second of all processes together with raw, in rounds."""
    rates: dict[str, list[float]] = {"write": [], "write_raw": []}
    for _ in range(_ROUNDS):
        for kind, results in rates.items():
            results.append(_turns_per_second(context, kind))
    ours, raw = (statistics.median(results) for results in rates.values())
    return Row(
        "processes_rate",
        f"turns per second of {context.sizes.processes} processes on one file",
        ours / raw,
        Limit("≥", 0.75),
        ours=f"{ours:,.0f}/s",
        against=f"raw {raw:,.0f}/s",
        numbers={"ours_per_second": ours, "against_per_second": raw},
    )


def _turns_per_second(context: RunContext, kind: str) -> float:
    count, turns = context.sizes.processes, context.sizes.process_turns
    path = context.new_path(kind)
    if kind == "write":
        store_under_test.fill_sessions(path, child_processes.SESSIONS)
    else:
        raw_sqlite.fill_sessions(path, child_processes.SESSIONS)
    started = [child_processes.start(kind, path, number, turns) for number in range(count)]
    answers = child_processes.run_together(started)
    if failed := _failures(answers):
        raise RuntimeError(failed[0])
    return count * turns / max(float(answer["seconds"]) for answer in answers)


def _first_opens(context: RunContext) -> list[Row]:
    count = context.sizes.first_opens
    path = context.new_path("first")
    started = [child_processes.start("first", path, number) for number in range(count)]
    failed = _failures(child_processes.run_together(started))
    with store_under_test.open_store(path) as store:
        lost = sum(not _has_one_message(store, number) for number in range(count))
        extra = abs(store.sessions.count() - count)
    what = f"{count} concurrent first opens of a new file"
    return [
        _row("first_lost", f"{what}: lost", lost + extra, ""),
        _row("first_failed", f"{what}: failed", len(failed), _example(failed)),
    ]


def _count_errors(store: Store, turns: int) -> dict[str, int]:
    """Count everything that is not exactly as it was written."""
    counts: Counter[str] = Counter()
    split_turns = tokens = 0
    for number in range(child_processes.SESSIONS):
        session = store.sessions.open(store_under_test.source(number))
        marks = [str(message["content"]).split()[0] for message in _load(store, session.id)]
        counts.update(marks)
        split_turns += _count_split_turns(marks)
        tokens += session.usage.input
    return {
        "messages missing": 4 * turns - len(counts),
        "messages twice": sum(counts.values()) - len(counts),
        "turns split": split_turns,
        "usage missing": abs(turns * store_under_test.USAGE.input - tokens)
        // store_under_test.USAGE.input,
        "extra sessions": store.sessions.count() - child_processes.SESSIONS,
    }


def _count_split_turns(marks: list[str]) -> int:
    """Count the turns whose four messages are not adjacent."""
    groups = [marks[start : start + 4] for start in range(0, len(marks), 4)]
    return sum(
        [mark.rsplit("-", 1) for mark in group]
        != [[group[0].rsplit("-", 1)[0], str(index)] for index in range(4)]
        for group in groups
    )


def _has_one_message(store: Store, number: int) -> bool:
    session = store.sessions.open(store_under_test.source(number))
    return [message["content"] for message in _load(store, session.id)] == [f"{number}"]


def _load(store: Store, session_id: str) -> list[dict[str, Any]]:
    return store.transcript(session_id).load()


def _failures(answers: list[dict[str, Any]]) -> list[str]:
    ended = [str(answer["problem"]) for answer in answers if "problem" in answer]
    return ended + [problem for answer in answers for problem in answer.get("failed", [])]


def _row(name: str, what: str, count: int, note: str) -> Row:
    return Row(name, what, float(count), NONE, unit="", ours=str(count), note=note)


def _describe(errors: dict[str, int]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in errors.items() if count)


def _example(failed: list[str]) -> str:
    return f"for example {failed[0]}" if failed else ""
