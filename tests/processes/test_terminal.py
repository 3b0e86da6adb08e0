"""Programs with a terminal of their own: real ones, driven as a person would."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tertulia.errors import ConfigError, IllegalMove
from tertulia.processes import (
    registry,
    supervisor,
)
from tests.processes.scene import Scene, until

CATCHES = """
import time
try:
    print("on", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("caught")
"""


def test_python_is_driven_line_by_line(scene: Scene) -> None:
    process = scene.spawn([sys.executable, "-q", "-i"], pty=True)
    scene.shows(process, ">>> ")
    scene.registry.submit(process, "print(6 * 7)")
    scene.shows(process, "\n42\n")
    scene.registry.submit(process, "import os; os.isatty(0)")
    scene.shows(process, "\nTrue\n")
    scene.registry.submit(process, "exit(5)")
    scene.finished(process)
    assert scene.registry.get(process).exit_code == 5


def test_bash_asks_and_is_answered(scene: Scene) -> None:
    process = scene.spawn("read -p 'name? ' name; echo; echo \"hello, $name\"", pty=True)
    scene.shows(process, "name? ")
    scene.registry.write(process, "An")
    scene.registry.write(process, "a")
    assert scene.registry.get(process).is_alive
    scene.registry.submit(process)
    assert "hello, Ana" in scene.finished(process)


def test_the_size_of_the_window(scene: Scene) -> None:
    program = "stty size; trap 'stty size' WINCH; echo ready; while read line; do :; done"
    process = scene.spawn(program, pty=True, size=(30, 100))
    scene.shows(process, "30 100\nready")
    scene.registry.resize(process, 50, 132)

    def has_it() -> bool:
        scene.registry.submit(process)  # bash runs a trap between two commands
        return "50 132" in scene.text(process)

    until(has_it, "it has the new size")


def test_ctrl_c_reaches_what_runs_in_the_foreground(scene: Scene) -> None:
    process = scene.spawn([sys.executable, "-c", CATCHES], pty=True)
    scene.shows(process, "on")
    scene.registry.write(process, "\x03")
    assert "caught" in scene.finished(process)


def test_ctrl_d_ends_the_input(scene: Scene) -> None:
    process = scene.spawn("stty -echo; echo on; cat; echo over", pty=True)
    scene.shows(process, "on")
    scene.registry.write(process, "\x04")
    assert "over" in scene.finished(process)


def test_much_input_arrives_whole(scene: Scene) -> None:
    lines = 20_000
    process = scene.spawn(f"head -n {lines} | sha256sum")
    text = "".join(f"line {n}\n" for n in range(lines))
    scene.registry.write(process, text)
    import hashlib

    assert hashlib.sha256(text.encode()).hexdigest() in scene.finished(process)


def test_who_does_not_read_is_told_apart(scene: Scene) -> None:
    process = scene.spawn("sleep 600")
    with pytest.raises(IllegalMove, match="does not read"):
        scene.registry.write(process, "x" * 2_000_000)


def test_who_reads_slowly_is_given_time(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it takes longer than is waited for one part; by a clock that runs when it is slept."""
    os.mkfifo(tmp_path / supervisor.INPUT)
    reader = os.open(tmp_path / supervisor.INPUT, os.O_RDONLY | os.O_NONBLOCK)

    class Time:
        now = 0.0
        taken = b""

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += registry._TAKEN_SECONDS / 2
            self.taken += os.read(reader, 1_000_000)

    clock = Time()
    monkeypatch.setattr(registry, "time", clock)
    process = replace(scene.registry.get(scene.spawn("sleep 600")), folder=str(tmp_path))
    parts = [{"text": "x" * 2000, "number": number} for number in range(200)]
    registry._order(process, parts)
    clock.sleep(0)
    os.close(reader)
    assert clock.now > 2 * registry._TAKEN_SECONDS
    assert [json.loads(line) for line in clock.taken.splitlines()] == parts


def test_what_has_ended_takes_no_input(scene: Scene) -> None:
    process = scene.spawn("true")
    scene.finished(process)
    with pytest.raises(IllegalMove, match="not running"):
        scene.registry.write(process, "x")


def test_a_size_needs_a_terminal_and_makes_sense(scene: Scene) -> None:
    process = scene.spawn("sleep 600")
    with pytest.raises(IllegalMove, match="no terminal"):
        scene.registry.resize(process, 10, 10)
    with pytest.raises(ConfigError, match="size"):
        scene.spawn("true", pty=True, size=(0, 80))
