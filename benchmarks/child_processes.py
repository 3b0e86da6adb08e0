"""Child processes of a row: newly started interpreters, or several processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SESSIONS = 16
TURN_SIZE = 120
ANSWER_SECONDS = 240


def environment() -> dict[str, str]:
    """Return an environment with our packages on the path and bytecode files switched on."""
    import tertulia

    paths = [str(ROOT), str(Path(tertulia.__file__).parent.parent)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return variables | {"PYTHONPATH": os.pathsep.join(paths)}


def run_one(kind: str, path: Path, number: int) -> dict[str, Any]:
    """Run one child process and return its answer."""
    return run_together([start(kind, path, number)])[0]


def start(kind: str, path: Path, number: int, turns: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.child_processes",
            kind,
            str(path),
            str(number),
            str(turns),
        ],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_together(children: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Start the work of all children at once, when each is ready, and return their answers."""
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return [_answer(child) for child in children]


def _answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    output, problem = child.communicate(timeout=ANSWER_SECONDS)
    if child.returncode:
        return {"problem": (problem.strip().splitlines() or ["ended without a message"])[-1]}
    answer: dict[str, Any] = json.loads(output)
    return answer


# -- code that runs inside a child


def _find(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    from benchmarks import store_under_test

    def work() -> dict[str, Any]:
        started_at = datetime.now(UTC)
        begin = time.perf_counter()
        store = store_under_test.open_store(path)
        opened = time.perf_counter()
        session = store.sessions.open(store_under_test.source(number))
        end = time.perf_counter()
        store.close()
        return {
            "seconds": end - begin,
            "first_call": end - opened,
            "touched": session.updated_at >= started_at,
        }

    return work


def _find_raw(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    import apsw

    from benchmarks import raw_sqlite

    def work() -> dict[str, Any]:
        begin = time.perf_counter()
        connection = apsw.Connection(str(path))
        connection.pragma("synchronous", "FULL")
        opened = time.perf_counter()
        connection.execute("begin immediate")
        connection.execute(raw_sqlite.TOUCH, (raw_sqlite.NOW + 1, number + 1))
        connection.execute(raw_sqlite.FIND, (number + 1,)).fetchall()
        connection.execute("commit")
        end = time.perf_counter()
        return {"seconds": end - begin, "first_call": end - opened, "touched": True}

    return work


def _write(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    """Write turns to sessions that the other children write to as well; mark each message.

    A turn is two durable commits: its session is opened, and its rows are appended.
    """
    from benchmarks import store_under_test
    from benchmarks.corpus import Corpus

    ready = Corpus(number).turns(turns, TURN_SIZE)
    with store_under_test.open_store(path.with_name(f"{path.name}-first-{number}")) as store:
        # The first call with a price loads the list of prices, once in a process.
        store_under_test.Turns(store, ready).write()
    for turn, messages in enumerate(ready):
        for index, message in enumerate(messages):
            message["content"] = f"{number}-{turn}-{index} {message['content']}"

    def work() -> dict[str, Any]:
        failed: list[str] = []
        with store_under_test.open_store(path) as store:
            begin = time.perf_counter()
            for turn, messages in enumerate(ready):
                try:
                    session = store.sessions.open(store_under_test.source(turn % SESSIONS))
                    store.transcript(session.id).extend(messages, usage=store_under_test.USAGE)
                except Exception as problem:  # noqa: BLE001 - every failure is counted
                    failed.append(f"{type(problem).__name__}: {problem}")
            seconds = time.perf_counter() - begin
        return {"failed": failed, "seconds": seconds}

    return work


def _write_raw(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    """Touch the session of each turn and insert its rows, in two commits."""
    from benchmarks import raw_sqlite
    from benchmarks.corpus import Corpus

    ready = [raw_sqlite.encoded(turn) for turn in Corpus(number).turns(turns, TURN_SIZE)]

    def work() -> dict[str, Any]:
        with closing(raw_sqlite.RawTurns(path, "safe", (number + 1) * SESSIONS)) as writer:
            begin = time.perf_counter()
            for turn, messages in enumerate(ready):
                session = turn % SESSIONS
                writer.touch(session)
                writer.write(number * SESSIONS + session, messages)
            seconds = time.perf_counter() - begin
        return {"failed": [], "seconds": seconds}

    return work


def _first(path: Path, number: int, turns: int) -> Callable[[], dict[str, Any]]:
    """Open a file that may not exist yet and write one message."""
    from benchmarks import store_under_test

    def work() -> dict[str, Any]:
        failed: list[str] = []
        try:
            with store_under_test.open_store(path) as store:
                session = store.sessions.open(store_under_test.source(number))
                store.transcript(session.id).append({"role": "user", "content": f"{number}"})
        except Exception as problem:  # noqa: BLE001 - every failure is counted
            failed.append(f"{type(problem).__name__}: {problem}")
        return {"failed": failed}

    return work


KINDS: dict[str, Callable[[Path, int, int], Callable[[], dict[str, Any]]]] = {
    "find": _find,
    "find_raw": _find_raw,
    "write": _write,
    "write_raw": _write_raw,
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
