"""The registry of background programs: starts, checks and kills them, and reports about them.

Its state is in the store, and the output of each program is in a folder, so a crash loses nothing:
the next registry on this machine finds each program again, or reports that it is gone.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import (
    ConfigError,
    Error,
    IllegalMove,
    NotFound,
    PlaceUnavailable,
    StoreUnavailable,
)
from tertulia.private_files import make_private_folder
from tertulia.processes import messages, termination
from tertulia.processes.environments.base import Command, Environment, Launch, Program
from tertulia.processes.environments.local import LocalMachine
from tertulia.processes.output_files import OutputChunk, OutputFiles
from tertulia.processes.settings import ProcessSettings
from tertulia.processes.supervisor_client import send_requests, start_supervisor
from tertulia.records.processes import Process
from tertulia.store import Store

log = logging.getLogger("tertulia.processes")

PAGE_LENGTH: Final = 10_000
"""Maximum characters of a log in one call."""

POLL_LENGTH: Final = 4_000
TERMINAL_SIZE: Final = (24, 80)
"""Default rows and columns of a terminal."""

_NEVER_STARTED = timedelta(seconds=60)  # a program in `starting` for longer was never started
_MIN_INTERVAL = timedelta(seconds=1)  # between two notices of new output
_INPUT_PART = 2048  # bytes of input in one line: lines this short never mix in the pipe
_POLL_SECONDS = 0.05
_CLIENT_SECONDS = 30.0  # for ssh or docker to reach an environment
_RETRY_SECONDS = 60.0  # before the next attempt to end a program that failed to end


class ProcessStatus(NamedTuple):
    """A program with its state, a part of its output, and a note about them."""

    process: Process
    output: OutputChunk
    note: str = ""


class ProcessRegistry:
    """The programs of one store on this machine. Its methods block, and are thread-safe.

    Output is stored in `folder`; programs run in `work`.
    """

    def __init__(
        self,
        store: Store,
        folder: str | os.PathLike[str],
        *,
        work: str | os.PathLike[str] | None = None,
        settings: ProcessSettings | None = None,
        environment: Environment | None = None,
        node: str | None = None,
    ) -> None:
        if os.name != "posix":
            raise ConfigError("Background programs need Linux, macOS or another Unix.")
        self.settings = settings or ProcessSettings()
        self.node = node or platform.node()
        self._store = store
        self._records = store.processes
        self._folder = os.path.abspath(os.fspath(folder))
        local = LocalMachine(
            os.fspath(work or os.path.join(self._folder, "work")), passed=self.settings.variables
        )
        self._environment: Environment = environment or local
        # Local programs from before another environment was configured are still managed.
        self._environments: dict[str, Environment] = {
            local.name: local,
            self._environment.name: self._environment,
        }
        # Programs that a caller waits for: the caller gets their end, the conversation no notice.
        self._awaited: Counter[str] = Counter()
        self._being_killed: Counter[str] = Counter()
        self._own: set[str] = set()  # programs that this registry has started itself
        self._retry_at: dict[str, float] = {}  # next attempt to end a program that failed to end
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
        size: tuple[int, int] = TERMINAL_SIZE,
        check_interval: float | None = None,
        is_awaited: bool = False,
    ) -> Process:
        """Start a program for a conversation; notices about it are sent to `origin`.

        With `is_awaited` there is no notice of its end: the caller waits for it and removes it.
        """
        process_id = f"p{secrets.token_hex(4)}"
        program = Program(command, process_id, cwd, variables or {}, pty)
        launch = self._environment.launch(program)
        self._require_reachable()
        session = self._store.sessions.current(key)
        now = self._store.now()
        process = Process(
            id=process_id,
            key=key,
            session_id=None if session is None else session.id,
            origin=origin,
            node=self.node,
            folder=os.path.join(self._folder, process_id),
            command=command if isinstance(command, str) else shlex.join(command),
            cwd=launch.display_folder,
            environment=self._environment.name,
            is_pty=pty,
            state="starting",
            began_at=now,
            check_interval=_check_interval(check_interval),
            told_at=now,
        )
        spec = {
            "argv": launch.argv,
            "cwd": launch.cwd,
            "variables": launch.variables,
            "folder": process.folder,
            "is_pty": pty,
            "size": _validate_size(size),
        }
        self._record(process, is_awaited=is_awaited)
        try:
            make_private_folder(os.path.dirname(process.folder))
            os.mkdir(process.folder, 0o700)
            identity = start_supervisor(spec)
        except BaseException:
            self._remove(process)
            raise
        return self._records.began(process_id, identity)

    def _record(self, process: Process, *, is_awaited: bool) -> None:
        """Store a program that is about to be started: from now on it is found after a crash."""
        with self._lock:
            self._own.add(process.id)
            if is_awaited:
                self._awaited[process.id] += 1
        try:
            self._records.begin(process, at_most=self.settings.at_most)
        except BaseException:
            self._forget(process.id)
            raise

    # -- reading

    def find(self, key: str) -> list[Process]:
        """Return the programs of a conversation, in the order they began."""
        return [self._refresh(process) for process in self._records.find(key=key)]

    def get(self, process_id: str, *, key: str | None = None) -> Process:
        """Return a program with its current state; raise `NotFound` if there is none.

        With `key`, only a program of that conversation is returned.
        """
        return self._refresh(self._require(process_id, key))

    def poll(
        self, process_id: str, *, key: str | None = None, after: int | None = None
    ) -> ProcessStatus:
        """Return the state of a program with its newest output, or the output after a position."""
        process = self.get(process_id, key=key)
        output = _output_of(process)
        chunk = output.newest(POLL_LENGTH) if after is None else output.since(after, POLL_LENGTH)
        return ProcessStatus(process, chunk, self._explain_exit(process))

    def log(
        self,
        process_id: str,
        *,
        key: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = PAGE_LENGTH,
    ) -> ProcessStatus:
        """Return the last page of the output, or the page before or after a position.

        Only the newest 200,000 characters can be read.
        """
        process = self.get(process_id, key=key)
        limit, output = max(1, min(limit, PAGE_LENGTH)), _output_of(process)
        if after is not None:
            chunk = output.since(after, limit)
        else:
            chunk = output.newest(limit, before=before)
        return ProcessStatus(process, chunk, self._explain_exit(process))

    def wait(
        self,
        process_id: str,
        seconds: float | None = None,
        *,
        key: str | None = None,
        stop: threading.Event | None = None,
    ) -> ProcessStatus:
        """Wait until a program has ended, at most as long as the settings allow.

        `stop` ends the wait. The note says if the wait was shorter than requested.
        """
        allowed, note = self.clamp_wait(seconds)
        until = time.monotonic() + allowed
        stop = stop or threading.Event()
        with self.without_end_notice(process_id):
            while True:
                process = self._refresh(self._require(process_id, key), has_notice=False)
                left = until - time.monotonic()
                if not process.is_alive or left <= 0 or stop.is_set():
                    break
                stop.wait(min(_POLL_SECONDS, left))
        if process.is_alive:
            note = messages.still_running_note(allowed, note, was_stopped=stop.is_set())
        else:
            note = self._explain_exit(process)
        return ProcessStatus(process, _output_of(process).newest(POLL_LENGTH), note)

    def clamp_wait(self, seconds: float | None) -> tuple[float, str]:
        """Return the seconds to wait instead of the requested ones, and a note if they differ."""
        longest = self.settings.longest_seconds
        if seconds is None or math.isnan(seconds):
            return longest, ""
        if seconds > longest:
            return longest, messages.shortened_wait_note(seconds, longest)
        return max(0.0, seconds), ""

    def without_end_notice(self, process_id: str) -> AbstractContextManager[None]:
        """Suppress the notice of the end of a program while the block runs."""
        return self._counted(self._awaited, process_id)

    @contextmanager
    def _counted(self, blocks: Counter[str], process_id: str) -> Iterator[None]:
        """Count the blocks that run for a program."""
        with self._lock:
            blocks[process_id] += 1
        try:
            yield
        finally:
            with self._lock:
                blocks -= Counter([process_id])  # in place; removes the entry at zero

    # -- writing and killing

    def write(self, process_id: str, text: str, *, key: str | None = None) -> Process:
        """Write to a program's standard input, and return it; raise `IllegalMove` if it has ended.

        Ctrl-C is "\\x03" if it has a terminal.
        """
        process = self._require_running(process_id, key)
        data = text.encode("utf-8", "surrogateescape")
        parts = [data[start : start + _INPUT_PART] for start in range(0, len(data), _INPUT_PART)]
        send_requests(process, [{"data": base64.b64encode(part).decode()} for part in parts])
        return process

    def submit(self, process_id: str, text: str = "", *, key: str | None = None) -> Process:
        """Write a line, followed by Enter; return the program, and raise as `write` does."""
        process = self._require_running(process_id, key)
        return self.write(process_id, text + ("\r" if process.is_pty else "\n"), key=key)

    def resize(
        self, process_id: str, rows: int, columns: int, *, key: str | None = None
    ) -> Process:
        """Change the size of a program's terminal, and return the program.

        Raise `IllegalMove` if it has no terminal or has ended.
        """
        process = self._require_running(process_id, key)
        if not process.is_pty:
            raise IllegalMove(f"{process.id} has no terminal.", hint="Start it with pty.")
        send_requests(process, [{"size": _validate_size((rows, columns))}])
        return process

    def kill(self, process_id: str, *, key: str | None = None) -> Process:
        """Kill a program with all its descendants, and return it.

        Raise `IllegalMove` if it has ended already, `PlaceUnavailable` if its environment cannot
        be reached.
        """
        process = self._require(process_id, key)
        with self.without_end_notice(process.id), self._recording_kill(process.id):
            count = self._terminate(process)
            if not count and not process.is_alive:
                raise IllegalMove(f"{process.id} has ended already.")
            end = termination.read_end(process.folder)
            self._records.end(process, "killed", exit_code=end.get("exit_code"))
        return self._records.require(process.id)

    def _recording_kill(self, process_id: str) -> AbstractContextManager[None]:
        """Keep a concurrent check from recording the end as `exited` before `kill` records it."""
        return self._counted(self._being_killed, process_id)

    def remove(self, process_id: str) -> None:
        """Kill a program if it runs, and delete it with its output."""
        process = self._records.require(process_id)
        try:
            self._terminate(process)
        except Error:
            with self._lock:
                self._awaited.pop(process_id, None)  # from now on its end has a notice
            raise
        self._remove(process)

    # -- checking

    def recover(self) -> list[Process]:
        """Find every program again after a start, and send a notice about each running one."""
        recovered = []
        for process in self._records.of_node(self.node):
            with _log_problem(process):
                current = self._check(process)
                if current is not None and current.is_alive and current.id not in self._own:
                    notice = messages.recovered_notice(current)
                    self._records.report(current, notice, told=current.told)
                if current is not None:
                    recovered.append(current)
        return recovered

    def check_all(self) -> None:
        """Record ended programs, send the notices that are due, and delete old programs."""
        for process in self._records.of_node(self.node):
            with _log_problem(process):
                self._check(process)

    def _check(self, process: Process) -> Process | None:
        """Check one program and return it with its current state; None if it was deleted."""
        if process.state == "forgotten":
            self._end_forgotten(process)
            return None
        if process.is_alive:
            process = self._refresh(process)
            self._send_output_notice(process)
            return process
        retention = timedelta(minutes=self.settings.keep_minutes)
        is_old = process.ended_at is not None and self._store.now() - process.ended_at > retention
        if is_old and not termination.has_supervisor(process):
            self._remove(process)
            return None
        return process

    def _end_forgotten(self, process: Process) -> None:
        """End a program whose conversation was deleted; if that fails, retry after a minute."""
        if time.monotonic() < self._retry_at.get(process.id, 0):
            return
        try:
            self._terminate(process)
        except Error:
            self._retry_at[process.id] = time.monotonic() + _RETRY_SECONDS
            raise
        self._remove(process)

    def _send_output_notice(self, process: Process) -> None:
        """Send a notice of new output if the check interval of a program has passed."""
        interval = process.check_interval
        if not process.is_alive or interval is None:
            return
        # A notice of a time to come was sent before the clock was set back: it delays none.
        if timedelta(0) <= self._store.now() - process.told_at < interval:
            return
        chunk = self._unreported_output(process)
        if chunk.end > process.told:
            self._records.report(process, messages.output_notice(process, chunk), told=chunk.end)

    def _refresh(self, process: Process, *, has_notice: bool = True) -> Process:
        """Return a program with its current state; record its end if it is not recorded yet."""
        if not process.is_alive:
            return process
        if process.state == "starting":
            return self._refresh_starting(process)
        has_supervisor = termination.has_supervisor(process)
        # In this order: a supervisor records the end before it exits.
        end = termination.read_end(process.folder)
        if not end and has_supervisor:
            return process
        with self._lock:
            if self._being_killed[process.id]:
                return process
            has_notice = has_notice and not self._awaited[process.id]
        state: Any = "exited" if end else "lost"
        ended = replace(process, state=state, exit_code=end.get("exit_code"))
        notice = self._end_notice(ended) if has_notice else None
        self._records.end(process, state, exit_code=ended.exit_code, news=notice)
        return self._records.get(process.id) or ended

    def _end_notice(self, process: Process) -> str:
        chunk = self._unreported_output(process)
        return messages.end_notice(process, chunk, self._explain_exit(process))

    def _refresh_starting(self, process: Process) -> Process:
        """Return the state of a program in `starting`.

        A gateway is starting it right now, or crashed while doing so.
        """
        identity = termination.read_identity(process.folder)
        if identity is not None:
            return self._refresh(self._records.began(process.id, identity))
        if self._store.now() - process.began_at > _NEVER_STARTED:
            notice = messages.never_started_notice(process)
            self._records.end(process, "lost", news=notice)
            return self._records.get(process.id) or process
        return process

    def _unreported_output(self, process: Process) -> OutputChunk:
        """Return the newest output that no notice has contained yet."""
        chunk = _output_of(process).newest(messages.NOTICE_LENGTH)
        if chunk.start >= process.told:
            return chunk
        return _output_of(process).since(process.told, messages.NOTICE_LENGTH)

    # -- environments

    def _require_reachable(self) -> None:
        """Raise `PlaceUnavailable` if the environment for new programs cannot be reached."""
        probe = self._environment.probe_launch()
        if probe is not None:
            _run_client(
                probe, f"{self._environment.name} cannot be reached", hint="Nothing was started."
            )

    def _terminate(self, process: Process) -> int:
        """Terminate a program and its descendants in its environment; return their number."""
        environment = self._environments.get(process.environment)
        if environment is None:
            raise IllegalMove(
                f"{process.id} runs in the environment {process.environment}, which is not"
                " configured any more.",
                hint="Configure it again under [processes], or end the program there by hand.",
            )
        remote_count = _kill_remote(environment, process)
        local_count = termination.terminate(process)
        if process.is_alive:
            # The first kill may have come before the program started there. The client is gone
            # now, so after this second kill nothing can start any more.
            remote_count += _kill_remote(environment, process)
        return remote_count + local_count

    def _explain_exit(self, process: Process) -> str:
        environment = self._environments.get(process.environment)
        if environment is None or process.state != "exited":
            return ""
        return environment.explain_exit(process.exit_code)

    def _require(self, process_id: str, key: str | None) -> Process:
        process = self._records.require(process_id)
        if key is not None and process.key != key:
            raise NotFound(
                f"There is no process {process_id!r}.", hint="See: process, action list."
            )
        if process.node != self.node:
            raise IllegalMove(
                f"{process_id} runs on {process.node}, not on {self.node}.",
                hint="Use the gateway on that machine.",
            )
        return process

    def _require_running(self, process_id: str, key: str | None) -> Process:
        process = self.get(process_id, key=key)
        if process.state != "running":
            raise IllegalMove(f"{process.id} is not running: {messages.format_state(process)}.")
        return process

    def _remove(self, process: Process) -> None:
        """Delete a program that does not run, with its output."""
        self._forget(process.id)
        self._records.delete(process.id)
        shutil.rmtree(process.folder, ignore_errors=True)

    def _forget(self, process_id: str) -> None:
        """Forget what this registry remembers of a program beside the store."""
        with self._lock:
            self._own.discard(process_id)
            self._awaited.pop(process_id, None)
            self._retry_at.pop(process_id, None)


@contextmanager
def _log_problem(process: Process) -> Iterator[None]:
    """Log an error about one program, so that the others are checked nevertheless."""
    try:
        yield
    except (Error, OSError) as problem:
        if isinstance(problem, StoreUnavailable):
            raise
        log.warning("check of process %s failed, continuing with the next: %s", process.id, problem)


def _kill_remote(environment: Environment, process: Process) -> int:
    """Kill the processes of a program on another machine; return their number."""
    launch = environment.kill_launch(process.id)
    if launch is None:
        return 0
    count = _run_client(
        launch,
        f"{environment.name} cannot be reached, so {process.id} may still be running there",
        hint="Try again when it is reachable.",
    )
    return int(count or 0)


def _run_client(launch: Launch, failure: str, *, hint: str) -> str:
    """Run a client on this machine and return its output.

    Raise `PlaceUnavailable` with the text `failure` if it fails.
    """
    try:
        result = subprocess.run(  # noqa: S603 — built by an environment, never by an agent
            launch.argv, cwd=launch.cwd, env=launch.variables, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_CLIENT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as problem:
        raise PlaceUnavailable(f"{failure}: it does not answer.", hint=hint) from problem
    except OSError as problem:
        reason = f"{launch.argv[0]} cannot be started ({problem.strerror})"
        raise PlaceUnavailable(f"{failure}: {reason}.", hint=hint) from problem
    if result.returncode != 0:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = clean_for_prompt(lines[-1], 300) if lines else f"exit code {result.returncode}"
        raise PlaceUnavailable(f"{failure}: {reason.rstrip('.')}.", hint=hint)
    return result.stdout.decode("utf-8", "replace").strip()


def _output_of(process: Process) -> OutputFiles:
    return OutputFiles(process.folder, is_final=not process.is_alive)


def _check_interval(seconds: float | None) -> timedelta | None:
    """Return the interval between notices of new output, or None for none.

    Raise `ConfigError` if it is not a sensible number of seconds.
    """
    if seconds is None:
        return None
    if not 0 < seconds <= 86_400:
        raise ConfigError(
            f"Invalid check_interval: {seconds!r}.",
            hint="Use a number of seconds above 0 and up to 86400, a day.",
            field="check_interval",
        )
    return max(timedelta(seconds=seconds), _MIN_INTERVAL)


def _validate_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of a terminal; raise `ConfigError` if they are not valid."""
    if not all(0 < number < 10_000 for number in size):
        raise ConfigError(
            f"Invalid terminal size: {size!r}.",
            hint="Use rows and columns above 0, such as 24 and 80.",
            field="size",
        )
    return size
