"""Processes of our own that a row starts: to be fresh, or to be several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SESSIONS = 16
TURN_SIZE = 120
ANSWER_SECONDS = 240


def environment() -> dict[str, str]:
    """Our packages from wherever this process has them; bytecode as an installed package has it."""
    import tertulia

    places = [str(ROOT), str(Path(tertulia.__file__).parent.parent)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": os.pathsep.join(places)}


def fresh(kind: str, path: Path, number: int) -> dict[str, Any]:
    """One child, from start to end."""
    return gathered([start(kind, path, number)])[0]


def start(kind: str, path: Path, number: int, turns: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.children", kind, str(path), str(number), str(turns)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def gathered(children: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Lets all go at once, when every one of them is ready, and waits for their answers."""
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return [_answer(child) for child in children]


def _answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    told, problem = child.communicate(timeout=ANSWER_SECONDS)
    if child.returncode:
        return {"problem": (problem.strip().splitlines() or ["ended without a word"])[-1]}
    answer: dict[str, Any] = json.loads(told)
    return answer


# -- what runs inside a child


def _find(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    from benchmarks import ours

    def work() -> dict[str, Any]:
        started_at = datetime.now(UTC)
        begin = time.perf_counter()
        store = ours.open_store(path)
        session = store.sessions.open(ours.source(number))
        seconds = time.perf_counter() - begin
        store.close()
        return {"seconds": seconds, "touched": session.updated_at >= started_at}

    return work


def _find_raw(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    import apsw

    from benchmarks import raw

    def work() -> dict[str, Any]:
        begin = time.perf_counter()
        connection = apsw.Connection(str(path))
        connection.pragma("synchronous", "FULL")
        connection.execute("begin immediate")
        connection.execute(raw.TOUCH, (raw.NOW + 1, number + 1))
        connection.execute(raw.FIND, (number + 1,)).fetchall()
        connection.execute("commit")
        return {"seconds": time.perf_counter() - begin, "touched": True}

    return work


def _write(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    """Turns in sessions that the other children write to as well, each message with its mark."""
    from benchmarks import ours
    from benchmarks.corpus import Corpus

    ready = Corpus(number).turns(turns, TURN_SIZE)
    for turn, messages in enumerate(ready):
        for place, message in enumerate(messages):
            message["content"] = f"{number}-{turn}-{place} {message['content']}"

    def work() -> dict[str, Any]:
        failed: list[str] = []
        with ours.open_store(path) as store:
            for turn, messages in enumerate(ready):
                try:
                    session = store.sessions.open(ours.source(turn % SESSIONS))
                    store.transcript(session.id).extend(messages, usage=ours.USAGE)
                except Exception as problem:  # noqa: BLE001 - any failure is what is counted
                    failed.append(f"{type(problem).__name__}: {problem}")
        return {"failed": failed}

    return work


def _first(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    """The first contact with a file that may not exist yet."""
    from benchmarks import ours

    def work() -> dict[str, Any]:
        failed: list[str] = []
        try:
            with ours.open_store(path) as store:
                session = store.sessions.open(ours.source(number))
                store.transcript(session.id).append({"role": "user", "content": f"{number}"})
        except Exception as problem:  # noqa: BLE001 - any failure is what is counted
            failed.append(f"{type(problem).__name__}: {problem}")
        return {"failed": failed}

    return work


KINDS: dict[str, Callable[[Path, int, int], Callable[[], dict[str, Any]]]] = {
    "find": _find,
    "find_raw": _find_raw,
    "write": _write,
    "first": _first,
}


def main() -> None:
    kind, path, number, turns = sys.argv[1:]
    work = KINDS[kind](Path(path), int(number), int(turns))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(work()), flush=True)


if __name__ == "__main__":
    main()
