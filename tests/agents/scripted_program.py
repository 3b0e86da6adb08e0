"""The program of a `CommandAgent`, which makes a list of moves given on its command line.

    ["event", {…}]     write an event
    ["line", "…"]      write a line as it is
    ["results", n]     read the results of a step, check that there are n, note new messages
    ["repeat"]         answer with the request as JSON
    ["stderr", "…"]    write to standard error
    ["exit", n], ["hang"], ["hang_on_term"], ["flood"], ["close"], ["leave_child"]

It reads the request before its first move.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any


def write(event: Any) -> None:
    print(json.dumps(event), flush=True)


def flood(_: Any) -> None:
    while True:
        write({"type": "delta", "text": "x" * 1000})


def hang(_: Any) -> None:
    signal.pause()


def hang_on_term(_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write({"type": "delta", "text": f"{os.getpid()}"})
    while True:
        signal.pause()


def results(count: int) -> None:
    message = json.loads(sys.stdin.readline())
    assert message["type"] == "tool_results"
    assert len(message["results"]) == count, message
    for text in message["steer"]:
        write({"type": "note", "text": f"heard {text}"})


def leave_child(_: Any) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    write({"type": "delta", "text": f"{child.pid}"})


def repeat(_: Any) -> None:
    write({"type": "step", "text": json.dumps(REQUEST)})


MOVES: dict[str, Callable[[Any], Any]] = {
    "event": write,
    "line": lambda text: print(text, flush=True),
    "results": results,
    "stderr": lambda text: print(text, file=sys.stderr, flush=True),
    "exit": sys.exit,
    "hang": hang,
    "hang_on_term": hang_on_term,
    "flood": flood,
    "close": lambda _: os.close(1),
    "leave_child": leave_child,
    "repeat": repeat,
}

if __name__ == "__main__":
    REQUEST = json.loads(sys.stdin.readline())
    for name, *arguments in json.loads(sys.argv[1]):
        MOVES[name](arguments[0] if arguments else None)
