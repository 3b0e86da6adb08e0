"""Programs on another machine over SSH, and in Docker: started, driven, ended, found again.

SSH is tried against a real server on loopback with the system's own client. There is no Docker
daemon to try with: the whole road is run with a small program named docker in its place, which
runs the command on this machine; and the real client says what it says without a daemon.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tertulia.errors import ConfigError, IllegalMove, PlaceUnavailable
from tertulia.processes.agent_tools import tools_for
from tertulia.processes.environments.base import Environment
from tertulia.processes.environments.ssh import (
    DockerContainer,
    DockerImage,
    SshHost,
)
from tertulia.processes.registry import ProcessRegistry
from tertulia.processes.supervisor import VARIABLE
from tests.processes.scene import ANA, PATIENCE, Scene, until
from tests.processes.scene import scene as opened
from tests.processes.test_registry import DAEMON
from tests.processes.test_tools import called
from tests.servers.ssh import SshServer, ssh_server

REAL_DOCKER = shutil.which("docker")

# As much of docker as is needed here: it does on this machine what it is told to do in a container.
DOCKER = r"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
verb=$1; shift
case $verb in
exec)
    while case $1 in -*) true ;; *) false ;; esac; do shift; done
    [ "$1" = box ] || { echo "Error response from daemon: No such container: $1" >&2; exit 1; }
    shift
    cd "$(dirname "$0")/inside" && exec env -i PATH="$PATH" "$@" ;;
run)
    while case $1 in -*) true ;; *) false ;; esac; do
        case $1 in --name=*) name=${1#--name=} ;; esac
        shift
    done
    shift
    echo $$ > "$(dirname "$0")/$name"
    exec env -i PATH="$PATH" setsid -w "$@" ;;
version) echo 27.0 ;;
rm)
    file="$(dirname "$0")/$2"
    [ -f "$file" ] || { echo "Error: No such container: $2" >&2; exit 1; }
    pkill -KILL -s "$(pgrep -P "$(cat "$file")" || cat "$file")"; kill -KILL "$(cat "$file")"
    rm "$file"; echo "$2" ;;
ps) exit 0 ;;
esac
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh client here")
    with ssh_server(tmp_path_factory.mktemp("there")) as found:
        yield found


def host(server: SshServer, **more: str) -> SshHost:
    return SshHost(
        "ana@127.0.0.1",
        **{"port": server.port, "identity": server.identity, "known_hosts": server.known_hosts}
        | more,  # type: ignore[arg-type]
    )


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program named docker, first on the path."""
    place = tmp_path / "bin"
    (place / "inside").mkdir(parents=True)
    (place / "docker").write_text(DOCKER)
    (place / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return place


@pytest.fixture(params=["ssh", "docker exec"])
def elsewhere(request: pytest.FixtureRequest) -> Environment:
    if request.param == "ssh":
        return host(request.getfixturevalue("server"))
    request.getfixturevalue("box")
    return DockerContainer("box")


@pytest.fixture
def there(elsewhere: Environment, tmp_path: Path) -> Iterator[Scene]:
    with opened(str(tmp_path / "talk.db"), tmp_path, environment=elsewhere) as found:
        yield found


def carriers(process_id: str) -> list[psutil.Process]:
    """Whoever belongs to a program, on either side."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(VARIABLE) == process_id and one.status() != "zombie":
                found.append(one)
        except (psutil.Error, OSError):
            continue
    return found


class TestBoth:
    def test_a_line_of_the_shell_and_how_it_ended(self, there: Scene) -> None:
        process = there.spawn('echo one; echo "it\'s $COLOUR"; exit 3', variables={"COLOUR": "a b"})
        assert there.finished(process) == "one\nit's a b\n"
        assert there.registry.get(process).exit_code == 3

    def test_a_program_with_its_arguments_as_they_are(self, there: Scene) -> None:
        process = there.spawn(["printf", "%s|", "a b", "$HOME", "it's", "\n"])
        assert there.finished(process) == "a b|$HOME|it's|\n|"

    def test_nothing_of_the_gateway_arrives(
        self, there: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hush")
        monkeypatch.setenv("LANG", "from the gateway")
        shown = there.finished(there.spawn("env"))
        assert "hush" not in shown
        assert "from the gateway" not in shown

    def test_a_folder_outside_is_refused_there(self, there: Scene) -> None:
        assert there.finished(there.spawn("mkdir -p in; ln -sfn / out")) == ""
        assert there.finished(there.spawn("pwd", cwd="in")).endswith("/in\n")
        for cwd in ("..", "/", "out", "in/../.."):
            process = there.spawn("echo reached", cwd=cwd)
            assert "lies outside of" in there.finished(process)
            assert there.registry.get(process).exit_code == 126

    def test_it_is_written_to(self, there: Scene) -> None:
        process = there.spawn("read name; echo hello $name")
        there.registry.submit(process, "Ana")
        assert there.finished(process) == "hello Ana\n"

    def test_one_that_forks_twice_is_ended_there_whole(self, there: Scene) -> None:
        process = there.spawn([sys.executable, "-c", DAEMON])
        there.shows(process, "daemon")
        daemon = psutil.Process(int(there.text(process).split()[1]))
        until(lambda: daemon in carriers(process), "it runs there")
        there.registry.kill(process)
        assert carriers(process) == []

    def test_one_that_will_not_go_is_made_to(self, there: Scene) -> None:
        process = there.spawn("trap '' TERM HUP; echo ready; while true; do sleep 0.1; done")
        there.shows(process, "ready")
        assert there.registry.kill(process).state == "killed"
        assert carriers(process) == []

    def test_another_registry_finds_it_again(self, there: Scene, elsewhere: Environment) -> None:
        process = there.spawn("read; echo went on")
        again = ProcessRegistry(there.store, there.registry._folder, environment=elsewhere)
        assert [one.id for one in again.recover() if one.is_alive] == [process]
        again.submit(process)
        assert again.wait(process, PATIENCE).output.text == "went on\n"

    def test_a_place_that_is_not_set_up_any_more_is_named(self, there: Scene) -> None:
        process = there.spawn("sleep 600")
        again = ProcessRegistry(there.store, there.registry._folder)
        with pytest.raises(IllegalMove, match="not set up any more"):
            again.kill(process)
        assert again.get(process).is_alive

    def test_the_store_knows_where_it_runs(self, there: Scene, elsewhere: Environment) -> None:
        process = there.registry.get(there.spawn("sleep 600"))
        assert process.environment == elsewhere.name
        assert process.cwd.endswith(":.") or process.cwd.endswith(":./")


class TestSsh:
    @pytest.fixture
    def elsewhere(self, server: SshServer) -> Environment:
        return host(server)

    def test_it_does_run_there(self, there: Scene, server: SshServer) -> None:
        home = os.path.realpath(server.home)
        assert there.finished(there.spawn("pwd; echo $PPID")).startswith(f"{home}\n")
        process = there.spawn("sleep 600")
        until(lambda: len(carriers(process)) > 1, "it runs there")
        family = {one.pid for one in psutil.Process(server.program.pid).children(recursive=True)}
        assert family & {one.pid for one in carriers(process)}

    def test_a_terminal_with_its_size_and_ctrl_c(self, there: Scene) -> None:
        program = (
            "stty size; trap 'echo caught' INT; trap 'stty size' WINCH; echo ready;"
            " while true; do read line; done"
        )
        process = there.spawn(program, pty=True, size=(30, 100))
        there.shows(process, "30 100\nready")

        def prompted(text: str) -> bool:
            there.registry.submit(process)  # a shell runs a trap between two commands
            return text in there.text(process)

        there.registry.write(process, "\x03")
        until(lambda: prompted("caught"), "it has caught it")
        there.registry.resize(process, 50, 132)
        until(lambda: prompted("50 132"), "it has the new size")

    def test_a_lost_connection_is_said_and_what_is_left_can_be_ended(self, there: Scene) -> None:
        process = there.spawn("trap '' HUP; echo on; while true; do sleep 0.1; done")
        there.shows(process, "on")
        psutil.Process(there.registry.get(process).pid).kill()
        until(lambda: not there.registry.get(process).is_alive, "the connection is gone")
        assert carriers(process) != []
        there.registry.kill(process)
        assert carriers(process) == []

    def test_one_that_is_only_on_its_way_there_is_ended_too(self, tmp_path: Path) -> None:
        """It begins there when it was looked for already; it is looked for again."""
        with ssh_server(tmp_path / "there") as server:
            place = host(server)
            with opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene:
                (tmp_path / "there/slow").touch()
                process = scene.spawn(
                    "trap '' HUP TERM; touch came; while true; do sleep 0.1; done"
                )
                until((tmp_path / "there/waits").exists, "it is on its way")
                assert scene.registry.kill(process).state == "killed"
                assert scene.registry.poll(process).note == ""
                until((server.home / "came").exists, "it had begun there")
                assert carriers(process) == []

    def test_the_output_is_told_though_nobody_can_look_for_what_is_left(
        self, tmp_path: Path
    ) -> None:
        with ssh_server(tmp_path / "there") as server:
            place = host(server)
            with opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene:
                [terminal, _] = tools_for(scene.registry, ANA, scene.key, "owner")
                gone = f"echo the end is near; kill -9 {server.program.pid}; exit 3"
                told = str(asyncio.run(called(terminal, {"command": gone})))
                assert "the end is near" in told
                assert "cannot be reached" in told
                for one in scene.store.processes.find():
                    scene.store.processes.delete(one.id)

    def test_255_is_explained(self, there: Scene) -> None:
        process = there.spawn("exit 255")
        there.finished(process)
        assert "may still be running there" in there.registry.poll(process).note
        there.registry.look()

    def test_a_stranger_is_refused_and_nothing_is_left(
        self, server: SshServer, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        asked = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)]
        subprocess.run(asked, check=True)
        place = host(server, identity=str(other))
        with opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene:
            with pytest.raises(PlaceUnavailable, match="Permission denied") as told:
                scene.spawn("true")
            assert "Nothing was started" in str(told.value)
            assert scene.store.processes.find() == []

    def test_a_host_that_is_not_known_is_refused(self, server: SshServer, tmp_path: Path) -> None:
        unknown = tmp_path / "known"
        unknown.write_text("")
        place = host(server, known_hosts=str(unknown))
        with (
            opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene,
            pytest.raises(PlaceUnavailable, match="Host key verification failed"),
        ):
            scene.spawn("true")

    def test_a_host_that_is_gone_keeps_the_record(self, tmp_path: Path) -> None:
        """Nobody says that a program has been ended who could not look."""
        with ssh_server(tmp_path / "there") as server:
            place = host(server)
            with opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene:
                process = scene.spawn("sleep 600")
                until(lambda: len(carriers(process)) > 1, "it runs there")
                left = carriers(process)
                server.program.kill()
                server.program.wait()
                with pytest.raises(PlaceUnavailable, match="may still be running there"):
                    scene.registry.kill(process)
                assert scene.store.processes.require(process).state != "killed"
                self._forgotten(scene, process)
                for one in left:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                scene.store.processes.delete(process)

    def _forgotten(self, scene: Scene, process: str) -> None:
        """Its conversation is deleted: it is tried to end it, but not at every look."""
        session = scene.store.sessions.current(scene.key)
        assert session is not None
        scene.store.sessions.delete(session.id)
        for _ in range(3):
            scene.registry.look()
        [kept] = scene.store.processes.of_node(scene.registry.node)
        assert (kept.id, kept.state) == (process, "forgotten")
        assert list(scene.registry._rests) == [process]

    @pytest.mark.parametrize("destination", ["", "-oProxyCommand=id", "a b", " a"])
    def test_what_is_no_host_is_refused(self, destination: str) -> None:
        with pytest.raises(ConfigError, match="names no host"):
            SshHost(destination)


class TestDockerImage:
    @pytest.fixture
    def elsewhere(self, box: Path, tmp_path: Path) -> Environment:
        return DockerImage("python:3.13", folder=str(tmp_path / "work"))

    def test_each_has_a_container_that_is_removed(self, there: Scene, box: Path) -> None:
        process = there.spawn("true", pty=True)
        there.finished(process)
        asked = (box / "asked").read_text().splitlines()
        [ran] = [line for line in asked if line.startswith("run ")]
        assert ran.startswith(f"run --rm --init -i -t --name=tertulia-{process} --user=")
        assert "target=/work --network=none --cap-drop=ALL" in ran
        assert "python:3.13 sh -c" in ran

    def test_a_container_that_has_ended_is_no_failure(self, there: Scene, box: Path) -> None:
        process = there.spawn("exit 4")
        there.finished(process)
        there.registry.remove(process)
        assert any(
            line.startswith("rm --force") for line in (box / "asked").read_text().split("\n")
        )
        assert there.store.processes.find() == []

    def test_125_is_dockers_own(self) -> None:
        place = DockerImage("python:3.13", folder="work")
        assert "Docker itself" in place.remark(125)
        assert place.remark(1) == ""

    @pytest.mark.parametrize("name", ["", "-v", "--privileged", "a b"])
    def test_what_is_no_name_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="no name that Docker knows"):
            DockerImage(name, folder="work")
        with pytest.raises(ConfigError, match="no name that Docker knows"):
            DockerContainer(name)


def test_a_container_that_is_not_there_is_named(box: Path, tmp_path: Path) -> None:
    place = DockerContainer("nobody")
    with (
        opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene,
        pytest.raises(PlaceUnavailable, match="No such container: nobody"),
    ):
        scene.spawn("true")


@pytest.mark.skipif(REAL_DOCKER is None, reason="there is no docker client here")
@pytest.mark.parametrize("kind", ["container", "image"])
def test_without_a_daemon_nothing_is_started(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    place: Environment = DockerContainer("box")
    if kind == "image":
        place = DockerImage("python:3.13", folder=str(tmp_path / "work"))
    with opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene:
        with pytest.raises(PlaceUnavailable, match=f"docker {kind} .* cannot be reached") as told:
            scene.spawn("true", origin=ANA)
        assert "docker" in str(told.value).lower()
        assert "Nothing was started" in str(told.value)
        assert scene.store.processes.find() == []


def test_a_client_that_is_not_installed_is_said(tmp_path: Path) -> None:
    place = DockerContainer("box", docker="no-such-docker")
    with (
        opened(str(tmp_path / "talk.db"), tmp_path, environment=place) as scene,
        pytest.raises(PlaceUnavailable, match="no-such-docker cannot be started"),
    ):
        scene.spawn("true")
