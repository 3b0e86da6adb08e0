"""Programs in every remote environment: over SSH and with docker exec."""

from __future__ import annotations

import sys

import psutil
import pytest

from tertulia.errors import IllegalMove
from tertulia.processes.environments.base import Environment
from tertulia.processes.registry import ProcessRegistry
from tests.processes.daemon import DAEMON
from tests.processes.environments.remote_programs import processes_with_id
from tests.processes.process_fixtures import TIMEOUT_SECONDS, Conversation, wait_until

pytestmark = pytest.mark.check


class TestRemotePrograms:
    def test_shell_command_and_its_exit_code(self, remote: Conversation) -> None:
        process = remote.spawn(
            'echo one; echo "it\'s $COLOUR"; exit 3', variables={"COLOUR": "a b"}
        )
        assert remote.wait_for_end(process) == "one\nit's a b\n"
        assert remote.registry.get(process).exit_code == 3

    def test_arguments_of_a_program_are_unchanged(self, remote: Conversation) -> None:
        process = remote.spawn(["printf", "%s|", "a b", "$HOME", "it's", "\n"])
        assert remote.wait_for_end(process) == "a b|$HOME|it's|\n|"

    def test_variables_of_the_gateway_are_not_passed(
        self, remote: Conversation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hush")
        monkeypatch.setenv("LANG", "from the gateway")
        output = remote.wait_for_end(remote.spawn("env"))
        assert "hush" not in output
        assert "from the gateway" not in output

    def test_folder_outside_is_refused(self, remote: Conversation) -> None:
        assert remote.wait_for_end(remote.spawn("mkdir -p in; ln -sfn / out")) == ""
        assert remote.wait_for_end(remote.spawn("pwd", cwd="in")).endswith("/in\n")
        for cwd in ("..", "/", "out", "in/../.."):
            process = remote.spawn("echo reached", cwd=cwd)
            assert "lies outside of" in remote.wait_for_end(process)
            assert remote.registry.get(process).exit_code == 126

    def test_input_reaches_the_program(self, remote: Conversation) -> None:
        process = remote.spawn("read name; echo hello $name")
        remote.registry.submit(process, "Ana")
        assert remote.wait_for_end(process) == "hello Ana\n"

    def test_kill_ends_a_daemon(self, remote: Conversation) -> None:
        process = remote.spawn([sys.executable, "-c", DAEMON])
        remote.wait_for_output(process, "daemon")
        daemon = psutil.Process(int(remote.output(process).split()[1]))
        wait_until(lambda: daemon in processes_with_id(process), "it runs there")
        remote.registry.kill(process)
        assert processes_with_id(process) == []

    def test_kill_ends_a_program_that_ignores_sigterm(self, remote: Conversation) -> None:
        process = remote.spawn("trap '' TERM HUP; echo ready; while true; do sleep 0.1; done")
        remote.wait_for_output(process, "ready")
        assert remote.registry.kill(process).state == "killed"
        assert processes_with_id(process) == []

    def test_another_registry_recovers_it(
        self, remote: Conversation, environment: Environment
    ) -> None:
        process = remote.spawn("read; echo went on")
        again = ProcessRegistry(remote.store, remote.registry._folder, environment=environment)
        assert [recovered.id for recovered in again.recover() if recovered.is_alive] == [process]
        again.submit(process)
        assert again.wait(process, TIMEOUT_SECONDS).output.text == "went on\n"

    def test_unconfigured_environment_is_named(self, remote: Conversation) -> None:
        process = remote.spawn("sleep 600")
        again = ProcessRegistry(remote.store, remote.registry._folder)
        with pytest.raises(IllegalMove, match="not configured any more"):
            again.kill(process)
        assert again.get(process).is_alive

    def test_environment_is_stored(self, remote: Conversation, environment: Environment) -> None:
        process = remote.registry.get(remote.spawn("sleep 600"))
        assert process.environment == environment.name
        assert process.cwd.endswith(":.") or process.cwd.endswith(":./")
