"""The registry with real programs: start, wait, notices, access and limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tertulia import Settings
from tertulia.errors import ConfigError, IllegalMove, NotFound
from tertulia.processes import supervisor, termination
from tertulia.processes.registry import ProcessRegistry
from tertulia.processes.settings import ProcessSettings
from tertulia.records.processes import Process
from tests.processes.process_fixtures import (
    ANA,
    BEN,
    TIMEOUT_SECONDS,
    Conversation,
    open_conversation,
    wait_until,
)
from tests.records.store_inspection import execute


def test_shell_command_runs_to_its_end(conversation: Conversation) -> None:
    status = conversation.registry.wait(
        conversation.spawn("echo one; echo two >&2; exit 3"), TIMEOUT_SECONDS
    )
    assert (status.process.state, status.process.exit_code) == ("exited", 3)
    assert sorted(status.output.text.split()) == ["one", "two"]
    assert status.output.is_whole


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_program_cannot_read_the_keys_of_the_gateway(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    process = conversation.spawn("tr '\\0' '\\n' < /proc/$PPID/environ; env; echo over")
    conversation.wait_for_output(process, "over")
    text = conversation.registry.log(process).output.text
    assert "sk-secret" not in text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_process_that_refuses_inspection_is_not_dumpable() -> None:
    """So its /proc files belong to root, and others of the same user cannot read them."""
    code = (
        "import ctypes; from tertulia.processes.supervisor import refuse_inspection;"
        "get = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0);"
        "before = get(); refuse_inspection(); print(before, get())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["1", "0"]


def test_arguments_of_a_program_are_unchanged(conversation: Conversation) -> None:
    process = conversation.spawn(
        [sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b", "$HOME"]
    )
    assert conversation.wait_for_end(process) == "['a b', '$HOME']\n"


def test_missing_program_leaves_no_record(conversation: Conversation) -> None:
    with pytest.raises(NotFound, match="no-such-program"):
        conversation.spawn(["no-such-program"])
    assert conversation.registry.find(conversation.key) == []
    assert [name for name in os.listdir(conversation.registry._folder) if name != "work"] == []


@pytest.mark.parametrize("command", ["", "  ", [], "a\0b"])
def test_empty_command_is_refused(conversation: Conversation, command: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="no command"):
        conversation.spawn(command)


def test_invalid_terminal_size_starts_and_records_nothing(conversation: Conversation) -> None:
    with pytest.raises(ConfigError, match="terminal size"):
        conversation.spawn("true", pty=True, size=(0, 80))
    assert conversation.store.processes.find() == []


class TestLimits:
    def test_number_of_running_programs_is_limited(self, tmp_path: Path) -> None:
        settings = ProcessSettings(at_most=2)
        with open_conversation(
            str(tmp_path / "talk.db"), tmp_path, settings=settings
        ) as conversation:
            first, _ = conversation.spawn("sleep 600"), conversation.spawn("sleep 600")
            with pytest.raises(IllegalMove, match="no more than 2"):
                conversation.spawn("sleep 600")
            conversation.registry.kill(first)
            conversation.spawn("true")

    def test_default_limit_is_64(self) -> None:
        assert ProcessSettings().at_most == 64

    def test_ended_program_stays_available_for_half_an_hour(
        self, conversation: Conversation
    ) -> None:
        process = conversation.spawn("echo done")
        conversation.wait_for_end(process)
        conversation.clock.forward(minutes=30)
        conversation.registry.check_all()
        assert conversation.output(process) == "done\n"
        ended = conversation.registry.get(process)
        folder = ended.folder
        conversation.clock.forward(seconds=1)
        wait_until(lambda: supervisor.mark(ended.keeper_pid) == "", "its supervisor is gone")
        conversation.registry.check_all()
        assert conversation.store.processes.get(process) is None
        assert not os.path.exists(folder)

    @pytest.mark.parametrize("field", ["at_most", "keep_minutes", "longest_seconds"])
    def test_limits_must_be_above_zero(self, field: str) -> None:
        with pytest.raises(ConfigError, match=field):
            ProcessSettings(**{field: 0})  # type: ignore[arg-type]

    @pytest.mark.parametrize("interval", [0, -1, 86_401, float("nan")])
    def test_invalid_check_interval_is_refused(
        self, conversation: Conversation, interval: float
    ) -> None:
        with pytest.raises(ConfigError, match="check_interval"):
            conversation.spawn("true", check_interval=interval)


class TestWait:
    def test_long_wait_is_shortened_with_a_note(self, tmp_path: Path) -> None:
        settings = ProcessSettings(longest_seconds=0.2)
        with open_conversation(
            str(tmp_path / "talk.db"), tmp_path, settings=settings
        ) as conversation:
            status = conversation.registry.wait(conversation.spawn("sleep 600"), 3600)
            assert status.process.is_alive
            assert "3600 seconds were requested" in status.note
            assert "0.2 is the maximum" in status.note
            assert "still running" in status.note

    def test_wait_can_be_interrupted(self, conversation: Conversation) -> None:
        stop = threading.Event()
        stop.set()
        status = conversation.registry.wait(conversation.spawn("sleep 600"), stop=stop)
        assert status.process.is_alive
        assert "interrupted" in status.note

    def test_wait_suppresses_the_end_notice(self, conversation: Conversation) -> None:
        conversation.wait_for_end(conversation.spawn("true"))
        conversation.registry.check_all()
        assert conversation.notices() == []


class TestNotices:
    def test_end_is_reported_once_with_the_output(self, conversation: Conversation) -> None:
        process = conversation.spawn("echo all is well")
        wait_until(
            lambda: os.path.exists(
                os.path.join(conversation.store.processes.require(process).folder, supervisor.ENDED)
            ),
            "it has ended",
        )
        for _ in range(3):
            conversation.registry.check_all()
        [notice] = conversation.notices()
        assert "has ended, exit code 0" in notice
        assert "all is well" in notice
        session = conversation.store.sessions.current(conversation.key)
        assert session is not None
        [entry] = conversation.store.transcript(session.id).entries()
        # The delivery is formatted for its platform, the transcript has the text as it was written.
        assert (entry.role, entry.kind) == ("assistant", "delivery")
        assert entry.body["content"].endswith("has ended, exit code 0.\n```\nall is well\n```")

    def test_new_output_is_reported_at_the_interval(self, conversation: Conversation) -> None:
        process = conversation.spawn("echo one; read; echo two; read", check_interval=10)
        conversation.wait_for_output(process, "one")
        conversation.registry.check_all()
        assert conversation.notices() == []
        conversation.clock.forward(seconds=10)
        conversation.registry.check_all()
        conversation.registry.check_all()
        assert (
            [text for text in conversation.notices() if "one" in text]
            == conversation.notices()
            != []
        )
        conversation.clock.forward(seconds=10)
        conversation.registry.check_all()
        assert len(conversation.notices()) == 1
        conversation.registry.submit(process)
        conversation.wait_for_output(process, "two")
        conversation.registry.check_all()
        assert len(conversation.notices()) == 2
        assert sum("\ntwo" in text for text in conversation.notices()) == 1
        assert sum("\none" in text for text in conversation.notices()) == 1

    def test_clock_that_is_set_back_delays_no_report(self, conversation: Conversation) -> None:
        process = conversation.spawn("echo one; read; echo two; read", check_interval=10)
        conversation.wait_for_output(process, "one")
        conversation.clock.forward(hours=-2)
        conversation.registry.check_all()
        assert len(conversation.notices()) == 1
        conversation.registry.submit(process)
        conversation.wait_for_output(process, "two")
        conversation.registry.check_all()
        assert len(conversation.notices()) == 1
        conversation.clock.forward(seconds=10)
        conversation.registry.check_all()
        assert len(conversation.notices()) == 2

    def test_own_programs_are_not_reported_as_recovered(self, conversation: Conversation) -> None:
        conversation.spawn("sleep 600")
        conversation.registry.recover()
        assert conversation.notices() == []
        ProcessRegistry(conversation.store, conversation.registry._folder).recover()
        assert len(conversation.notices()) == 1

    def test_two_gateways_on_one_machine_report_once(self, conversation: Conversation) -> None:
        process = conversation.spawn("echo once", check_interval=1)
        conversation.wait_for_output(process, "once")
        other = ProcessRegistry(conversation.store, conversation.registry._folder)
        conversation.clock.forward(seconds=10)
        for registry in (conversation.registry, other, conversation.registry, other):
            registry.check_all()
        wait_until(lambda: not conversation.registry.get(process).is_alive, "it has ended")
        other.check_all()
        assert sum("\nonce" in text for text in conversation.notices()) == 1
        assert sum("has ended" in text for text in conversation.notices()) == 1


class TestAccess:
    def test_other_conversation_has_no_access(self, conversation: Conversation) -> None:
        process = conversation.spawn("sleep 600")
        other = conversation.store.sessions.open(BEN).key
        assert conversation.registry.find(other) == []
        for ask in (
            conversation.registry.get,
            conversation.registry.kill,
            conversation.registry.poll,
        ):
            with pytest.raises(NotFound, match="no process"):
                ask(process, key=other)

    def test_other_machine_does_not_touch_it(self, conversation: Conversation) -> None:
        process = conversation.spawn("sleep 600")
        other = ProcessRegistry(
            conversation.store, conversation.registry._folder, node="other-machine"
        )
        other.recover()
        other.check_all()
        with pytest.raises(IllegalMove, match="other-machine"):
            other.kill(process)
        assert conversation.registry.get(process).is_alive
        assert conversation.notices() == []


def test_session_with_a_running_program_is_not_reset(conversation: Conversation) -> None:
    session = conversation.store.sessions.open(ANA)
    process = conversation.spawn("sleep 600")
    conversation.clock.forward(hours=2)
    assert conversation.store.sessions.expire(session.id) is None
    assert conversation.store.sessions.open(ANA).id == session.id
    conversation.clock.forward(hours=2)
    conversation.registry.kill(process)
    assert conversation.store.sessions.open(ANA).id != session.id


def test_protection_of_a_session_ends_after_a_day(conversation: Conversation) -> None:
    session = conversation.store.sessions.open(ANA)
    conversation.spawn("sleep 600")
    conversation.clock.forward(hours=25, seconds=1)
    assert Settings().protection == timedelta(hours=24)
    assert conversation.store.sessions.open(ANA).id != session.id


def test_program_in_state_starting_is_recovered_from_its_folder(conversation: Conversation) -> None:
    """The gateway crashed after the program had begun, before that was recorded."""
    process = conversation.spawn("sleep 600")
    started = conversation.registry.get(process)
    execute(
        conversation.store,
        "update processes set state = 'starting', keeper_pid = 0, keeper_mark = '', pid = 0,"
        " mark = ''",
    )
    [recovered] = ProcessRegistry(conversation.store, conversation.registry._folder).recover()
    assert (recovered.state, recovered.pid, recovered.keeper_pid) == (
        "running",
        started.pid,
        started.keeper_pid,
    )


def test_program_that_never_started_is_reported_as_lost(conversation: Conversation) -> None:
    """The gateway crashed after the program was recorded, before it had begun."""
    started = conversation.registry.get(conversation.spawn("sleep 600"))
    never = replace(
        started, id="pnever", folder=f"{started.folder}-never", told_at=started.began_at
    )
    conversation.store.processes.begin(never)
    conversation.registry.remove(started.id)
    conversation.registry.check_all()
    assert conversation.store.processes.require("pnever").state == "starting"
    assert conversation.notices() == []
    conversation.clock.forward(seconds=61)
    conversation.registry.check_all()
    assert conversation.store.processes.require("pnever").state == "lost"
    assert (
        [text for text in conversation.notices() if "never started" in text]
        == conversation.notices()
        != []
    )


def test_check_during_a_kill_does_not_record_another_end(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poller may see that the program is gone before `kill` has recorded why."""
    registry = conversation.registry
    terminate = registry._terminate

    def terminate_and_check(process: Process) -> int:
        count = terminate(process)
        wait_until(lambda: not termination.has_supervisor(process), "the supervisor is gone")
        registry.check_all()
        return count

    process_id = conversation.spawn("sleep 600")
    monkeypatch.setattr(registry, "_terminate", terminate_and_check)
    assert registry.kill(process_id).state == "killed"
