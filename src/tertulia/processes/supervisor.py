"""The keeper of one program: a small program of its own, which outlives the gateway.

It holds the program's pipes or its terminal, writes its output into files of bounded size, gives it
what is written to it, and notes how it ended. So a gateway can be killed at any moment: the program
feels nothing, and the next gateway finds everything in the folder.

    output-<offset>   what the program wrote, in pieces; the two newest are kept
    input             a pipe for lines of JSON: {"data": base64} or {"size": [rows, columns]}
    began.json        who the keeper and the program are
    ended.json        how the program ended, and when

It is started as a file of its own, without this package and without other people's, so that it is
small and starts fast; hence it imports nothing but the standard library.
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

SEGMENT = 2 * 1024 * 1024  # bytes; with two of them there are always 200,000 characters
OUTPUT = "output-"
INPUT = "input"
BEGAN = "began.json"
ENDED = "ended.json"
VARIABLE = "TERTULIA_PROCESS"  # whoever has it in its environment belongs to that process

_CHUNK = 65_536
_AT_END = 1024 * 1024  # read at most after the end; no pipe holds more
_WAITING = 65_536  # bytes for a program that does not read, before no more are taken
_LOOK_SECONDS = 1.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def mark(pid: int) -> str:
    """When a process began, so that another one under its pid is told apart; "" if there is none.

    On Linux that is counted from the start of the machine, so that no change of the clock moves it.
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


def _mark_by_ps(pid: int) -> str:
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    state, _, began = told.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


class Output:
    """The files of a program's output; the oldest is dropped where there are more than two."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._size = 0
        self._total = 0
        self._file = -1
        self._begin()

    def append(self, data: bytes) -> None:
        if self._size + len(data) > SEGMENT:
            self._begin()
        # A full disk loses output, not the program.
        with contextlib.suppress(OSError):
            written = os.write(self._file, data)
            self._size += written
            self._total += written

    def _begin(self) -> None:
        name = f"{OUTPUT}{self._total:018}"
        with contextlib.suppress(OSError):
            made = os.open(
                os.path.join(self._folder, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
            )
            if self._file >= 0:
                os.close(self._file)
            self._file, self._size = made, 0
            self._names.append(name)
        while len(self._names) > 2:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, self._names.pop(0)))


class Supervisor:
    """Holds one program until it and everything it started have ended."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._folder: str = spec["folder"]
        self._spec = spec
        self._output = Output(self._folder)
        self._input = self._open_input()
        self._pending = b""  # for the program's standard input
        self._half = b""  # the beginning of a line that is still coming
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = os.pipe()
        for end in (self._bell, self._ring):
            os.set_blocking(end, False)
        self._has_ended = False
        self._reads = -1
        self._writes = -1
        self.pid = self._start()

    def run(self) -> None:
        """Copy until the program has ended, and everything it started."""
        self._selector.register(self._reads, selectors.EVENT_READ, self._copy)
        self._selector.register(self._input, selectors.EVENT_READ, self._hear)
        self._selector.register(self._bell, selectors.EVENT_READ, self._hush)
        while self._reap():
            for key, _ in self._selector.select(0.05 if self._pending else _LOOK_SECONDS):
                key.data()
            self._give()
        self._drain()

    # -- starting

    def _start(self) -> int:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        # Caught, not ignored: what is ignored would be ignored by the program, too.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        _adopt_orphans()
        begin = self._on_terminal if self._spec["is_pty"] else self._on_pipes
        started = begin()
        started.returncode = 0  # it is waited for here, with everything it leaves behind
        return started.pid

    def _on_pipes(self) -> subprocess.Popen[bytes]:
        started = self._popen(stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert started.stdin is not None
        assert started.stdout is not None
        self._reads, self._writes = os.dup(started.stdout.fileno()), os.dup(started.stdin.fileno())
        started.stdout.close()
        started.stdin.close()
        for end in (self._reads, self._writes):
            os.set_blocking(end, False)
        return started

    def _on_terminal(self) -> subprocess.Popen[bytes]:
        ours, theirs = pty.openpty()
        _resize(ours, *self._spec["size"])

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        started = self._popen(stdin=theirs, stdout=theirs, preexec_fn=take_terminal)
        os.close(theirs)
        os.set_blocking(ours, False)
        self._reads = self._writes = ours
        return started

    def _popen(self, **more: Any) -> subprocess.Popen[bytes]:
        spec = self._spec
        return subprocess.Popen(  # noqa: S603 — running what it is told to is what it is for
            spec["argv"], cwd=spec["cwd"], env=spec["variables"], stderr=subprocess.STDOUT, **more
        )

    def _open_input(self) -> int:
        path = os.path.join(self._folder, INPUT)
        os.mkfifo(path, 0o600)
        # Opened for writing too, so that it does not end when a gateway does.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    # -- copying

    def _copy(self) -> bool:
        """Copy some output; False if there is none now."""
        try:
            data = os.read(self._reads, _CHUNK)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EIO:  # so a terminal says that nobody is there any more
                raise
            data = b""
        if not data:
            self._unwatch(self._reads)
            return False
        self._output.append(data)
        return True

    def _drain(self) -> None:
        read = 0
        while read < _AT_END and self._copy():
            read += _CHUNK

    def _unwatch(self, file: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(file)

    def _hear(self) -> None:
        if len(self._pending) > _WAITING:
            time.sleep(0.01)  # whoever writes is told that the program does not read
            return
        with contextlib.suppress(BlockingIOError):
            *lines, self._half = (self._half + os.read(self._input, 4096)).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):  # no order of ours
                    self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if "size" in order and self._spec["is_pty"]:
            _resize(self._reads, *order["size"])
        if "data" in order and self._writes >= 0:
            self._pending += base64.b64decode(order["data"])

    def _give(self) -> None:
        if not self._pending or self._writes < 0:
            return
        try:
            self._pending = self._pending[os.write(self._writes, self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._pending = b""  # nobody reads it any more

    def _hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)

    # -- ending

    def _reap(self) -> bool:
        """Take note of who has ended; whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._note_end(self.pid, 0)
                return False
            if pid == 0:
                return True
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        if pid != self.pid or self._has_ended:
            return
        self._has_ended = True
        self._drain()
        code = os.waitstatus_to_exitcode(status)
        _write(self._folder, ENDED, {"exit_code": code, "at": time.time()})


def _resize(terminal: int, rows: int, columns: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _adopt_orphans() -> None:
    """Become the parent of whoever loses theirs below, so that nobody slips away by forking."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _write(folder: str, name: str, told: dict[str, Any]) -> None:
    """All of it or nothing, whoever reads at the same time."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(f"{path}.new", path)


def _told(answer: dict[str, Any]) -> None:
    """Answer whoever started this, and let go of them."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(answer).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(nowhere, file)
    os.close(nowhere)


def main() -> None:
    """Start the program that standard input describes, say so in one line, and keep it."""
    spec = json.load(sys.stdin)
    if os.fork():
        os._exit(0)  # whoever started this need not wait for it
    os.setsid()
    try:
        keeper = Supervisor(spec)
    except OSError as problem:
        _told({"problem": problem.strerror or str(problem), "file": problem.filename})
        os._exit(1)
    me = os.getpid()
    began = {
        "keeper_pid": me,
        "keeper_mark": mark(me),
        "pid": keeper.pid,
        "mark": mark(keeper.pid),
    }
    _write(spec["folder"], BEGAN, began)
    _told(began)
    keeper.run()
    os._exit(0)


if __name__ == "__main__":
    main()
