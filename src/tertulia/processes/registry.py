"""The registry of background programs: starts them, asks after them, ends them, tells of them.

What it knows is in the store, and what a program writes is in its folder, so a registry that is
lost loses nothing: the next one on this machine finds each program again, or says that it is gone.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import plain
from tertulia.errors import (
    ConfigError,
    Error,
    IllegalMove,
    NotFound,
    PlaceUnavailable,
    StoreUnavailable,
)
from tertulia.processes import (
    messages,
    supervisor,
    termination,
)
from tertulia.processes.environments.base import (
    Command,
    Environment,
    Launch,
    LocalMachine,
)
from tertulia.processes.output_files import (
    OutputChunk,
    OutputFiles,
)
from tertulia.processes.settings import ProcessSettings
from tertulia.records.processes import Identity, Process
from tertulia.store import Store

log = logging.getLogger("tertulia.processes")

PAGE: Final = 10_000
"""How many characters of a log are given at once."""

POLLED: Final = 4_000
SIZE: Final = (24, 80)
"""Rows and columns of a terminal that nobody gave another size."""

_START_SECONDS = 30.0
_NEVER_BEGAN = timedelta(seconds=60)
_SHORTEST_INTERVAL = timedelta(seconds=1)
_LINE = 2048  # bytes of input in one line, so that lines of several writers never mix
_TAKEN_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_REACH_SECONDS = 30.0
_REST_SECONDS = 60.0


class ProcessStatus(NamedTuple):
    """How a program stands, with some of its output, and what is to be said about that."""

    process: Process
    output: OutputChunk
    note: str = ""


class ProcessRegistry:
    """The programs of one store on this machine. Its calls block; any thread may make them.

    `folder` is where their output is kept; `work` where they run.
    """

    def __init__(
        self,
        store: Store,
        folder: str | os.PathLike[str],
        *,
        work: str | os.PathLike[str] | None = None,
        rules: ProcessSettings | None = None,
        environment: Environment | None = None,
        node: str | None = None,
    ) -> None:
        if os.name != "posix":
            raise ConfigError("Background programs need Linux, macOS or another Unix.")
        self.rules = rules or ProcessSettings()
        self.node = node or platform.node()
        self._store = store
        self._records = store.processes
        self._folder = os.path.abspath(os.fspath(folder))
        here = LocalMachine(
            os.fspath(work or os.path.join(self._folder, "work")), passed=self.rules.variables
        )
        self._environment = environment or here
        # Programs that were started before another place was chosen are still looked after.
        self._environments = {one.name: one for one in (here, self._environment)}
        # Those that somebody is waiting for, who hears of their end from the call.
        self._awaited: Counter[str] = Counter()
        self._own: set[str] = set()  # those that were started here, and not found again
        self._rests: dict[str, float] = {}  # until when one that cannot be ended is left alone
        self._lock = threading.Lock()

    # -- starting

    def spawn(
        self,
        command: Command,
        *,
        key: str,
        origin: Source | None = None,
        cwd: str | None = None,
        variables: Mapping[str, str] | None = None,
        pty: bool = False,
        size: tuple[int, int] = SIZE,
        check_interval: float | None = None,
        is_awaited: bool = False,
    ) -> Process:
        """Start a program for a conversation; its news are sent to `origin`.

        With `is_awaited` its end is not told: whoever starts it waits for it, then removes it.
        """
        process_id = f"p{secrets.token_hex(4)}"
        launch = self._environment.launch(
            command, process_id=process_id, cwd=cwd, variables=variables or {}, pty=pty
        )
        self._reach()
        session = self._store.sessions.current(key)
        now = self._store.now()
        noted = Process(
            id=process_id,
            key=key,
            session_id=None if session is None else session.id,
            origin=origin,
            node=self.node,
            folder=os.path.join(self._folder, process_id),
            command=command if isinstance(command, str) else shlex.join(command),
            cwd=launch.place,
            environment=self._environment.name,
            is_pty=pty,
            state="starting",
            began_at=now,
            check_interval=_interval(check_interval),
            told_at=now,
        )
        with self._lock:
            self._own.add(process_id)
            if is_awaited:
                self._awaited[process_id] += 1
        # Noted before it is there: whatever is lost from here on, it can be found.
        self._records.begin(noted, at_most=self.rules.at_most)
        spec = {
            "argv": launch.argv,
            "cwd": launch.cwd,
            "variables": launch.variables,
            "folder": noted.folder,
            "is_pty": pty,
            "size": _checked(size),
        }
        try:
            os.makedirs(noted.folder, mode=0o700)
            identity = _start(spec)
        except BaseException:
            self._remove(noted)
            raise
        return self._records.began(process_id, identity)

    # -- asking

    def find(self, key: str) -> list[Process]:
        """The programs of a conversation, in the order they began."""
        return [self._current(one) for one in self._records.find(key=key)]

    def get(self, process_id: str, *, key: str | None = None) -> Process:
        """A program as it stands now. With `key`, one of that conversation and no other."""
        return self._current(self._require(process_id, key))

    def poll(
        self, process_id: str, *, key: str | None = None, after: int | None = None
    ) -> ProcessStatus:
        """How a program stands, with its newest output, or that which came after a position."""
        process = self.get(process_id, key=key)
        output = _output(process)
        piece = output.newest(POLLED) if after is None else output.since(after, POLLED)
        return ProcessStatus(process, piece, self._remark(process))

    def log(
        self,
        process_id: str,
        *,
        key: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = PAGE,
    ) -> ProcessStatus:
        """A page of the newest 200,000 characters: the last, or that before or after a position."""
        process = self.get(process_id, key=key)
        limit, output = max(1, min(limit, PAGE)), _output(process)
        if after is not None:
            return ProcessStatus(process, output.since(after, limit), self._remark(process))
        return ProcessStatus(process, output.newest(limit, before=before), self._remark(process))

    def wait(
        self,
        process_id: str,
        seconds: float | None = None,
        *,
        key: str | None = None,
        stop: threading.Event | None = None,
    ) -> ProcessStatus:
        """Wait until a program has ended, no longer than the rules allow; `stop` ends the waiting.

        The note says where it was waited for less than was asked.
        """
        allowed, note = self.clamped(seconds)
        until = time.monotonic() + allowed
        stop = stop or threading.Event()
        with self.awaiting(process_id):
            while True:
                process = self._current(self._require(process_id, key), is_told=False)
                left = until - time.monotonic()
                if not process.is_alive or left <= 0 or stop.is_set():
                    break
                stop.wait(min(_LOOK_SECONDS, left))
        if process.is_alive:
            note = messages.still_running(allowed, note, was_stopped=stop.is_set())
        else:
            note = self._remark(process)
        return ProcessStatus(process, _output(process).newest(POLLED), note)

    def clamped(self, seconds: float | None) -> tuple[float, str]:
        """How long to wait instead of what was asked for, and what to say about it."""
        longest = self.rules.longest_seconds
        if seconds is None or math.isnan(seconds):
            return longest, ""
        if seconds > longest:
            return longest, messages.shortened(seconds, longest)
        return max(0.0, seconds), ""

    @contextmanager
    def awaiting(self, process_id: str) -> Iterator[None]:
        """As long as the block lasts, the end of a program is not told to its conversation."""
        with self._lock:
            self._awaited[process_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._awaited -= Counter([process_id])  # which drops it at zero

    # -- acting

    def write(self, process_id: str, text: str, *, key: str | None = None) -> Process:
        """Write to a program's standard input; ctrl-C is "\\x03" where it has a terminal."""
        process = self._running(process_id, key)
        data = text.encode("utf-8", "surrogateescape")
        parts = [data[at : at + _LINE] for at in range(0, len(data), _LINE)]
        _order(process, [{"data": base64.b64encode(part).decode()} for part in parts])
        return process

    def submit(self, process_id: str, text: str = "", *, key: str | None = None) -> Process:
        """Write a line, with the Enter key after it."""
        process = self._running(process_id, key)
        return self.write(process_id, text + ("\r" if process.is_pty else "\n"), key=key)

    def resize(
        self, process_id: str, rows: int, columns: int, *, key: str | None = None
    ) -> Process:
        """Give a program's terminal another size."""
        process = self._running(process_id, key)
        if not process.is_pty:
            raise IllegalMove(f"{process.id} has no terminal.", hint="Start it with pty.")
        _order(process, [{"size": _checked((rows, columns))}])
        return process

    def kill(self, process_id: str, *, key: str | None = None) -> Process:
        """End a program, with everything it has started."""
        process = self._require(process_id, key)
        with self.awaiting(process.id):
            found = self._end(process)
            if not found and not process.is_alive:
                raise IllegalMove(f"{process.id} has ended already.")
            ended = termination.ended(process.folder)
            self._records.end(process, "killed", exit_code=ended.get("exit_code"))
        return self._records.require(process.id)

    def remove(self, process_id: str) -> None:
        """End a program if it runs, and forget it with its output."""
        process = self._records.require(process_id)
        try:
            self._end(process)
        except Error:
            with self._lock:
                self._awaited.pop(process_id, None)  # from now on its end is news
            raise
        self._remove(process)

    # -- watching

    def recover(self) -> list[Process]:
        """After a start: find every program again; conversations are told how theirs stand."""
        found = []
        for process in self._records.of_node(self.node):
            with _told_in_log(process):
                now = self._look_at(process)
                if now is not None and now.is_alive and now.id not in self._own:
                    self._records.tell(now, messages.found_again(now), told=now.told)
                if now is not None:
                    found.append(now)
        return found

    def look(self) -> None:
        """Note who has ended, tell the conversations what is due, and drop what is long over."""
        for process in self._records.of_node(self.node):
            with _told_in_log(process):
                self._look_at(process)

    def _look_at(self, process: Process) -> Process | None:
        """One of them, as it stands now; None if it was dropped."""
        if process.state == "forgotten":
            self._drop(process)
            return None
        if process.is_alive:
            process = self._current(process)
            self._tell_output(process)
            return process
        kept = timedelta(minutes=self.rules.keep_minutes)
        is_old = process.ended_at is not None and self._store.now() - process.ended_at > kept
        if is_old and not termination.is_kept(process):
            self._remove(process)
            return None
        return process

    def _drop(self, process: Process) -> None:
        """End one whose conversation was deleted. Where it cannot be reached, it is tried again."""
        if time.monotonic() < self._rests.get(process.id, 0):
            return
        try:
            self._end(process)
        except Error:
            self._rests[process.id] = time.monotonic() + _REST_SECONDS
            raise
        self._remove(process)

    def _tell_output(self, process: Process) -> None:
        interval = process.check_interval
        if not process.is_alive or interval is None:
            return
        if self._store.now() - process.told_at < interval:
            return
        piece = self._untold(process)
        if piece.end > process.told:
            self._records.tell(process, messages.new_output(process, piece), told=piece.end)

    def _current(self, process: Process, *, is_told: bool = True) -> Process:
        """A program as it stands now; whoever finds that it has ended writes it down."""
        if not process.is_alive:
            return process
        if process.state == "starting":
            return self._begun(process)
        is_kept = termination.is_kept(process)
        # Asked in this order: a keeper notes the end before it goes.
        ended = termination.ended(process.folder)
        if not ended and is_kept:
            return process
        with self._lock:
            is_told = is_told and not self._awaited[process.id]
        state: Any = "exited" if ended else "lost"
        after = replace(process, state=state, exit_code=ended.get("exit_code"))
        news = messages.ended(after, self._untold(after), self._remark(after)) if is_told else None
        self._records.end(process, state, exit_code=after.exit_code, news=news)
        return self._records.get(process.id) or after

    def _begun(self, process: Process) -> Process:
        """One that was being started: by a gateway that was lost then, or by one that is at it."""
        identity = termination.began(process.folder)
        if identity is not None:
            return self._current(self._records.began(process.id, identity))
        if self._store.now() - process.began_at > _NEVER_BEGAN:
            news = messages.never_began(process)
            self._records.end(process, "lost", news=news)
            return self._records.get(process.id) or process
        return process

    def _untold(self, process: Process) -> OutputChunk:
        """The newest output that its conversation was not told of yet."""
        piece = _output(process).newest(messages.TOLD)
        if piece.start >= process.told:
            return piece
        return _output(process).since(process.told, messages.TOLD)

    # -- where they run

    def _reach(self) -> None:
        """Refuse to start anything where the place for it cannot be reached."""
        probe = self._environment.probe()
        if probe is not None:
            _run(probe, f"{self._environment.name} cannot be reached", hint="Nothing was started.")

    def _end(self, process: Process) -> int:
        """End a program and all below it, wherever it runs; how many there were."""
        place = self._environments.get(process.environment)
        if place is None:
            raise IllegalMove(
                f"{process.id} runs in another place, {process.environment}, which is not set up"
                " any more.",
                hint="Set it up again under [processes], or end it there by hand.",
            )
        there = _end_there(place, process)
        here = termination.end(process)
        if process.is_alive:
            # It may only have been on its way. With the connection gone, nothing more can begin.
            there += _end_there(place, process)
        return there + here

    def _remark(self, process: Process) -> str:
        place = self._environments.get(process.environment)
        if place is None or process.state != "exited":
            return ""
        return place.remark(process.exit_code)

    def _require(self, process_id: str, key: str | None) -> Process:
        process = self._records.require(process_id)
        if key is not None and process.key != key:
            raise NotFound(
                f"There is no process {process_id!r}.", hint="See: process, action list."
            )
        if process.node != self.node:
            raise IllegalMove(
                f"{process_id} runs on {process.node}, not on {self.node}.",
                hint="Ask the gateway there.",
            )
        return process

    def _running(self, process_id: str, key: str | None) -> Process:
        process = self.get(process_id, key=key)
        if process.state != "running":
            raise IllegalMove(f"{process.id} is not running: {messages.state(process)}.")
        return process

    def _remove(self, process: Process) -> None:
        with self._lock:
            self._own.discard(process.id)
            self._awaited.pop(process.id, None)
            self._rests.pop(process.id, None)
        self._records.delete(process.id)
        shutil.rmtree(process.folder, ignore_errors=True)


