"""Real programs: started, asked after, written to, ended whole, and bounded in number."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from tertulia import Settings
from tertulia.errors import AccessDenied, ConfigError, IllegalMove, NotFound
from tertulia.processes import supervisor
from tertulia.processes.registry import ProcessRegistry
from tertulia.processes.settings import ProcessSettings
from tests.processes.scene import ANA, BEN, PATIENCE, Scene, until
from tests.processes.scene import scene as opened
from tests.records.store_inspection import execute

# Leaves its group and its session, and loses its parent, twice over.
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.setsid() if os.getpid() != os.getsid(0) else None
print("daemon", os.getpid(), flush=True)
os.close(1); os.close(2)
time.sleep(600)
"""


def test_runs_a_line_of_the_shell_to_its_end(scene: Scene) -> None:
    seen = scene.registry.wait(scene.spawn("echo one; echo two >&2; exit 3"), PATIENCE)
    assert (seen.process.state, seen.process.exit_code) == ("exited", 3)
    assert sorted(seen.output.text.split()) == ["one", "two"]
    assert seen.output.is_whole


def test_runs_a_program_with_its_arguments_as_they_are(scene: Scene) -> None:
    process = scene.spawn([sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b", "$HOME"])
    assert scene.finished(process) == "['a b', '$HOME']\n"


def test_a_program_that_does_not_exist_leaves_nothing(scene: Scene) -> None:
    with pytest.raises(NotFound, match="no-such-program"):
        scene.spawn(["no-such-program"])
    assert scene.registry.find(scene.key) == []
    assert [name for name in os.listdir(scene.registry._folder) if name != "work"] == []


@pytest.mark.parametrize("command", ["", "  ", [], "a\0b"])
def test_no_command_is_refused(scene: Scene, command: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="no command"):
        scene.spawn(command)


class TestWhatItIsGiven:
    def test_only_named_variables(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hush")
        shown = scene.finished(scene.spawn("env", variables={"COLOUR": "blue"}))
        assert "COLOUR=blue" in shown
        assert "PATH=" in shown
        assert "hush" not in shown

    def test_a_folder_of_its_own(self, scene: Scene) -> None:
        work = os.path.realpath(os.path.join(scene.registry._folder, "work"))
        assert scene.finished(scene.spawn("pwd; mkdir -p deep")) == f"{work}\n"
        assert scene.finished(scene.spawn("pwd", cwd="deep")) == f"{work}/deep\n"

    @pytest.mark.parametrize("cwd", ["..", "/", "deep/../..", "link"])
    def test_no_folder_outside(self, scene: Scene, cwd: str) -> None:
        scene.finished(scene.spawn("mkdir -p deep; ln -sfn / link"))
        with pytest.raises(AccessDenied, match="outside"):
            scene.spawn("pwd", cwd=cwd)

    def test_a_folder_that_is_missing_is_named(self, scene: Scene) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            scene.spawn("pwd", cwd="nowhere")


class TestLimits:
    def test_no_more_than_allowed_run_at_once(self, tmp_path: Path) -> None:
        rules = ProcessSettings(at_most=2)
        with opened(str(tmp_path / "talk.db"), tmp_path, rules=rules) as scene:
            first, _ = scene.spawn("sleep 600"), scene.spawn("sleep 600")
            with pytest.raises(IllegalMove, match="no more than 2"):
                scene.spawn("sleep 600")
            scene.registry.kill(first)
            scene.spawn("true")

    def test_the_default_is_64(self) -> None:
        assert ProcessSettings().at_most == 64

    def test_what_has_ended_is_kept_for_half_an_hour(self, scene: Scene) -> None:
        process = scene.spawn("echo done")
        scene.finished(process)
        scene.clock.forward(minutes=30)
        scene.registry.look()
        assert scene.text(process) == "done\n"
        ended = scene.registry.get(process)
        folder = ended.folder
        scene.clock.forward(seconds=1)
        until(lambda: supervisor.mark(ended.keeper_pid) == "", "its keeper is gone")
        scene.registry.look()
        assert scene.store.processes.get(process) is None
        assert not os.path.exists(folder)

    @pytest.mark.parametrize("field", ["at_most", "keep_minutes", "longest_seconds"])
    def test_limits_are_above_zero(self, field: str) -> None:
        with pytest.raises(ConfigError, match=field):
            ProcessSettings(**{field: 0})  # type: ignore[arg-type]

    @pytest.mark.parametrize("interval", [0, -1, 86_401, float("nan")])
    def test_an_interval_makes_sense(self, scene: Scene, interval: float) -> None:
        with pytest.raises(ConfigError, match="check_interval"):
            scene.spawn("true", check_interval=interval)


class TestWaiting:
    def test_a_longer_wait_than_allowed_is_cut_and_said(self, tmp_path: Path) -> None:
        rules = ProcessSettings(longest_seconds=0.2)
        with opened(str(tmp_path / "talk.db"), tmp_path, rules=rules) as scene:
            seen = scene.registry.wait(scene.spawn("sleep 600"), 3600)
            assert seen.process.is_alive
            assert "3600 seconds were asked for" in seen.note
            assert "0.2 is the longest" in seen.note
            assert "still running" in seen.note

    def test_it_can_be_interrupted(self, scene: Scene) -> None:
        stop = threading.Event()
        stop.set()
        seen = scene.registry.wait(scene.spawn("sleep 600"), stop=stop)
        assert seen.process.is_alive
        assert "interrupted" in seen.note

    def test_whoever_waits_is_not_told_again(self, scene: Scene) -> None:
        scene.finished(scene.spawn("true"))
        scene.registry.look()
        assert scene.told() == []


class TestEnding:
    def test_with_everything_it_has_started(self, scene: Scene) -> None:
        process = scene.spawn("sleep 600 & (sleep 600; true) & echo $!; wait")
        scene.shows(process, "\n")
        head = psutil.Process(scene.registry.get(process).pid)
        until(lambda: len(head.children(recursive=True)) == 3, "they are all there")
        family = [head, *head.children(recursive=True)]
        ended = scene.registry.kill(process)
        assert ended.state == "killed"
        assert not any(one.is_running() for one in family)

    def test_who_forks_twice_and_leaves_the_session(self, scene: Scene) -> None:
        process = scene.spawn([sys.executable, "-c", DAEMON])
        scene.shows(process, "daemon")
        until(lambda: not scene.registry.get(process).is_alive, "its first parent is gone")
        daemon = psutil.Process(int(scene.text(process).split()[1]))
        assert daemon.is_running()
        scene.registry.kill(process)
        assert not daemon.is_running()

    def test_who_slipped_away_when_the_keeper_was_killed(self, scene: Scene) -> None:
        process = scene.spawn([sys.executable, "-c", DAEMON])
        scene.shows(process, "daemon")
        until(lambda: not scene.registry.get(process).is_alive, "its first parent is gone")
        daemon = psutil.Process(int(scene.text(process).split()[1]))
        os.kill(scene.registry.get(process).keeper_pid, 9)
        until(lambda: daemon.ppid() != scene.registry.get(process).keeper_pid, "it is an orphan")
        scene.registry.kill(process)
        until(lambda: not daemon.is_running() or daemon.status() == "zombie", "it is ended")

    def test_who_will_not_go(self, scene: Scene) -> None:
        process = scene.spawn("trap '' TERM; echo ready; while true; do sleep 0.1; done")
        scene.shows(process, "ready")
        ended = scene.registry.kill(process)
        assert (ended.state, ended.exit_code) == ("killed", -9)

    def test_what_has_ended_cannot_be_ended(self, scene: Scene) -> None:
        process = scene.spawn("true")
        scene.finished(process)
        until(
            lambda: supervisor.mark(scene.registry.get(process).keeper_pid) == "",
            "the keeper is gone",
        )
        with pytest.raises(IllegalMove, match="ended already"):
            scene.registry.kill(process)

    def test_a_deleted_conversation_takes_its_programs_along(self, scene: Scene) -> None:
        process = scene.registry.get(scene.spawn("sleep 600"))
        assert process.session_id is not None
        scene.store.sessions.delete(process.session_id)
        assert scene.store.processes.get(process.id) is None
        assert scene.registry.find(scene.key) == []
        scene.registry.look()
        until(lambda: supervisor.mark(process.pid) == "", "it is ended")
        assert scene.store.processes.of_node(scene.registry.node) == []
        assert not os.path.exists(process.folder)


def _started_as(pid: int) -> subprocess.Popen[bytes]:
    """A program under a pid that was another's; others may be faster, so it is tried again."""
    until(lambda: not psutil.pid_exists(pid), "nobody has the pid")
    for _ in range(200):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
                file.write(str(pid - 1))
        except OSError:
            pytest.skip("the next pid cannot be chosen here: that needs Linux and its root")
        found = subprocess.Popen(["sleep", "600"])
        if found.pid == pid:
            return found
        found.kill()
        found.wait()
    pytest.skip("other programs were faster every time")


class TestReusedPids:
    """A pid that another program has by now is never touched."""

    @pytest.fixture
    def bystander(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(["sleep", "600"]) as running:
            yield running
            running.kill()

    def _replaced(self, scene: Scene, pid: int) -> str:
        """A program whose pids, and those of its keeper, are another's now."""
        process = scene.registry.get(scene.spawn("sleep 600"))
        other = psutil.Process(process.keeper_pid)
        os.kill(process.keeper_pid, 9)
        os.kill(process.pid, 9)
        until(lambda: not other.is_running() or other.status() == "zombie", "the keeper is gone")

        execute(
            scene.store,
            f"update processes set keeper_pid = {pid}, pid = {pid} where id = '{process.id}'",
        )
        return process.id

    def test_it_is_lost_and_said_so(self, scene: Scene, bystander: subprocess.Popen[bytes]) -> None:
        process = self._replaced(scene, bystander.pid)
        scene.registry.recover()
        assert scene.registry.get(process).state == "lost"
        assert [text for text in scene.told() if "nobody can say how it ended" in text]
        assert bystander.poll() is None

    def test_ending_it_ends_nobody_else(
        self, scene: Scene, bystander: subprocess.Popen[bytes]
    ) -> None:
        process = self._replaced(scene, bystander.pid)
        assert scene.registry.kill(process).state == "killed"
        assert bystander.poll() is None

    def test_a_pid_that_the_system_did_give_again(self, scene: Scene) -> None:
        """The kernel is asked to give the pid of a dead keeper to the next program."""
        process = scene.registry.get(scene.spawn("sleep 600"))
        gone = psutil.Process(process.keeper_pid), psutil.Process(process.pid)
        for one in gone:
            one.kill()
        until(
            lambda: supervisor.mark(process.keeper_pid) == "" == supervisor.mark(process.pid),
            "gone",
        )
        other = _started_as(process.keeper_pid)
        try:
            assert other.pid == process.keeper_pid
            scene.registry.look()
            assert scene.registry.get(process.id).state == "lost"
            with pytest.raises(IllegalMove, match="ended already"):
                scene.registry.kill(process.id)
            scene.registry.remove(process.id)
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_the_mark_tells_two_programs_apart(self, bystander: subprocess.Popen[bytes]) -> None:
        assert supervisor.mark(bystander.pid) == supervisor.mark(bystander.pid) != ""
        assert supervisor.mark(bystander.pid) != supervisor.mark(os.getpid())
        assert supervisor.mark(2**22 + 1) == ""


class TestTelling:
    def test_the_end_is_told_once_with_the_output(self, scene: Scene) -> None:
        process = scene.spawn("echo all is well")
        until(
            lambda: os.path.exists(
                os.path.join(scene.store.processes.require(process).folder, supervisor.ENDED)
            ),
            "it has ended",
        )
        for _ in range(3):
            scene.registry.look()
        [told] = scene.told()
        assert "has ended, exit code 0" in told
        assert "all is well" in told
        session = scene.store.sessions.current(scene.key)
        assert session is not None
        [entry] = scene.store.transcript(session.id).entries()
        assert (entry.role, entry.kind, entry.body["content"]) == ("assistant", "delivery", told)

    def test_new_output_is_told_at_the_interval(self, scene: Scene) -> None:
        process = scene.spawn("echo one; read; echo two; read", check_interval=10)
        scene.shows(process, "one")
        scene.registry.look()
        assert scene.told() == []
        scene.clock.forward(seconds=10)
        scene.registry.look()
        scene.registry.look()
        assert [text for text in scene.told() if "one" in text] == scene.told() != []
        scene.clock.forward(seconds=10)
        scene.registry.look()
        assert len(scene.told()) == 1
        scene.registry.submit(process)
        scene.shows(process, "two")
        scene.registry.look()
        assert len(scene.told()) == 2
        assert sum("```\ntwo" in text for text in scene.told()) == 1
        assert sum("```\none" in text for text in scene.told()) == 1

    def test_what_was_started_here_is_not_found_again(self, scene: Scene) -> None:
        scene.spawn("sleep 600")
        scene.registry.recover()
        assert scene.told() == []
        ProcessRegistry(scene.store, scene.registry._folder).recover()
        assert len(scene.told()) == 1

    def test_two_gateways_on_one_machine_tell_it_once(self, scene: Scene) -> None:
        process = scene.spawn("echo once", check_interval=1)
        scene.shows(process, "once")
        other = ProcessRegistry(scene.store, scene.registry._folder)
        scene.clock.forward(seconds=10)
        for registry in (scene.registry, other, scene.registry, other):
            registry.look()
        until(lambda: not scene.registry.get(process).is_alive, "it has ended")
        other.look()
        assert sum("```\nonce" in text for text in scene.told()) == 1
        assert sum("has ended" in text for text in scene.told()) == 1


class TestWhose:
    def test_another_conversation_does_not_see_it(self, scene: Scene) -> None:
        process = scene.spawn("sleep 600")
        other = scene.store.sessions.open(BEN).key
        assert scene.registry.find(other) == []
        for ask in (scene.registry.get, scene.registry.kill, scene.registry.poll):
            with pytest.raises(NotFound, match="no process"):
                ask(process, key=other)

    def test_another_machine_leaves_it_alone(self, scene: Scene) -> None:
        process = scene.spawn("sleep 600")
        other = ProcessRegistry(scene.store, scene.registry._folder, node="elsewhere")
        other.recover()
        other.look()
        with pytest.raises(IllegalMove, match="elsewhere"):
            other.kill(process)
        assert scene.registry.get(process).is_alive
        assert scene.told() == []


def test_a_session_with_a_program_is_not_reset(scene: Scene) -> None:
    session = scene.store.sessions.open(ANA)
    process = scene.spawn("sleep 600")
    scene.clock.forward(hours=2)
    assert scene.store.sessions.expire(session.id) is None
    assert scene.store.sessions.open(ANA).id == session.id
    scene.clock.forward(hours=2)
    scene.registry.kill(process)
    assert scene.store.sessions.open(ANA).id != session.id


def test_protection_ends_after_a_day(scene: Scene) -> None:
    session = scene.store.sessions.open(ANA)
    scene.spawn("sleep 600")
    scene.clock.forward(hours=25, seconds=1)
    assert Settings().protection == timedelta(hours=24)
    assert scene.store.sessions.open(ANA).id != session.id
