"""Docker environments, with a fake client.

There is no Docker daemon to test with: the commands run with a small program named docker, which
runs them on this machine. The real client is only tested without a daemon.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tertulia.errors import ConfigError, PlaceUnavailable
from tertulia.processes.environments.base import Environment
from tertulia.processes.environments.docker import DockerContainer, DockerImage
from tests.processes.process_fixtures import ANA, Conversation, open_conversation

pytestmark = pytest.mark.check

REAL_DOCKER = shutil.which("docker")


class TestDockerImage:
    @pytest.fixture
    def environment(self, fake_docker: Path, tmp_path: Path) -> Environment:
        return DockerImage("python:3.13", folder=str(tmp_path / "work"))

    def test_each_program_has_a_container_that_is_removed(
        self, remote: Conversation, fake_docker: Path
    ) -> None:
        process = remote.spawn("true", pty=True)
        remote.wait_for_end(process)
        calls = (fake_docker / "calls").read_text().splitlines()
        [run_call] = [line for line in calls if line.startswith("run ")]
        assert run_call.startswith(f"run --rm --init -i -t --name=tertulia-{process} --user=")
        assert "target=/work --network=none --cap-drop=ALL" in run_call
        assert "python:3.13 sh -c" in run_call

    def test_removing_an_ended_container_succeeds(
        self, remote: Conversation, fake_docker: Path
    ) -> None:
        process = remote.spawn("exit 4")
        remote.wait_for_end(process)
        remote.registry.remove(process)
        assert any(
            line.startswith("rm --force")
            for line in (fake_docker / "calls").read_text().split("\n")
        )
        assert remote.store.processes.find() == []

    def test_exit_code_125_is_explained(self) -> None:
        environment = DockerImage("python:3.13", folder="work")
        assert "Docker itself" in environment.explain_exit(125)
        assert environment.explain_exit(1) == ""

    @pytest.mark.parametrize("name", ["", "-v", "--privileged", "a b"])
    def test_invalid_names_are_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="Invalid name of a Docker"):
            DockerImage(name, folder="work")
        with pytest.raises(ConfigError, match="Invalid name of a Docker"):
            DockerContainer(name)


def test_missing_container_is_named(fake_docker: Path, tmp_path: Path) -> None:
    environment = DockerContainer("nobody")
    with (
        open_conversation(
            str(tmp_path / "talk.db"), tmp_path, environment=environment
        ) as conversation,
        pytest.raises(PlaceUnavailable, match="No such container: nobody"),
    ):
        conversation.spawn("true")


@pytest.mark.skipif(REAL_DOCKER is None, reason="there is no docker client here")
@pytest.mark.parametrize("kind", ["container", "image"])
def test_nothing_is_started_without_a_daemon(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    environment: Environment = DockerContainer("box")
    if kind == "image":
        environment = DockerImage("python:3.13", folder=str(tmp_path / "work"))
    with open_conversation(
        str(tmp_path / "talk.db"), tmp_path, environment=environment
    ) as conversation:
        with pytest.raises(PlaceUnavailable, match=f"docker {kind} .* cannot be reached") as caught:
            conversation.spawn("true", origin=ANA)
        assert "docker" in str(caught.value).lower()
        assert "Nothing was started" in str(caught.value)
        assert conversation.store.processes.find() == []


def test_missing_docker_client_is_named(tmp_path: Path) -> None:
    environment = DockerContainer("box", docker="no-such-docker")
    with (
        open_conversation(
            str(tmp_path / "talk.db"), tmp_path, environment=environment
        ) as conversation,
        pytest.raises(PlaceUnavailable, match="no-such-docker cannot be started"),
    ):
        conversation.spawn("true")
