"""Several processes on one file: what was lost, and who failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks import children, ours
from benchmarks.report import Limit, Row
from benchmarks.stage import Stage
from tertulia import Store

NONE = Limit("=", 0, "")


def run(stage: Stage) -> list[Row]:
    return [*_same_sessions(stage), *_first_opens(stage)]


def _same_sessions(stage: Stage) -> list[Row]:
    """All write to the same sessions of a file that none of them has seen before."""
    count, turns = stage.sizes.processes, stage.sizes.process_turns
    path = stage.new_path("processes")
    started = [children.start("write", path, number, turns) for number in range(count)]
    failed = _failures(children.gathered(started))
    with ours.open_store(path) as store:
        wrong = _wrong(store, count * turns)
    what = (
        f"{count} processes, {count * turns:,} turns in the same {children.SESSIONS} new sessions"
    )
    return [
        _row("processes_lost", f"{what}: lost", sum(wrong.values()), _listed(wrong)),
        _row("processes_failed", f"{what}: failed", len(failed), _example(failed)),
    ]


def _first_opens(stage: Stage) -> list[Row]:
    count = stage.sizes.first_opens
    path = stage.new_path("first")
    started = [children.start("first", path, number) for number in range(count)]
    failed = _failures(children.gathered(started))
    with ours.open_store(path) as store:
        lost = sum(not _has_one_message(store, number) for number in range(count))
        extra = abs(store.sessions.count() - count)
    what = f"{count} concurrent first opens of a new file"
    return [
        _row("first_lost", f"{what}: lost", lost + extra, ""),
        _row("first_failed", f"{what}: failed", len(failed), _example(failed)),
    ]


def _wrong(store: Store, turns: int) -> dict[str, int]:
    """Whatever is not exactly as it was written."""
    seen: Counter[str] = Counter()
    torn = tokens = 0
    for number in range(children.SESSIONS):
        session = store.sessions.open(ours.source(number))
        marks = [str(message["content"]).split()[0] for message in _load(store, session.id)]
        seen.update(marks)
        torn += _torn(marks)
        tokens += session.usage.input
    return {
        "messages missing": 4 * turns - len(seen),
        "messages twice": sum(seen.values()) - len(seen),
        "turns torn apart": torn,
        "usage missing": abs(turns * ours.USAGE.input - tokens) // ours.USAGE.input,
        "sessions too many": store.sessions.count() - children.SESSIONS,
    }


def _torn(marks: list[str]) -> int:
    """Turns whose four messages do not stand together."""
    groups = [marks[start : start + 4] for start in range(0, len(marks), 4)]
    return sum(
        [mark.rsplit("-", 1) for mark in group]
        != [[group[0].rsplit("-", 1)[0], str(place)] for place in range(4)]
        for group in groups
    )


def _has_one_message(store: Store, number: int) -> bool:
    session = store.sessions.open(ours.source(number))
    return [message["content"] for message in _load(store, session.id)] == [f"{number}"]


def _load(store: Store, session_id: str) -> list[dict[str, Any]]:
    return store.transcript(session_id).load()


def _failures(answers: list[dict[str, Any]]) -> list[str]:
    ended = [str(answer["problem"]) for answer in answers if "problem" in answer]
    return ended + [problem for answer in answers for problem in answer.get("failed", [])]


def _row(name: str, what: str, count: int, note: str) -> Row:
    return Row(name, what, float(count), NONE, unit="", ours=str(count), note=note)


def _listed(wrong: dict[str, int]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in wrong.items() if count)


def _example(failed: list[str]) -> str:
    return f"for example {failed[0]}" if failed else ""
