"""The SSH environment of a test server, and the processes of a program."""

from __future__ import annotations

import psutil

from tertulia.processes.environments.ssh import SshHost
from tertulia.processes.settings import SshSettings
from tertulia.processes.supervisor import VARIABLE
from tests.servers.ssh import SshServer


def ssh_host(server: SshServer, **options: str) -> SshHost:
    """Return the environment of a test server."""
    values = {"port": server.port, "identity": server.identity, "known_hosts": server.known_hosts}
    return SshHost(SshSettings(destination="ana@127.0.0.1", **values | options))  # type: ignore[arg-type]


def processes_with_id(process_id: str) -> list[psutil.Process]:
    """Return the running processes of a program, on this machine and there."""
    matches = []
    for candidate in psutil.process_iter():
        try:
            has_id = candidate.environ().get(VARIABLE) == process_id
            if has_id and candidate.status() != "zombie":
                matches.append(candidate)
        except (psutil.Error, OSError):
            continue
    return matches
