"""Termination of programs with all their descendants, and of no other process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tertulia.errors import IllegalMove
from tertulia.processes import supervisor
from tests.processes.daemon import DAEMON
from tests.processes.process_fixtures import Conversation, wait_until
from tests.records.store_inspection import execute

pytestmark = pytest.mark.check


class TestKill:
    def test_kill_ends_all_child_processes(self, conversation: Conversation) -> None:
        process = conversation.spawn("sleep 600 & (sleep 600; true) & echo $!; wait")
        conversation.wait_for_output(process, "\n")
        head = psutil.Process(conversation.registry.get(process).pid)
        wait_until(lambda: len(head.children(recursive=True)) == 3, "they are all there")
        family = [head, *head.children(recursive=True)]
        ended = conversation.registry.kill(process)
        assert ended.state == "killed"
        assert not any(member.is_running() for member in family)

    def test_kill_ends_a_daemon_that_left_the_session(self, conversation: Conversation) -> None:
        process = conversation.spawn([sys.executable, "-c", DAEMON])
        conversation.wait_for_output(process, "daemon")
        wait_until(
            lambda: not conversation.registry.get(process).is_alive, "its first parent is gone"
        )
        daemon = psutil.Process(int(conversation.output(process).split()[1]))
        assert daemon.is_running()
        conversation.registry.kill(process)
        assert not daemon.is_running()

    def test_kill_ends_a_daemon_whose_supervisor_was_killed(
        self, conversation: Conversation
    ) -> None:
        process = conversation.spawn([sys.executable, "-c", DAEMON])
        conversation.wait_for_output(process, "daemon")
        wait_until(
            lambda: not conversation.registry.get(process).is_alive, "its first parent is gone"
        )
        daemon = psutil.Process(int(conversation.output(process).split()[1]))
        os.kill(conversation.registry.get(process).keeper_pid, 9)
        wait_until(
            lambda: daemon.ppid() != conversation.registry.get(process).keeper_pid,
            "it is an orphan",
        )
        conversation.registry.kill(process)
        wait_until(lambda: not daemon.is_running() or daemon.status() == "zombie", "it is ended")

    def test_kill_ends_a_program_that_ignores_sigterm(self, conversation: Conversation) -> None:
        process = conversation.spawn("trap '' TERM; echo ready; while true; do sleep 0.1; done")
        conversation.wait_for_output(process, "ready")
        ended = conversation.registry.kill(process)
        assert (ended.state, ended.exit_code) == ("killed", -9)

    def test_killing_an_ended_program_is_refused(self, conversation: Conversation) -> None:
        process = conversation.spawn("true")
        conversation.wait_for_end(process)
        wait_until(
            lambda: supervisor.mark(conversation.registry.get(process).keeper_pid) == "",
            "the supervisor is gone",
        )
        with pytest.raises(IllegalMove, match="ended already"):
            conversation.registry.kill(process)

    def test_deleting_a_conversation_ends_its_programs(self, conversation: Conversation) -> None:
        process = conversation.registry.get(conversation.spawn("sleep 600"))
        assert process.session_id is not None
        conversation.store.sessions.delete(process.session_id)
        assert conversation.store.processes.get(process.id) is None
        assert conversation.registry.find(conversation.key) == []
        conversation.registry.check_all()
        wait_until(lambda: supervisor.mark(process.pid) == "", "it is ended")
        assert conversation.store.processes.of_node(conversation.registry.node) == []
        assert not os.path.exists(process.folder)


def _started_as(pid: int) -> subprocess.Popen[bytes]:
    """Start a program under a given pid; other programs may take it first, so retry."""
    wait_until(lambda: not psutil.pid_exists(pid), "nobody has the pid")
    for _ in range(200):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
                file.write(str(pid - 1))
        except OSError:
            pytest.skip("the next pid cannot be chosen here: that needs Linux and its root")
        program = subprocess.Popen(["sleep", "600"])
        if program.pid == pid:
            return program
        program.kill()
        program.wait()
    pytest.skip("other programs were faster every time")


class TestReusedPids:
    """A pid that belongs to another program by now is never signalled."""

    @pytest.fixture
    def bystander(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(["sleep", "600"]) as running:
            yield running
            running.kill()

    def _replaced(self, conversation: Conversation, pid: int) -> str:
        """Return a program whose pid and supervisor pid now belong to another program."""
        process = conversation.registry.get(conversation.spawn("sleep 600"))
        other = psutil.Process(process.keeper_pid)
        os.kill(process.keeper_pid, 9)
        os.kill(process.pid, 9)
        wait_until(
            lambda: not other.is_running() or other.status() == "zombie", "the supervisor is gone"
        )

        execute(
            conversation.store,
            f"update processes set keeper_pid = {pid}, pid = {pid} where id = '{process.id}'",
        )
        return process.id

    def test_program_is_reported_as_lost(
        self, conversation: Conversation, bystander: subprocess.Popen[bytes]
    ) -> None:
        process = self._replaced(conversation, bystander.pid)
        conversation.registry.recover()
        assert conversation.registry.get(process).state == "lost"
        assert [text for text in conversation.notices() if "its exit code is unknown" in text]
        assert bystander.poll() is None

    def test_kill_does_not_touch_the_other_program(
        self, conversation: Conversation, bystander: subprocess.Popen[bytes]
    ) -> None:
        process = self._replaced(conversation, bystander.pid)
        assert conversation.registry.kill(process).state == "killed"
        assert bystander.poll() is None

    def test_pid_that_the_kernel_reused(self, conversation: Conversation) -> None:
        """The kernel gives the pid of a dead supervisor to the next program."""
        process = conversation.registry.get(conversation.spawn("sleep 600"))
        gone = psutil.Process(process.keeper_pid), psutil.Process(process.pid)
        for member in gone:
            member.kill()
        wait_until(
            lambda: supervisor.mark(process.keeper_pid) == "" == supervisor.mark(process.pid),
            "gone",
        )
        other = _started_as(process.keeper_pid)
        try:
            assert other.pid == process.keeper_pid
            conversation.registry.check_all()
            assert conversation.registry.get(process.id).state == "lost"
            with pytest.raises(IllegalMove, match="ended already"):
                conversation.registry.kill(process.id)
            conversation.registry.remove(process.id)
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_marks_of_two_programs_differ(self, bystander: subprocess.Popen[bytes]) -> None:
        assert supervisor.mark(bystander.pid) == supervisor.mark(bystander.pid) != ""
        assert supervisor.mark(bystander.pid) != supervisor.mark(os.getpid())
        assert supervisor.mark(2**22 + 1) == ""
