"""Programs of child processes: `python -m tests.storage.child_programs FUNCTION ARGUMENTS`.

They report in lines of JSON, one per write to the pipe, so that a line is complete or missing,
whenever the process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from unittest import mock

import apsw

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Usage
from tertulia.core.clock import Clock
from tertulia.errors import StaleWrite
from tertulia.storage.sqlite import group_commit
from tertulia.testing import FakeClock
from tests.storage.store_internals import sqlite_of

NEVER = Policies(default=ResetPolicy(mode="none"))
# The time limit for something that must happen, also on a busy machine.
TIMEOUT = 60.0


def report(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def wait_for_parent() -> None:
    sys.stdin.buffer.readline()


def opened(path: str, *, clock: Clock | None = None, **settings: Any) -> tertulia.Store:
    return tertulia.open(path, settings=Settings(zone="UTC", **settings), clock=clock)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in threads that start together, and wait for them."""
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def source(number: int) -> Source:
    return Source("telegram", f"chat{number}", user_id=f"user{number}")


# -- many at once


def open_first(paths: list[str], threads: int) -> None:
    """Open files that do not exist yet, from many threads; report the problems."""
    report("ready")
    for path in paths:
        wait_for_parent()
        report(_open_first(path, threads))


def _open_first(path: str, threads: int) -> dict[str, list[str]]:
    problems: list[str] = []
    secrets: set[str] = set()

    def work(number: int) -> None:
        try:
            with opened(path) as store:
                store.sessions.open(source(os.getpid() * 1000 + number))
                secrets.add(store.redactor.key("agent:main:telegram:dm:1"))
        except Exception as problem:  # noqa: BLE001 — the test looks at it
            problems.append(repr(problem))

    in_threads(threads, work)
    return {"problems": problems, "secrets": sorted(secrets)}


def converse(path: str, name: str, threads: int, sources: int, seconds: float) -> None:
    """Open the same sources as the other processes, and write to their sessions."""
    messages: list[tuple[int, str, str]] = []
    problems: list[str] = []
    with opened(path, policies=NEVER, durability="fast") as store:
        report("ready")
        wait_for_parent()
        until = time.monotonic() + seconds

        def work(number: int) -> None:
            chosen = random.Random(f"{name} {number}")
            count = 0
            try:
                while (
                    not count or time.monotonic() < until
                ):  # at least once, however late it starts
                    number_of_source = chosen.randrange(sources)
                    count += 1
                    text = f"{name} {number} {count}"
                    session = store.sessions.open(source(number_of_source))
                    store.transcript(session.id).extend(
                        [{"role": "user", "content": text}], Usage(input=1, cost_usd=0.001)
                    )
                    store.usage.add(session.id, Usage(output=1, cost_usd=0.002))
                    messages.append((number_of_source, session.id, text))
            except Exception as problem:  # noqa: BLE001 — the test looks at it
                problems.append(repr(problem))

        in_threads(threads, work)
    report({"messages": messages, "problems": problems})


def come_back(path: str, at: str, sources: int) -> None:
    """Open all sources at a time when all sessions have expired; report the notices."""
    later = datetime.fromisoformat(at)

    class LaterClock:
        def now(self) -> datetime:
            return later

    with opened(path, clock=LaterClock(), durability="fast") as store:
        report("ready")
        wait_for_parent()
        order = list(range(sources))
        random.shuffle(order)
        for number in order:
            session = store.sessions.open(source(number))
            report(
                [number, session.id, None if session.notice is None else session.notice.session_id]
            )


def try_to_lock(path: str) -> None:
    """Report whether a process has the lock that each connection to a SQLite file holds."""
    import fcntl

    shared_first, shared_size = 0x40000002, 510
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, shared_size, shared_first)
        except OSError:
            report("locked")
        else:
            report("free")


# -- killed at any moment


