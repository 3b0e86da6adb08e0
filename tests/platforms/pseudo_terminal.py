"""A person at a real pseudo-terminal: keys go in, and the screen is read as they would see it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyte

PROMPT = "› "
PATIENCE = 60
# The last one is set by `make coverage`, so that programs are measured too.
_INHERITED = ("PATH", "LANG", "COVERAGE_PROCESS_CONFIG")
_COLUMNS, _ROWS = 120, 200
# On Linux nobody waits for the lease of a process that was killed.
_LEASE_SECONDS = 3600 if sys.platform == "linux" else 2
_SOURCES = str(Path(__file__).resolve().parents[2] / "src")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        *,
        columns: int = _COLUMNS,
        rows: int = _ROWS,
    ) -> None:
        self._screen = _Screen(self._write, columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.written = ""  # everything the program wrote, with its control sequences
        self._master, slave = pty.openpty()
        self._is_open = True
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._row_count = rows
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=dict(environ),
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def rows(self) -> list[list[pyte.screens.Char]]:
        """Return the characters of the screen with their looks; `blink` stands for dim."""
        buffer = self._screen.buffer
        last = len(self.text.split("\n"))
        return [[buffer[y][x] for x in range(self._screen.columns)] for y in range(last)]

    def press(self, keys: str) -> None:
        self._write(keys)

    def ask(self, text: str, expect: str) -> str:
        """Type a line and send it; what was said to it, as soon as `expect` is there."""
        before = self.text.count(PROMPT + text)
        self.press(f"{text}\r")
        self.until(lambda: self.text.count(PROMPT + text) > before and expect in self._after(text),
                   f"{expect!r} after {text!r}")  # fmt: skip
        return self._after(text)

    def resize(self, columns: int) -> None:
        """Change the width, as a person does who drags the edge of the window."""
        size = struct.pack("HHHH", self._row_count, columns, 0, 0)
        self._screen.resize(self._row_count, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self.process.send_signal(signal.SIGWINCH)

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.text, repr(text))

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            is_open = self.read(0.1)
            assert is_open or is_so(), f"the program ended before {what}:\n{self.text}"
            assert time.monotonic() < deadline, f"there was no {what}:\n{self.text}"

    def ends(self) -> int:
        """The number the program ends with."""
        deadline = time.monotonic() + PATIENCE
        while self.read(0.1):
            assert time.monotonic() < deadline, f"it did not end:\n{self.text}"
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        """Close the window: nothing can be read from the terminal or written to it any more."""
        if self._is_open:
            self._is_open = False
            os.close(self._master)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _after(self, text: str) -> str:
        return self.text.rpartition(PROMPT + text)[2]

    def read(self, seconds: float) -> bool:
        """Take in what was written; whether more may come."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            found = os.read(self._master, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self._stream.feed(found)
        self.written += found.decode("utf-8", "replace")
        return bool(found)

    def _write(self, text: str) -> None:
        os.write(self._master, text.encode())


class _Screen(pyte.Screen):
    """A screen that answers when the program asks where the cursor is."""

    def __init__(self, answer: Callable[[str], None], columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._answer = answer

    def select_graphic_rendition(self, *attrs: int, **options: Any) -> None:
        """Take dim text for blinking, which nothing here does: pyte does not know dim."""
        super().select_graphic_rendition(*attrs, **options)
        if 2 in attrs and 38 not in attrs and 48 not in attrs:
            self.cursor.attrs = self.cursor.attrs._replace(blink=True)
        elif 22 in attrs:
            self.cursor.attrs = self.cursor.attrs._replace(blink=False)

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def report_device_status(self, mode: int, **_: Any) -> None:
        super().report_device_status(mode)


@contextmanager
def tertulia(
    folder: Path, *args: str, columns: int = _COLUMNS, rows: int = _ROWS, **environ: str
) -> Iterator[Terminal]:
    """`tertulia …` in a terminal, with a home of its own."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    keep = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    own = {"HOME": str(home), "TERM": "xterm-256color", "TZ": "UTC", "PYTHONPATH": _SOURCES}
    own["PYTHONUTF8"] = "1"
    command = [sys.executable, "-m", "tertulia", *args]
    variables = {**keep, **own, **environ}
    with Terminal(command, folder, variables, columns=columns, rows=rows) as terminal:
        yield terminal


def configure_slow_agent(folder: Path, go: Path) -> None:
    """Let `tertulia` in this folder talk with the program that waits for a file."""
    command = json.dumps([sys.executable, str(Path(__file__).with_name("slow_agent.py")), str(go)])
    settings = folder / "home/.config/tertulia"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(
        f'[agent]\nkind = "command"\ncommand = {command}\n'
        f"[store]\nlease_seconds = {_LEASE_SECONDS}\n"
        '[log]\nformat = "json"\nfile = "log.jsonl"\n'
    )
