"""Identities of processes: an ended one is recognised, and no other is ever taken for ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tertulia.process_identity import has_ended, own_identity

if sys.platform != "linux":
    pytest.skip("only Linux tells the scope of a pid", allow_module_level=True)

_PRINT = "from tertulia.process_identity import *; print(own_identity(), flush=True); "
_WAIT = "import sys; sys.stdin.read()"
# The first thread ends, and the process goes on in another one.
_WITHOUT_FIRST_THREAD = (
    "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start();"
    "ctypes.CDLL(None).pthread_exit(None)"
)


@contextmanager
def program(code: str = _WAIT, *command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program; yield it and its identity."""
    process = subprocess.Popen(
        [*command, sys.executable, "-c", _PRINT + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def scope_of(identity: str) -> str:
    return identity.split(":")[2]


def test_identity_names_host_pid_and_scope() -> None:
    host, pid, scope, began = own_identity().rsplit(":", 3)
    assert host == os.uname().nodename
    assert int(pid) == os.getpid()
    assert len(scope) == 16
    assert int(began) > 0


def test_running_process_has_not_ended() -> None:
    assert not has_ended(own_identity())
    with program() as (process, identity):
        assert scope_of(identity) == scope_of(own_identity())
        assert not has_ended(identity)
        process.kill()
        process.wait()
        assert has_ended(identity)


def test_stopped_process_has_not_ended() -> None:
    with program() as (process, identity):
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert not has_ended(identity)


def test_killed_process_that_nobody_has_waited_for_has_ended() -> None:
    with program() as (process, identity):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(identity)


def test_process_whose_first_thread_has_ended_runs() -> None:
    with program(_WITHOUT_FIRST_THREAD) as (process, identity):
        while " (zombie)" not in _status(process.pid):
            assert process.poll() is None
        assert not has_ended(identity)


def test_later_process_with_the_same_pid_is_another_one() -> None:
    with program() as (_, identity):
        rest, began = identity.rsplit(":", 1)
        assert has_ended(f"{rest}:{int(began) - 1}")


@pytest.mark.parametrize(
    "changed",
    [
        lambda parts: [*parts[:2], "0123456789abcdef", parts[3]],
        lambda parts: [*parts[:2], "", parts[3]],
        lambda parts: [parts[0], "", *parts[2:]],
        lambda parts: parts[:3],
    ],
    ids=["another scope", "no scope", "no pid", "no identity"],
)
def test_unknown_process_has_not_ended(changed: object) -> None:
    assert callable(changed)
    with program() as (process, identity):
        process.kill()
        process.wait()
        assert has_ended(identity)
        assert not has_ended(":".join(changed(identity.split(":"))))


def test_process_of_another_user_has_not_ended() -> None:
    if os.geteuid() != 0:
        assert not has_ended(":".join([*own_identity().split(":")[:1], "1", *_first_process()]))
        return
    code = f"import os; os.setuid(65534); print(has_ended({own_identity()!r}), flush=True)"
    with program(code) as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"


@pytest.mark.parametrize("option", ["--mount-proc", "--pid"], ids=["own /proc", "outer /proc"])
def test_process_of_another_pid_namespace_tells_nothing(option: str) -> None:
    command = ("unshare", "--user", "--map-root-user", "--pid", "--fork", option)
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no pid namespaces")
    code = f"print(has_ended({own_identity()!r}), flush=True); {_WAIT}"
    with program(code, *command) as (process, identity):
        assert process.stdout is not None
        # Its pid is that of another process here, and ours is that of none there.
        assert identity.split(":")[1] == "1"
        assert scope_of(identity) != scope_of(own_identity())
        assert not has_ended(identity)
        assert process.stdout.readline() == "False\n"


def test_child_has_an_identity_of_its_own() -> None:
    code = "import os; child = os.fork(); print(own_identity()) if child == 0 else os.wait()"
    with program(code) as (process, parent):
        assert process.stdout is not None
        child = process.stdout.readline().strip()
        assert process.wait() == 0
    assert child.split(":")[1] != parent.split(":")[1]
    assert scope_of(child) == scope_of(parent)


def _status(pid: int) -> str:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return file.read()


def _first_process() -> list[str]:
    with open("/proc/1/stat", encoding="utf-8") as file:
        return [scope_of(own_identity()), file.read().rpartition(")")[2].split()[19]]
