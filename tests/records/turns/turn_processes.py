"""Processes that take turns on one store, and what they do.

They are real processes, forked from a server that has imported this module once, so that a test can
afford many. Each has a pipe to its parent, over which it says what was acknowledged to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tertulia import Error, Settings, Store, Turn, Usage
from tertulia.records.session_rows import lane_of
from tertulia.records.turns.control import TurnControl
from tertulia.storage.base import Transaction
from tertulia.testing.fault_points import Moment, watch_commits
from tertulia.testing.fixtures import run_in_threads
from tests.records.store_inspection import ANA, FAST, IDLE, PATIENCE, call, open_apart

if os.name == "nt":
    pytest.skip("forks its children and stops them with signals", allow_module_level=True)

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__])


class Child:
    """A process that runs `work(pipe, *args)`; it does not outlive its `with` block."""

    def __init__(self, work: Callable[..., None], *args: object) -> None:
        self._pipe, there = _SERVER.Pipe()
        self._process = _SERVER.Process(target=work, args=(there, *args), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, value: object) -> None:
        self._pipe.send(value)

    def hear(self) -> Any:
        assert self._pipe.poll(PATIENCE), "the child says nothing"
        return self._pipe.recv()

    def rest(self) -> list[Any]:
        """Everything it says until it ends."""
        found = []
        while True:
            try:
                found.append(self.hear())
            except EOFError:
                return found

    def end(self) -> int | None:
        """How it ended: 0, or minus the signal."""
        self._process.join(PATIENCE)
        return self._process.exitcode

    def go_on(self) -> None:
        """Continue a child that has stopped itself, as soon as it has."""
        deadline = time.monotonic() + PATIENCE
        while "T" not in _state(self.pid):
            assert time.monotonic() < deadline, "the child does not stop"
            time.sleep(0.005)
        os.kill(self.pid, signal.SIGCONT)


def _state(pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


def opened(where: str, **settings: Any) -> Store:
    chosen = {"zone": "UTC", "durability": "fast", "policies": IDLE, **settings}
    return open_apart(where, Settings(**chosen))


# -- racing


def race(pipe: Connection, where: str, folder: Path, name: str, count: int) -> None:
    """So many turns, one after the other; who else is inside at the same time is an error."""
    with opened(where) as store:
        pipe.send("ready")
        pipe.recv()
        pipe.send([one_of_many(store, folder, f"{name} {number}") for number in range(count)])


def one_of_many(store: Store, folder: Path, text: str) -> tuple[int, int | None]:
    """A turn; its number, and the ticket it came in with."""
    turn = store.turn_control(ANA, text, message_id=text, wait=PATIENCE)
    used: list[int | None] = []
    enter = turn.try_enter

    def enter_with_ticket() -> bool:
        used.append(turn._ticket.id)
        return enter()

    setattr(turn, "try_enter", enter_with_ticket)  # noqa: B010 — a method is replaced
    with turn:
        with alone_in(folder / "inside"):
            assert turn.history(max_messages=5)[-1]["content"] == text
        turn.add_assistant(f"re {text}")
    assert turn._turn is None
    return int(text.rsplit(maxsplit=1)[-1]), used[-1]


@contextmanager
def alone_in(place: Path) -> Iterator[None]:
    """Fails if another process or thread is in the same place."""
    os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    yield
    place.unlink()


def take_one(pipe: Connection, where: str, text: str) -> None:
    """One turn, when told to."""
    with opened(where) as store:
        pipe.send("ready")
        pipe.recv()
        with store.turn(ANA, text, wait=PATIENCE) as turn:
            turn.add_assistant(f"re {text}")
        pipe.send("done")


def take_many(pipe: Connection, where: str, name: str) -> None:
    """Turns without a pause, until told to stop."""
    with opened(where) as store:
        pipe.send("ready")
        pipe.recv()
        number = 0
        while not pipe.poll():
            with store.turn(ANA, f"{name} {number}", wait=PATIENCE) as turn:
                turn.add_assistant("so?")
            number += 1


def answer_the_same(pipe: Connection, where: str, copies: int) -> None:
    """Messages whose ids come over the pipe, each delivered so many times at once."""

    def answer(message_id: str) -> tuple[str | None, bool]:
        with store.turn(ANA, "the same", message_id=message_id, wait=PATIENCE) as turn:
            if not turn.duplicate:
                turn.add_assistant(None, tool_calls=[call()])
                turn.add_tool_result("c1", "blue")
                turn.add_assistant(f"by {os.getpid()} and {id(turn)}")
            return turn.answer, turn.duplicate

    with opened(where) as store:
        pipe.send("ready")
        while (message_id := pipe.recv()) is not None:
            pipe.send(run_in_threads(*[lambda given=message_id: answer(given)] * copies))


# -- losing the lease


def stop_inside(pipe: Connection, where: str, lease_seconds: float) -> None:
    """Enter, stop; when continued, try every kind of write."""
    with opened(where, lease_seconds=lease_seconds) as store:
        turn = store.turn_control(ANA, "look", message_id="1")
        renewing = lock_of_renewals(turn)
        turn.__enter__()
        turn.add_assistant(None, tool_calls=[call("c1"), call("c2")])
        turn.add_tool_result("c1", "blue")
        stop(pipe, renewing)
        writes: dict[str, Callable[[], object]] = {
            "answer": lambda: turn.add_assistant("Blue.", usage=Usage(5), deliver="origin"),
            "part": lambda: turn.add_assistant("Blue,", more=True),
            "calls": lambda: turn.add_assistant(None, tool_calls=[call("c3")]),
            "result": lambda: turn.add_tool_result("c2", "cold"),
            "usage": lambda: turn.add_usage(Usage(7)),
            "delivery": lambda: turn.deliver("Blue."),
            "leaving": turn.leave,
        }
        pipe.send({name: _outcome(write) for name, write in writes.items()})


def stop(pipe: Connection, renewing: threading.Lock) -> None:
    """Say so and stop, but not while the lease is being renewed: that has the file of a SQLite
    store, and nobody else could write until this process goes on."""
    with renewing:
        pipe.send("inside")
        os.kill(os.getpid(), signal.SIGSTOP)


def lock_of_renewals(turn: TurnControl) -> threading.Lock:
    """Held while the lease of a turn that has not begun yet is renewed."""
    renewing, renew = threading.Lock(), turn.renew

    def renew_alone() -> bool:
        with renewing:
            return renew()

    setattr(turn, "renew", renew_alone)  # noqa: B010 — a method is replaced
    return renewing


def _outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except Error as problem:
        return problem.code
    return "stored"


def stop_in_a_write(pipe: Connection, where: str, lease_seconds: float, asks: bool) -> None:
    """Stop in the middle of a transaction: after a question, or when more is to be sent."""
    with opened(where, lease_seconds=lease_seconds) as store:
        key = store.sessions.key(ANA)

        def work(tx: Transaction) -> None:
            link = {"key": "elsewhere", "shared_key": key, "now": 1}
            chats = {"source": "{}", "shared_source": "{}", "shared_person": None}
            tx.run("link_insert", {**link, **chats})
            if asks:
                tx.one("session_current", {"key": key})
            pipe.send("inside")
            os.kill(os.getpid(), signal.SIGSTOP)

        store.context.db.write(work, lane=lane_of(key))


def stop_and_answer(pipe: Connection, where: str, lease_seconds: float) -> None:
    """Enter, stop; when continued, go on as if nothing had been."""
    with opened(where, lease_seconds=lease_seconds) as store:
        turn = store.turn_control(ANA, "look")
        renewing = lock_of_renewals(turn)
        with turn:
            turn.add_assistant(None, tool_calls=[call()])
            stop(pipe, renewing)
            turn.add_tool_result("c1", "blue")
            turn.add_assistant("Blue.")
        pipe.send("answered")


def enter_and_fork(pipe: Connection, where: str) -> None:
    """Fork inside a turn; the new process takes the next one when this one is over."""
    # Both open it as a program does, and so share what the process knows, if it knew anything.
    with Store(where, settings=FAST) as store:
        with store.turn(ANA, "one") as turn:
            here, there = multiprocessing.Pipe()
            child = os.fork()
            if child == 0:
                _take_the_next(there, where)
            here.recv()
            turn.add_assistant("1")
        here.send("over")
        _, status = os.waitpid(child, 0)
        pipe.send(os.waitstatus_to_exitcode(status))


def _take_the_next(pipe: Connection, where: str) -> None:
    try:
        with Store(where, settings=FAST) as store:
            pipe.send("opened")
            pipe.recv()
            with store.turn(ANA, "two", wait=PATIENCE / 4) as turn:
                turn.add_assistant("2")
        os._exit(0)
    finally:
        os._exit(1)


# -- dying

# The transactions of `die_at`, in order.
STEPS = ("enter", "calls", "first result", "second result", "delivery", "usage", "answer")


def die_at(
    pipe: Connection, where: str, folder: Path, step: str, moment: Moment, lease_seconds: float
) -> None:
    """A turn with tools that ends with `kill -9` before or after the commit of one step."""
    with opened(where, durability="safe", lease_seconds=lease_seconds) as store:
        point = STEPS.index(step) + 1, moment
        watch_commits(store, lambda number, at: _die() if (number, at) == point else None)
        with store.turn(ANA, "look", message_id="1") as turn:
            pipe.send("enter")
            for name, work in _steps(turn, folder):
                work()
                pipe.send(name)


def _steps(turn: Turn, folder: Path) -> list[tuple[str, Callable[[], object]]]:
    calls = [call("c1"), call("c2")]
    return [
        ("calls", lambda: turn.add_assistant("Well,", tool_calls=calls, usage=Usage(10))),
        ("first result", lambda: turn.add_tool_result("c1", use_tool(folder, "c1"))),
        ("second result", lambda: turn.add_tool_result("c2", use_tool(folder, "c2"))),
        ("delivery", lambda: turn.deliver("one moment", delivery="moment")),
        ("usage", lambda: turn.add_usage(Usage(1))),
        ("answer", lambda: turn.add_assistant("Blue.", usage=Usage(20), deliver="origin")),
    ]


def use_tool(folder: Path, name: str) -> str:
    """What a tool does to the world: it cannot be taken back, and here it is counted."""
    with (folder / "effects").open("a") as file:
        file.write(f"{name}\n")
    return f"{name} done"


def die_entering(pipe: Connection, where: str, moment: Moment, lease_seconds: float) -> None:
    """Take over a session, and end with `kill -9` before or after the commit of that."""
    with opened(where, durability="safe", lease_seconds=lease_seconds) as store:
        watch_commits(store, lambda number, at: _die() if (number, at) == (1, moment) else None)
        with store.turn(ANA, "and now?", message_id="2"):
            pass


def die_waiting(pipe: Connection, where: str) -> None:
    """Queue for a session, then end with `kill -9`."""
    with opened(where) as store:
        waiting = store.turn_control(ANA, "never mind")
        assert not waiting.try_enter()
        pipe.send("waiting")
        pipe.recv()
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