def write_until_killed(path: str, name: str, threads: int, durability: str) -> None:
    """Write without end; report each call that returned."""
    report("started")
    store = opened(path, policies=NEVER, durability=durability)
    report("opened")

    def work(number: int) -> None:
        who = f"{name}-{number}"
        session = store.sessions.open(source(number))
        transcript = store.transcript(session.id)
        aside = store.sessions.open(Source("aside", str(number)))
        for count in range(10**9):
            messages = [
                {"role": role, "content": f"{who} {count} {role}"} for role in ("user", "assistant")
            ]
            if count % 17 == 5:
                messages[1]["padding"] = f"{who} {count} " * 5000
            transcript.extend(messages, Usage(input=1, cost_usd=0.001))
            report([who, session.id, count])
            if count % 7 == 3:
                store.transcript(aside.id).append({"role": "user", "content": "x" * 40_000})
                store.transcript(aside.id).undo()
                store.transcript(aside.id).redo()
            if count % 11 == 4:
                store.sessions.rename(session.id, f"{who} {count}")
                fork = store.sessions.fork(aside.id)
                store.sessions.delete(aside.id)
                aside = fork
            if count % 40 == 20:
                store.settle()

    in_threads(threads, work)


# -- faults


def lock(path: str, statements: list[str]) -> None:
    """Lock a database until the parent resumes this process."""
    connection = apsw.Connection(path)
    for statement in statements:
        connection.execute(statement).fetchall()
    report("locked")
    wait_for_parent()
    connection.close()


def open_as_another_user(path: str) -> None:
    """Try to open a store without the rights of its owner; report the error."""
    import tertulia.testing.fake_clock  # a later import could not be read any more

    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    clock = tertulia.testing.fake_clock.FakeClock()
    try:
        opened(path, clock=clock).close()
    except tertulia.Error as problem:
        report([type(problem).__name__, str(problem), problem.hint])
    else:
        report(["it was opened", "", ""])