@contextmanager
def _told_in_log(process: Process) -> Iterator[None]:
    """What is wrong with one program keeps nobody from looking at the others."""
    try:
        yield
    except (Error, OSError) as problem:
        if isinstance(problem, StoreUnavailable):
            raise
        log.warning("process %s could not be looked at: %s", process.id, problem)


def _end_there(place: Environment, process: Process) -> int:
    """End what runs beyond this machine; how many there were."""
    launch = place.ending(process.id)
    if launch is None:
        return 0
    told = _run(
        launch,
        f"{place.name} cannot be reached, so {process.id} may still be running there",
        hint="Try again when it can be.",
    )
    return int(told or 0)


def _run(launch: Launch, failed: str, *, hint: str) -> str:
    """Run a program of this machine that reaches another place; what it prints."""
    try:
        done = subprocess.run(  # noqa: S603 — given by an environment, never by an agent
            launch.argv, cwd=launch.cwd, env=launch.variables, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_REACH_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as problem:
        raise PlaceUnavailable(f"{failed}: it does not answer.", hint=hint) from problem
    except OSError as problem:
        reason = f"{launch.argv[0]} cannot be started ({problem.strerror})"
        raise PlaceUnavailable(f"{failed}: {reason}.", hint=hint) from problem
    if done.returncode != 0:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = plain(told[-1], 300) if told else f"exit code {done.returncode}"
        raise PlaceUnavailable(f"{failed}: {reason.rstrip('.')}.", hint=hint)
    return done.stdout.decode("utf-8", "replace").strip()


def _start(spec: dict[str, Any]) -> Identity:
    """Start a keeper with its program."""
    asked = [sys.executable, "-I", "-S", supervisor.__file__]
    started = subprocess.Popen(  # noqa: S603 — our own program
        asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        told, _ = started.communicate(json.dumps(spec).encode(), timeout=_START_SECONDS)
        answer = json.loads(told)
    except (subprocess.TimeoutExpired, ValueError) as problem:
        started.kill()
        started.communicate()
        raise IllegalMove("The program could not be started.", hint="Try again.") from problem
    if "problem" in answer:
        name = answer.get("file") or spec["argv"][0]
        raise NotFound(f"{name!r} cannot be started: {answer['problem']}.")
    return Identity(**answer)


def _order(process: Process, orders: list[dict[str, Any]]) -> None:
    """Give orders to a keeper; each is taken whole or not at all."""
    try:
        pipe = os.open(os.path.join(process.folder, supervisor.INPUT), os.O_WRONLY | os.O_NONBLOCK)
    except OSError as problem:
        raise IllegalMove(f"{process.id} reads nothing any more: it has ended.") from problem
    try:
        for number, order in enumerate(orders):
            # For each anew: much may take long, as long as it goes on.
            until = time.monotonic() + _TAKEN_SECONDS
            line = json.dumps(order).encode() + b"\n"
            while not _is_taken(pipe, line):
                if time.monotonic() > until:
                    raise IllegalMove(
                        f"{process.id} does not read: {number} of {len(orders)} parts were taken.",
                        hint="See its output; it may be waiting for something else.",
                    )
                time.sleep(_LOOK_SECONDS)
    finally:
        os.close(pipe)


def _is_taken(pipe: int, line: bytes) -> bool:
    try:
        os.write(pipe, line)
    except BlockingIOError:
        return False
    return True


def _output(process: Process) -> OutputFiles:
    return OutputFiles(process.folder, is_final=not process.is_alive)


def _interval(seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 0 < seconds <= 86_400:
        raise ConfigError(
            f"check_interval is {seconds!r}.",
            hint="Give a number of seconds up to 86400, a day.",
            field="check_interval",
        )
    return max(timedelta(seconds=seconds), _SHORTEST_INTERVAL)


def _checked(size: tuple[int, int]) -> tuple[int, int]:
    if not all(0 < number < 10_000 for number in size):
        raise ConfigError(
            f"The size of the terminal is {size!r}.",
            hint="Give rows and columns above 0, such as 24 and 80.",
            field="size",
        )
    return size
