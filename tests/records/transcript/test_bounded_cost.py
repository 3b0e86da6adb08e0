"""What a command costs does not depend on how long the conversation is.

Counted by SQLite itself, not timed: how many rows were changed, and how many steps its machine
took for the statements of the call. The same commands run on 1,000 and on 100,000 messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

import tertulia
from tertulia import Settings, Source
from tests.storage.store_internals import sqlite_of

FEW, MANY = 1_000, 100_000
# A step is an instruction of SQLite's machine, some ten for a row that is read. Reading even one
# message in a hundred of the long transcript would take thousands more.
SLACK = 50


class Long:
    """A store with one long transcript, and what its calls cost."""

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        self.store = tertulia.open(path, settings=Settings(zone="UTC", durability="fast"))
        session = self.store.sessions.open(Source("telegram", "anna"))
        self.id, self.key = session.id, session.key
        self.transcript = self.store.transcript(self.id)
        for begin in range(0, size, 1000):
            self.transcript.extend(message(number) for number in range(begin, begin + 1000))
        self.store.settle()
        # Nobody but the commands themselves may be at work while they are counted.
        self.store._indexer.stop()

    def cost(self, command: Callable[[Long], object]) -> dict[str, int]:
        """How many rows a command changes, and how many steps it takes to read and to write."""
        found = {"rows": 0, "steps": 0}

        def finished(event: dict[str, Any]) -> None:
            found["steps"] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

        database = sqlite_of(self.store)
        database.read(lambda tx: None)  # so that a connection for reading is there
        connections = [database._writer, *(connection for connection, _ in database._readers)]
        before = sum(connection.total_changes() for connection in connections)
        for connection in connections:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, finished)
        command(self)
        for connection in connections:
            connection.trace_v2(0)
        found["rows"] = sum(connection.total_changes() for connection in connections) - before
        return found


def message(number: int) -> dict[str, Any]:
    """Turns of four messages: a question, a tool call, its result, the answer."""
    role = ("user", "assistant", "tool", "assistant")[number % 4]
    return {"role": role, "content": f"message {number}"}


COMMANDS: list[tuple[str, Callable[[Long], object]]] = [
    ("append", lambda long: long.transcript.append(message(0))),
    ("undo", lambda long: long.transcript.undo()),
    ("redo", lambda long: long.transcript.redo()),
    ("undo three turns", lambda long: long.transcript.undo(3)),
    ("rewrite", lambda long: long.transcript.rewrite([message(0), message(1)])),
    ("restore", lambda long: long.transcript.restore(1)),
    ("clear", lambda long: long.transcript.clear()),
    ("restore again", lambda long: long.transcript.restore(1)),
    ("keep_recent", lambda long: long.transcript.keep_recent(10)),
    ("restore once more", lambda long: long.transcript.restore(1)),
    ("keep_recent of most", lambda long: long.transcript.keep_recent(long.size - 10)),
    ("edit", lambda long: long.transcript.edit(long.size // 2, message(0))),
    ("remove", lambda long: long.transcript.remove(long.size // 3)),
    ("fork", lambda long: long.store.sessions.fork(long.id)),
    ("fork in the middle", lambda long: long.store.sessions.fork(long.id, at=long.size // 4)),
    ("switch back", lambda long: long.store.sessions.switch(long.key, long.id)),
    ("reset", lambda long: long.store.sessions.reset(long.key)),
    ("the newest fifty", lambda long: long.transcript.load(newest=50)),
    ("history", lambda long: long.transcript.history(50)),
    ("count", lambda long: long.transcript.count()),
    ("revisions", lambda long: long.transcript.revisions()),
    ("find", lambda long: long.store.sessions.find()),
]


def test_commands_touch_a_bounded_number_of_rows(tmp_path: Path) -> None:
    few, many = (Long(tmp_path / f"{size}.db", size) for size in (FEW, MANY))
    costs = {name: [long.cost(command) for long in (few, many)] for name, command in COMMANDS}
    for name, (short, far) in costs.items():
        assert far["rows"] == short["rows"], name
        assert 0 < far["steps"] <= short["steps"] + SLACK, (name, short, far)
    assert max(cost["rows"] for pair in costs.values() for cost in pair) <= 12
    check_revisions(many)
    for long in (few, many):
        long.store.close()


def check_revisions(long: Long) -> None:
    """Every earlier revision can still be read, however much it shows."""
    everything = [message(number) for number in range(long.size)]
    appended, rewritten = message(0), [message(0), message(1)]
    most = [*everything[8 - long.size :], appended]
    edited = [*most[: long.size // 2 - 9], message(0), *most[long.size // 2 - 8 :]]
    removed = [*edited[: long.size // 3 - 9], *edited[long.size // 3 - 8 :]]
    shown = {
        "start": [*everything, appended],
        "undo": everything,
        "undo three turns": everything[:-8],
        "rewrite": rewritten,
        "restore": [*everything, appended],
        "clear": [],
        "restore again": [*everything, appended],
        "keep_recent": [*everything[-12:], appended],
        "restore once more": [*everything, appended],
        "keep_recent of most": most,
        "edit": edited,
        "remove": removed,
    }
    told = long.transcript.revisions()
    assert [one.made_by for one in told] == [name.split()[0] for name in shown]
    for revision, (name, expected) in zip(told, shown.items(), strict=True):
        assert long.transcript.at(revision.number) == expected, name
        assert revision.messages == len(expected)