def fill_up(path: str, limit: int) -> None:
    """Write until a limit on the size of files is reached; report what was acknowledged."""
    import resource

    store = opened(path, busy_seconds=1)
    session = store.sessions.open(source(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    acknowledged = 0
    try:
        for number in range(100_000):
            content = f"{number} " + "x" * 500
            store.transcript(session.id).append({"role": "user", "content": content})
            acknowledged += 1
    except tertulia.Error as problem:
        report([type(problem).__name__, problem.hint, session.id, acknowledged])


def fork_and_go_on(path: str) -> None:
    """Fork with a store open; report the errors of the child, then go on."""
    store = opened(path)
    session = store.sessions.open(source(1))
    transcript = store.transcript(session.id)
    transcript.append({"role": "user", "content": "before"})
    pid = os.fork()
    if pid == 0:
        hints: list[Any] = []
        for call in (transcript.load, lambda: store.sessions.open(source(1)), store.check):
            try:
                call()
            except tertulia.StoreError as problem:
                hints.append(problem.hint)
        store.close()
        with opened(path) as own:
            own.transcript(session.id).append({"role": "user", "content": "in the child"})
        report(hints)
        sys.exit(0)  # a normal exit, with all that Python does at exit
    code = os.waitpid(pid, 0)[1]
    transcript.append({"role": "user", "content": "after"})
    report({"code": code, "texts": [message["content"] for message in transcript.load()]})
    store.close()


def exit_without_closing(path: str, messages: int) -> None:
    """Write, and exit without closing while the search index is built."""
    store = opened(path, durability="fast")
    session = store.sessions.open(source(1))
    for number in range(messages):
        content = " ".join(f"word{number * n}" for n in range(20))
        store.transcript(session.id).append({"role": "user", "content": content})
    time.sleep(random.uniform(0.2, 0.4))
    report(session.id)


# -- interrupts


def interrupt_follower(path: str) -> None:
    """Ctrl-C while the main thread waits for the leader, another thread."""
    store = opened(path)
    database = sqlite_of(store)
    is_inside, may_go = threading.Event(), threading.Event()

    def lead(tx: Any) -> None:
        is_inside.set()
        may_go.wait()
        tx.run("installation_set", {"name": "leader", "value": 1})

    leader = threading.Thread(target=database.write, args=(lead,))
    leader.start()
    is_inside.wait()

    raised = threading.Event()

    def interrupt_once(number: int, frame: FrameType | None) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not database._group.waiting:
            time.sleep(0.001)
        # A signal right before Python blocks does not wake it; the next one does.
        while not raised.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    signal.signal(signal.SIGINT, interrupt_once)
    threading.Thread(target=interrupt).start()
    interrupted = False
    try:
        database.write(lambda tx: tx.run("installation_set", {"name": "waiter", "value": 1}))
    except KeyboardInterrupt:
        interrupted = True
    may_go.set()
    leader.join()
    report({"interrupted": interrupted, **_stored(store, "leader", "waiter")})
    database.write(lambda tx: tx.run("installation_set", {"name": "next", "value": 1}))
    report(_stored(store, "next"))
    store.close()


def interrupt_leader(path: str) -> None:
    """Ctrl-C while the main thread leads and runs the work of a follower."""
    store = opened(path)
    database = sqlite_of(store)
    runs: list[str] = []
    followed = threading.Event()
    outcome: list[Any] = []

    def follow(tx: Any) -> str:
        runs.append(threading.current_thread().name)
        tx.run("installation_set", {"name": "follower", "value": 1})
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        return "done"

    def follower() -> None:
        try:
            outcome.append(database.write(follow))
        except BaseException as problem:  # noqa: BLE001 — the test looks at it
            outcome.append(repr(problem))
        followed.set()

    def lead(tx: Any) -> None:
        tx.run("installation_set", {"name": "leader", "value": 1})
        threading.Thread(target=follower, name="follower").start()
        while not database._group.waiting:
            time.sleep(0.001)

    # A process that was started in the background may ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = False
    try:
        database.write(lead)
    except KeyboardInterrupt:
        interrupted = True
    followed.wait(TIMEOUT)
    stored = _stored(store, "leader", "follower")
    report({"interrupted": interrupted, "outcome": outcome, "runs": runs, **stored})
    store.close()


def interrupt_both(path: str) -> None:
    """The main thread has left the queue when the leader that runs its work is interrupted too."""
    store = opened(path)
    database = sqlite_of(store)
    is_inside, may_go, has_left = (threading.Event() for _ in range(3))

    def interrupt_once(number: int, frame: FrameType | None) -> None:
        if not has_left.is_set():
            has_left.set()
            raise KeyboardInterrupt

    def lead(tx: Any) -> None:
        is_inside.set()
        may_go.wait()

    def follow(tx: Any) -> NoReturn:
        while not has_left.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        time.sleep(0.1)  # so that the main thread has also left the call
        raise KeyboardInterrupt

    def leader() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            database.write(lead)

    def go_on() -> None:
        while not database._group.waiting:
            time.sleep(0.001)
        may_go.set()

    signal.signal(signal.SIGINT, interrupt_once)
    thread = threading.Thread(target=leader)
    thread.start()
    is_inside.wait()
    threading.Thread(target=go_on).start()
    with contextlib.suppress(KeyboardInterrupt):
        database.write(follow)
    thread.join()
    note = {"name": "next", "value": 1}
    # If the lead was passed to a thread that has left, this write waits for ever.
    last = threading.Thread(
        target=lambda: database.write(lambda tx: tx.run("installation_set", note)), daemon=True
    )
    last.start()
    last.join(TIMEOUT)
    report(_stored(store, "next"))


def interrupt_after_failed_commit(path: str) -> None:
    """Ctrl-C right when the main thread learns that its commit with a follower failed."""
    store = opened(path)
    database = sqlite_of(store)
    refusals = [True]  # True turns a commit into a rollback
    outcome: list[Any] = []

    def follower() -> None:
        note = {"name": "follower", "value": 1}
        outcome.append(database.write(lambda tx: tx.changed("installation_set", note)))

    thread = threading.Thread(target=follower)

    def lead(tx: Any) -> None:
        tx.run("installation_set", {"name": "leader", "value": 1})
        thread.start()
        while not database._group.waiting:
            time.sleep(0.001)

    def interrupted(*arguments: Any) -> NoReturn:
        raise KeyboardInterrupt

    database._writer.set_commit_hook(lambda: refusals.pop() if refusals else False)
    # Translating the error is the first step after a failed commit.
    with (
        mock.patch.object(group_commit, "translate_errors", interrupted),
        contextlib.suppress(KeyboardInterrupt),
    ):
        database.write(lead)
    thread.join(TIMEOUT)
    report({"outcome": outcome, **_stored(store, "leader", "follower")})
    store.close()


def write_under_interrupts(path: str, seconds: float, others: int, enough: int) -> None:
    """Ctrl-C again and again, at any moment, while others write; report what was acknowledged.

    It runs for `seconds`, and until there were more than `enough` interrupts.
    """
    store = opened(path, durability="fast")
    session = store.sessions.open(source(1))
    transcript = store.transcript(session.id)
    acknowledged: list[str] = []
    problems: list[str] = []
    is_over = threading.Event()

    def write(who: str, count: int) -> None:
        text = f"{who} {count}"
        transcript.append({"role": "user", "content": text})
        acknowledged.append(text)

    def other(number: int) -> None:
        count = 0
        try:
            while not is_over.is_set():
                write(f"other{number}", count)
                count += 1
        except BaseException as problem:  # noqa: BLE001 — the test looks at it
            problems.append(repr(problem))

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    threads = [threading.Thread(target=other, args=(number,)) for number in range(others)]
    for thread in threads:
        thread.start()
    write("main", -1)  # starts the indexer thread: starting a thread cannot be interrupted safely
    signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    longest = 2e-3 if others else 2e-4
    began = time.monotonic()
    count = 0
    while time.monotonic() < began + seconds or interrupts <= enough:
        if time.monotonic() > began + seconds + TIMEOUT:
            break
        count += 1
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest))
            try:
                write("main", count)
                transcript.load(newest=1)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
        except tertulia.Error as problem:
            problems.append(repr(problem))
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    write("main", 0)
    is_over.set()
    for thread in threads:
        thread.join()
    store.close()
    summary = {"session": session.id, "interrupts": interrupts, "problems": problems}
    Path(f"{path}.acknowledged").write_text(json.dumps(acknowledged))
    report(summary)


