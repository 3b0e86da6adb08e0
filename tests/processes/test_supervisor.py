"""The supervisor with real programs: terminals, input, memory, and its own loss."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tertulia.errors import ConfigError, IllegalMove
from tertulia.processes import supervisor, supervisor_client
from tertulia.processes.output_files import OutputFiles
from tests.processes.process_fixtures import Conversation, wait_until

pytestmark = pytest.mark.check

CATCHES = """
import time
try:
    print("on", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("caught")
"""


def test_python_prompt_in_a_terminal(conversation: Conversation) -> None:
    process = conversation.spawn([sys.executable, "-q", "-i"], pty=True)
    conversation.wait_for_output(process, ">>> ")
    conversation.registry.submit(process, "print(6 * 7)")
    conversation.wait_for_output(process, "\n42\n")
    conversation.registry.submit(process, "import os; os.isatty(0)")
    conversation.wait_for_output(process, "\nTrue\n")
    conversation.registry.submit(process, "exit(5)")
    conversation.wait_for_end(process)
    assert conversation.registry.get(process).exit_code == 5


def test_shell_prompt_in_a_terminal(conversation: Conversation) -> None:
    process = conversation.spawn("read -p 'name? ' name; echo; echo \"hello, $name\"", pty=True)
    conversation.wait_for_output(process, "name? ")
    conversation.registry.write(process, "An")
    conversation.registry.write(process, "a")
    assert conversation.registry.get(process).is_alive
    conversation.registry.submit(process)
    assert "hello, Ana" in conversation.wait_for_end(process)


def test_terminal_size_and_resize(conversation: Conversation) -> None:
    program = "stty size; trap 'stty size' WINCH; echo ready; while read line; do :; done"
    process = conversation.spawn(program, pty=True, size=(30, 100))
    conversation.wait_for_output(process, "30 100\nready")
    conversation.registry.resize(process, 50, 132)

    def has_new_size() -> bool:
        conversation.registry.submit(process)  # bash runs a trap between two commands
        return "50 132" in conversation.output(process)

    wait_until(has_new_size, "it has the new size")


def test_ctrl_c_reaches_the_foreground_program(conversation: Conversation) -> None:
    process = conversation.spawn([sys.executable, "-c", CATCHES], pty=True)
    conversation.wait_for_output(process, "on")
    conversation.registry.write(process, "\x03")
    assert "caught" in conversation.wait_for_end(process)


def test_ctrl_d_ends_the_input(conversation: Conversation) -> None:
    process = conversation.spawn("stty -echo; echo on; cat; echo over", pty=True)
    conversation.wait_for_output(process, "on")
    conversation.registry.write(process, "\x04")
    assert "over" in conversation.wait_for_end(process)


def test_large_input_arrives_whole(conversation: Conversation) -> None:
    lines = 20_000
    process = conversation.spawn(f"head -n {lines} | sha256sum")
    text = "".join(f"line {n}\n" for n in range(lines))
    conversation.registry.write(process, text)
    import hashlib

    assert hashlib.sha256(text.encode()).hexdigest() in conversation.wait_for_end(process)


def test_writing_to_a_program_that_does_not_read_fails(conversation: Conversation) -> None:
    process = conversation.spawn("sleep 600")
    with pytest.raises(IllegalMove, match="does not read"):
        conversation.registry.write(process, "x" * 2_000_000)


def test_time_limit_restarts_with_each_part_of_the_input(
    conversation: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole input takes longer than the limit of one part, by a clock that runs in sleep()."""
    os.mkfifo(tmp_path / supervisor.INPUT)
    reader = os.open(tmp_path / supervisor.INPUT, os.O_RDONLY | os.O_NONBLOCK)

    class Time:
        now = 0.0
        taken = b""

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += supervisor_client._INPUT_SECONDS / 2
            self.taken += os.read(reader, 1_000_000)

    clock = Time()
    monkeypatch.setattr(supervisor_client, "time", clock)
    process = replace(
        conversation.registry.get(conversation.spawn("sleep 600")), folder=str(tmp_path)
    )
    parts = [{"text": "x" * 2000, "number": number} for number in range(200)]
    supervisor_client.send_requests(process, parts)
    clock.sleep(0)
    os.close(reader)
    assert clock.now > 2 * supervisor_client._INPUT_SECONDS
    assert [json.loads(line) for line in clock.taken.splitlines()] == parts


def test_writing_to_an_ended_program_fails(conversation: Conversation) -> None:
    process = conversation.spawn("true")
    conversation.wait_for_end(process)
    with pytest.raises(IllegalMove, match="not running"):
        conversation.registry.write(process, "x")


def test_invalid_sizes_are_refused(conversation: Conversation) -> None:
    process = conversation.spawn("sleep 600")
    with pytest.raises(IllegalMove, match="no terminal"):
        conversation.registry.resize(process, 10, 10)
    with pytest.raises(ConfigError, match="size"):
        conversation.spawn("true", pty=True, size=(0, 80))


def test_memory_stays_small_in_a_flood_of_output(conversation: Conversation) -> None:
    import psutil

    process = conversation.registry.get(
        conversation.spawn("yes 'a line of text that goes on and on'")
    )
    supervisor_process = psutil.Process(process.keeper_pid)
    output = OutputFiles(process.folder, is_final=False)
    before = supervisor_process.memory_info().rss
    target = 60_000_000
    wait_until(lambda: output.total() > target, "it has written much")
    assert supervisor_process.memory_info().rss - before < 8_000_000


def test_lost_supervisor_is_reported_and_the_output_stays(conversation: Conversation) -> None:
    process = conversation.registry.get(conversation.spawn("echo so far; exec sleep 600"))
    conversation.wait_for_output(process.id, "so far")
    os.kill(process.keeper_pid, signal.SIGKILL)
    wait_until(lambda: supervisor.mark(process.keeper_pid) == "", "the supervisor is gone")
    conversation.registry.check_all()
    assert conversation.registry.get(process.id).state == "lost"
    [notice] = conversation.notices()
    assert "its exit code is unknown" in notice
    assert "so far" in notice
    conversation.registry.kill(process.id)
    assert supervisor.mark(process.pid) == ""


def test_supervisor_cannot_be_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program runs as the same user, and could read its memory."""
    calls: list[str] = []
    monkeypatch.setattr(supervisor, "refuse_inspection", lambda: calls.append("refused"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("no description of a program"))
    with pytest.raises(json.JSONDecodeError):
        supervisor.main()
    assert calls == ["refused"]
