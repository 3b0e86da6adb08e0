"""The supervisor of one background program: a small separate program that outlives the gateway.

It owns the program's pipes or its terminal, writes the output to files of bounded size, passes
input to the program, and records how it ended. So a gateway can be killed at any moment: the
program continues, and the next gateway finds everything in the folder (decision 0010).

    output-<offset>   the output of the program, in segments; the two newest are kept
    input             a named pipe for JSON Lines: {"data": base64} or {"size": [rows, columns]}
    began.json        the identity of the supervisor and of the program
    ended.json        the exit code of the program, and the time

This file is run by its path (`python -I -S`), without this package and without installed ones, so
that it is small and starts fast. Therefore it imports only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Any

SEGMENT = 2 * 1024 * 1024  # bytes; two segments always contain 200,000 characters
OUTPUT = "output-"
INPUT = "input"
BEGAN = "began.json"
ENDED = "ended.json"
VARIABLE = "TERTULIA_PROCESS"  # environment variable with the process id, for all descendants

_CHUNK = 65_536
_MAX_DRAIN = 1024 * 1024  # bytes read at most after the program has ended; no pipe holds more
_MAX_PENDING = 65_536  # bytes of input buffered for a program that does not read
_POLL_SECONDS = 1.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_DUMPABLE = 4  # PR_SET_DUMPABLE


def mark(pid: int) -> str:
    """Return the start mark of a process: when it began, as text; "" if there is no such process.

    The mark distinguishes a process from a later one with the same pid. On Linux the time is
    counted from the boot of the machine, so that clock changes do not affect it.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return "" if os.path.isdir("/proc/self") else _mark_by_ps(pid)
    is_gone = fields[0] in (b"Z", b"X")
    return "" if is_gone else f"{boot}:{int(fields[19])}"