def close_in_signal_handler(path: str) -> None:
    """A signal handler that closes the store in the middle of a call."""
    store = opened(path)
    errors: list[str] = []

    def close(number: int, frame: FrameType | None) -> None:
        store.close()

    signal.signal(signal.SIGALRM, close)

    def write(tx: Any) -> None:
        tx.run("installation_set", {"name": "inside", "value": 1})
        signal.raise_signal(signal.SIGALRM)

    def read(tx: Any) -> None:
        signal.raise_signal(signal.SIGALRM)

    calls: list[Callable[[], object]] = [
        lambda: store.context.db.write(write),
        lambda: store.context.db.read(read),
    ]
    for call in calls:
        try:
            call()
        except tertulia.Error as problem:
            errors.append(type(problem).__name__)
    report({"errors": errors, **_stored(store, "inside")})
    store.close()


def _stored(store: tertulia.Store, *names: str) -> dict[str, bool]:
    def is_stored(name: str) -> bool:
        row = store.context.db.read(lambda tx: tx.one("installation_get", {"name": name}))
        return row is not None

    return {name: is_stored(name) for name in names}


def schedule_node(path: str, minutes: int, lease: float, is_killed: bool) -> None:
    """Run due occurrences, some at a time; report which were claimed and which were run.

    A node that is to be killed stops after it has run the first of a batch.
    """
    clock = FakeClock()
    clock.forward(minutes=minutes)
    store = opened(path, clock=clock)
    report("ready")
    wait_for_parent()
    while True:
        runs = store.schedules.claim(20, lease_seconds=lease)
        for run in runs:
            report(["claimed", run.schedule.id])
        for run in runs:
            with contextlib.suppress(StaleWrite):
                store.schedules.renew(run, lease_seconds=lease)
                store.schedules.deliver(run, f"result of {run.schedule.id}")
                report(["ran", run.schedule.id])
                if is_killed:
                    wait_for_parent()
        if not runs:
            store.schedules.wait(0.2)


if __name__ == "__main__":
    # The parent may be gone.
    with contextlib.suppress(BrokenPipeError):
        globals()[sys.argv[1]](*json.loads(sys.argv[2]))
