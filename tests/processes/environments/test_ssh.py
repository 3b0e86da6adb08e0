"""The SSH environment, with a real server on loopback and the client of the system."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tertulia.errors import ConfigError, PlaceUnavailable
from tertulia.processes.agent_tools import tools_for
from tertulia.processes.environments.base import Environment
from tertulia.processes.settings import SshSettings
from tests.processes.environments.remote_programs import processes_with_id, ssh_host
from tests.processes.process_fixtures import ANA, Conversation, open_conversation, wait_until
from tests.processes.test_agent_tools import call_tool
from tests.servers.ssh import SshServer, ssh_server

pytestmark = pytest.mark.check


class TestSsh:
    @pytest.fixture
    def environment(self, server: SshServer) -> Environment:
        return ssh_host(server)

    def test_program_runs_on_the_server(self, remote: Conversation, server: SshServer) -> None:
        home = os.path.realpath(server.home)
        assert remote.wait_for_end(remote.spawn("pwd; echo $PPID")).startswith(f"{home}\n")
        process = remote.spawn("sleep 600")
        wait_until(lambda: len(processes_with_id(process)) > 1, "it runs there")
        family = {
            member.pid for member in psutil.Process(server.program.pid).children(recursive=True)
        }
        assert family & {member.pid for member in processes_with_id(process)}

    def test_terminal_size_and_ctrl_c(self, remote: Conversation) -> None:
        program = (
            "stty size; trap 'echo caught' INT; trap 'stty size' WINCH; echo ready;"
            " while true; do read line; done"
        )
        process = remote.spawn(program, pty=True, size=(30, 100))
        remote.wait_for_output(process, "30 100\nready")

        def prompted(text: str) -> bool:
            remote.registry.submit(process)  # a shell runs a trap between two commands
            return text in remote.output(process)

        remote.registry.write(process, "\x03")
        wait_until(lambda: prompted("caught"), "it has caught it")
        remote.registry.resize(process, 50, 132)
        wait_until(lambda: prompted("50 132"), "it has the new size")

    def test_kill_ends_processes_left_after_a_lost_connection(self, remote: Conversation) -> None:
        process = remote.spawn("trap '' HUP; echo on; while true; do sleep 0.1; done")
        remote.wait_for_output(process, "on")
        psutil.Process(remote.registry.get(process).pid).kill()
        wait_until(lambda: not remote.registry.get(process).is_alive, "the connection is gone")
        assert processes_with_id(process) != []
        remote.registry.kill(process)
        assert processes_with_id(process) == []

    def test_kill_ends_a_program_that_is_still_connecting(self, tmp_path: Path) -> None:
        """It begins there after the first kill; the second kill ends it."""
        with ssh_server(tmp_path / "there") as server:
            environment = ssh_host(server)
            with open_conversation(
                str(tmp_path / "talk.db"), tmp_path, environment=environment
            ) as conversation:
                (tmp_path / "there/slow").touch()
                process = conversation.spawn(
                    "trap '' HUP TERM; touch came; while true; do sleep 0.1; done"
                )
                wait_until((tmp_path / "there/waits").exists, "it is on its way")
                assert conversation.registry.kill(process).state == "killed"
                assert conversation.registry.poll(process).note == ""
                wait_until((server.home / "came").exists, "it had begun there")
                assert processes_with_id(process) == []

    def test_output_is_returned_although_the_server_is_gone(self, tmp_path: Path) -> None:
        with ssh_server(tmp_path / "there") as server:
            environment = ssh_host(server)
            with open_conversation(
                str(tmp_path / "talk.db"), tmp_path, environment=environment
            ) as conversation:
                [terminal, _] = tools_for(conversation.registry, ANA, conversation.key, "owner")
                command = f"echo the end is near; kill -9 {server.program.pid}; exit 3"
                result = str(asyncio.run(call_tool(terminal, {"command": command})))
                assert "the end is near" in result
                assert "cannot be reached" in result
                for member in conversation.store.processes.find():
                    conversation.store.processes.delete(member.id)

    def test_exit_code_255_is_explained(self, remote: Conversation) -> None:
        process = remote.spawn("exit 255")
        remote.wait_for_end(process)
        assert "may still be running there" in remote.registry.poll(process).note
        remote.registry.check_all()

    def test_wrong_key_is_refused_and_leaves_no_record(
        self, server: SshServer, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)]
        subprocess.run(command, check=True)
        environment = ssh_host(server, identity=str(other))
        with open_conversation(
            str(tmp_path / "talk.db"), tmp_path, environment=environment
        ) as conversation:
            with pytest.raises(PlaceUnavailable, match="Permission denied") as caught:
                conversation.spawn("true")
            assert "Nothing was started" in str(caught.value)
            assert conversation.store.processes.find() == []

    def test_unknown_host_is_refused(self, server: SshServer, tmp_path: Path) -> None:
        unknown = tmp_path / "known"
        unknown.write_text("")
        environment = ssh_host(server, known_hosts=str(unknown))
        with (
            open_conversation(
                str(tmp_path / "talk.db"), tmp_path, environment=environment
            ) as conversation,
            pytest.raises(PlaceUnavailable, match="Host key verification failed"),
        ):
            conversation.spawn("true")

    def test_unreachable_host_keeps_the_record(self, tmp_path: Path) -> None:
        """A program is not reported as killed if the host could not be reached."""
        with ssh_server(tmp_path / "there") as server:
            environment = ssh_host(server)
            with open_conversation(
                str(tmp_path / "talk.db"), tmp_path, environment=environment
            ) as conversation:
                process = conversation.spawn("sleep 600")
                wait_until(lambda: len(processes_with_id(process)) > 1, "it runs there")
                left = processes_with_id(process)
                server.program.kill()
                server.program.wait()
                with pytest.raises(PlaceUnavailable, match="may still be running there"):
                    conversation.registry.kill(process)
                assert conversation.store.processes.require(process).state != "killed"
                self._delete_conversation(conversation, process)
                for member in left:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
                conversation.store.processes.delete(process)

    def _delete_conversation(self, conversation: Conversation, process: str) -> None:
        """Delete the conversation: ending its program is retried, but not at every check."""
        session = conversation.store.sessions.current(conversation.key)
        assert session is not None
        conversation.store.sessions.delete(session.id)
        for _ in range(3):
            conversation.registry.check_all()
        [record] = conversation.store.processes.of_node(conversation.registry.node)
        assert (record.id, record.state) == (process, "forgotten")
        assert list(conversation.registry._retry_at) == [process]

    @pytest.mark.parametrize("destination", ["", "-oProxyCommand=id", "a b", " a"])
    def test_invalid_destination_is_refused(self, destination: str) -> None:
        with pytest.raises(ConfigError, match="names no host"):
            SshSettings(destination=destination)
