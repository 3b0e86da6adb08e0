"""A real SSH server on loopback, with keys of its own; it runs commands like sshd.

python -m tests.servers.ssh FOLDER   create the keys in a folder, print the port, and serve
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import asyncssh

# A process, its output descriptors with their targets, and its input descriptor.
Started = tuple[asyncio.subprocess.Process, list[tuple[int, Any]], int]


class SshServer(NamedTuple):
    """A running server; its commands start in the folder `home`."""

    port: int
    identity: str
    known_hosts: str
    home: Path
    program: subprocess.Popen[str]


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    home = folder / "home"
    home.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.servers.ssh", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            port = int(program.stdout.readline())
            yield SshServer(port, str(folder / "key"), str(folder / "known_hosts"), home, program)
        finally:
            program.kill()


class _NoPasswords(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return False


async def _serve(folder: Path) -> None:
    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user.write_private_key(folder / "key")
    (folder / "key").chmod(0o600)

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        # Like sshd, run a received command even if the client has disconnected meanwhile.
        await asyncio.shield(begin(process))

    readers = 0  # commands that read the process list now

    async def begin(process: asyncssh.SSHServerProcess[bytes]) -> None:
        nonlocal readers
        command = str(process.command)
        is_reader = "/proc/" in command
        await _in_order(folder, command)
        readers += is_reader
        await _run(process, str(folder / "home"))
        readers -= is_reader
        if is_reader and not readers:
            (folder / "slow").unlink(missing_ok=True)

    server = await asyncssh.create_server(
        _NoPasswords,
        "127.0.0.1",
        0,
        server_host_keys=[host],
        authorized_client_keys=asyncssh.import_authorized_keys(user.export_public_key().decode()),
        process_factory=run,
        encoding=None,
        line_editor=False,
    )
    port = server.get_port()
    line = f"[127.0.0.1]:{port} {host.export_public_key().decode()}"
    (folder / "known_hosts").write_text(line, encoding="ascii")
    print(port, flush=True)
    await server.wait_closed()


async def _in_order(folder: Path, command: str) -> None:
    """If there is a file `slow`, start a command only after the process list was read once, and
    before it is read again."""
    slow, waits = folder / "slow", folder / "waits"
    if command.startswith("exec ") and slow.exists():
        waits.touch()
        while slow.exists():  # noqa: ASYNC110 — the signal is a file
            await asyncio.sleep(0.01)
    elif "/proc/" in command and waits.exists() and not slow.exists():
        while not (folder / "home/came").exists():  # noqa: ASYNC110 — the signal is a file
            await asyncio.sleep(0.01)


async def _run(process: asyncssh.SSHServerProcess[bytes], home: str) -> None:
    """Run one command like the login shell of the user."""
    # No environment variable of the client reaches a command, as on another machine.
    environment = {"PATH": os.environ["PATH"], "HOME": home}
    terminal = process.term_type
    if terminal is None:
        started, reads, writes = await _on_pipes(process, home, environment)
    else:
        environment["TERM"] = terminal
        started, reads, writes = await _on_terminal(process, home, environment)
    feeding = asyncio.create_task(_feed(process, writes))
    copying = [asyncio.create_task(_copy(descriptor, out)) for descriptor, out in reads]
    code = await started.wait()
    await asyncio.gather(*copying)
    feeding.cancel()
    with suppress(OSError):
        process.exit(code) if code >= 0 else process.exit_with_signal("KILL")


async def _on_pipes(process: Any, home: str, environment: dict[str, str]) -> Started:
    theirs, ours = os.pipe()
    outs = [os.pipe(), os.pipe()]
    started = await asyncio.create_subprocess_exec(
        "sh", "-c", process.command, cwd=home, env=environment, start_new_session=True,
        stdin=theirs, stdout=outs[0][1], stderr=outs[1][1],
    )  # fmt: skip
    for descriptor in (theirs, outs[0][1], outs[1][1]):
        os.close(descriptor)
    return started, [(outs[0][0], process.stdout), (outs[1][0], process.stderr)], ours


async def _on_terminal(process: Any, home: str, environment: dict[str, str]) -> Started:
    ours, theirs = pty.openpty()
    columns, rows, *_ = process.term_size
    _resize(ours, rows, columns)
    started = await asyncio.create_subprocess_exec(
        "sh", "-c", process.command, cwd=home, env=environment, start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    return started, [(os.dup(ours), process.stdout)], ours


async def _feed(process: Any, writes: int) -> None:
    while True:
        try:
            data = await process.stdin.read(65_536)
        except asyncssh.TerminalSizeChanged as change:
            _resize(writes, change.height, change.width)
            continue
        except (asyncssh.Error, OSError):
            data = b""
        if not data:
            os.close(writes)
            return
        with suppress(OSError):
            await asyncio.to_thread(os.write, writes, data)


async def _copy(reads: int, out: Any) -> None:
    while True:
        try:
            data = await asyncio.to_thread(os.read, reads, 65_536)
        except OSError:  # a terminal reports like this that its process has ended
            data = b""
        if not data:
            os.close(reads)
            return
        try:
            out.write(data)
            await out.drain()
        except (asyncssh.Error, OSError):
            os.close(reads)
            return


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


if __name__ == "__main__":
    # In the background of a shell it ignores SIGINT, and so would its commands.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(Path(sys.argv[1])))