def refuse_inspection() -> None:
    """Let no other process of this user read the memory and the environment of this one.

    The programs of an agent run as the same user: otherwise they could read the keys of the
    gateway in /proc. It ends with the next program that this process executes. Only on Linux.
    """
    if sys.platform == "linux":
        _prctl(_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _mark_by_ps(pid: int) -> str:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    state, _, began = result.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


class OutputWriter:
    """Writes a program's output to segment files; the oldest of more than two is deleted."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._size = 0
        self._total = 0
        self._file = -1
        self._begin_segment()

    def append(self, data: bytes) -> None:
        """Append output. A full disk loses output, not the program."""
        if self._size + len(data) > SEGMENT:
            self._begin_segment()
        with contextlib.suppress(OSError):
            size = os.write(self._file, data)
            self._size += size
            self._total += size

    def _begin_segment(self) -> None:
        name = f"{OUTPUT}{self._total:018}"
        with contextlib.suppress(OSError):
            file = os.open(
                os.path.join(self._folder, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
            )
            if self._file >= 0:
                os.close(self._file)
            self._file, self._size = file, 0
            self._names.append(name)
        while len(self._names) > 2:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, self._names.pop(0)))


class Supervisor:
    """Runs one program until it and all its descendants have ended."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._folder: str = spec["folder"]
        self._spec = spec
        self._output = OutputWriter(self._folder)
        self._input = self._open_input()
        self._pending = b""  # bytes for the program's standard input
        self._partial_line = b""  # a line of the input pipe that is not complete yet
        self._selector = selectors.DefaultSelector()
        # Signals write to this pipe, which wakes the selector.
        self._wakeup_read, self._wakeup_write = os.pipe()
        for file in (self._wakeup_read, self._wakeup_write):
            os.set_blocking(file, False)
        self._has_ended = False
        self._program_output = -1
        self._program_input = -1
        self.pid = self._start()

    def run(self) -> None:
        """Copy output and input until the program and all its descendants have ended."""
        self._selector.register(self._program_output, selectors.EVENT_READ, self._copy_output)
        self._selector.register(self._input, selectors.EVENT_READ, self._read_requests)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ, self._clear_wakeup)
        while self._reap():
            for key, _ in self._selector.select(0.05 if self._pending else _POLL_SECONDS):
                key.data()
            self._write_input()
        self._drain_output()

    # -- starting

    def _start(self) -> int:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        # Caught, not ignored: the program would inherit an ignored signal.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        _adopt_orphans()
        start = self._start_on_terminal if self._spec["is_pty"] else self._start_on_pipes
        program = start()
        program.returncode = 0  # `_reap` waits for it and for all its descendants
        return program.pid

    def _start_on_pipes(self) -> subprocess.Popen[bytes]:
        program = self._popen(stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert program.stdin is not None
        assert program.stdout is not None
        self._program_output = os.dup(program.stdout.fileno())
        self._program_input = os.dup(program.stdin.fileno())
        program.stdout.close()
        program.stdin.close()
        for file in (self._program_output, self._program_input):
            os.set_blocking(file, False)
        return program

    def _start_on_terminal(self) -> subprocess.Popen[bytes]:
        master, slave = pty.openpty()
        _resize(master, *self._spec["size"])

        def set_controlling_terminal() -> None:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        program = self._popen(stdin=slave, stdout=slave, preexec_fn=set_controlling_terminal)
        os.close(slave)
        os.set_blocking(master, False)
        self._program_output = self._program_input = master
        return program

    def _popen(self, **options: Any) -> subprocess.Popen[bytes]:
        spec = self._spec
        return subprocess.Popen(  # noqa: S603 — its purpose is to run the program it is given
            spec["argv"],
            cwd=spec["cwd"],
            env=spec["variables"],
            stderr=subprocess.STDOUT,
            **options,
        )

    def _open_input(self) -> int:
        path = os.path.join(self._folder, INPUT)
        os.mkfifo(path, 0o600)
        # Opened for writing too: else the pipe would be at its end when a gateway closes it.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    # -- copying

    def _copy_output(self) -> bool:
        """Copy one chunk of output; return False if there is none now."""
        try:
            data = os.read(self._program_output, _CHUNK)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EIO:  # EIO: no process has the terminal open any more
                raise
            data = b""
        if not data:
            self._unwatch(self._program_output)
            return False
        self._output.append(data)
        return True

    def _drain_output(self) -> None:
        size = 0
        while size < _MAX_DRAIN and self._copy_output():
            size += _CHUNK

    def _unwatch(self, file: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(file)

    def _read_requests(self) -> None:
        """Read and apply the requests that the gateway wrote to the input pipe."""
        if len(self._pending) > _MAX_PENDING:
            time.sleep(0.01)  # the pipe fills up, so the writer notices that nobody reads
            return
        with contextlib.suppress(BlockingIOError):
            data = self._partial_line + os.read(self._input, 4096)
            *lines, self._partial_line = data.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):  # not a request of a gateway
                    self._apply_request(json.loads(line))

    def _apply_request(self, request: dict[str, Any]) -> None:
        if "size" in request and self._spec["is_pty"]:
            _resize(self._program_output, *request["size"])
        if "data" in request and self._program_input >= 0:
            self._pending += base64.b64decode(request["data"])

    def _write_input(self) -> None:
        """Write pending input to the program, as much as it takes now."""
        if not self._pending or self._program_input < 0:
            return
        try:
            self._pending = self._pending[os.write(self._program_input, self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._pending = b""  # the program has closed its input

    def _clear_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 4096)

    # -- ending

    def _reap(self) -> bool:
        """Wait for all ended children without blocking; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._record_end(self.pid, 0)
                return False
            if pid == 0:
                return True
            self._record_end(pid, status)

    def _record_end(self, pid: int, status: int) -> None:
        """Write `ended.json` if `pid` is the program itself."""
        if pid != self.pid or self._has_ended:
            return
        self._has_ended = True
        self._drain_output()
        code = os.waitstatus_to_exitcode(status)
        _write_json(self._folder, ENDED, {"exit_code": code, "at": time.time()})


def _resize(terminal: int, rows: int, columns: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that none escapes by forking."""
    _prctl(_SUBREAPER, 1)


def _write_json(folder: str, name: str, value: dict[str, Any]) -> None:
    """Write a file atomically: a concurrent reader sees all of it or nothing."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(f"{path}.new", path)


def _reply_and_detach(reply: dict[str, Any]) -> None:
    """Write a reply to the process that started this one, and close the streams shared with it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(reply).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(null, file)
    os.close(null)


def main() -> None:
    """Start the program described on standard input, reply in one line, and supervise it."""
    refuse_inspection()
    spec = json.load(sys.stdin)
    if os.fork():
        os._exit(0)  # the gateway need not wait for the supervisor
    os.setsid()
    try:
        supervisor = Supervisor(spec)
    except OSError as problem:
        _reply_and_detach({"problem": problem.strerror or str(problem), "file": problem.filename})
        os._exit(1)
    own_pid = os.getpid()
    identity = {
        "keeper_pid": own_pid,
        "keeper_mark": mark(own_pid),
        "pid": supervisor.pid,
        "mark": mark(supervisor.pid),
    }
    _write_json(spec["folder"], BEGAN, identity)
    _reply_and_detach(identity)
    supervisor.run()
    os._exit(0)


if __name__ == "__main__":
    main()
