"""Shell scripts and launches that the SSH and Docker environments share.

The supervisor runs `ssh` or `docker` on this machine, and these own the connection, so programs
there outlive a gateway just as local ones do. Processes that a program leaves behind there are
found by the environment variable that all of them have; a short shell script that runs there kills
them. That needs `sh`, `grep` and a Linux /proc, and does not find a program that clears its
environment. `docker run` needs none of this, because the whole container belongs to the program.
"""

from __future__ import annotations

import os
import re
from typing import Final

from tertulia.errors import ConfigError
from tertulia.processes.environments.base import Launch, Program, command_words, inherited_variables
from tertulia.processes.supervisor import VARIABLE

# Environment variables of the gateway for ssh and docker themselves; programs there get none.
_CLIENT_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "DOCKER_HOST",
                            "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH",
                            "DOCKER_TLS_VERIFY")  # fmt: skip

# Arguments: the folder, the folder within it, then the program. The check is made there, after all
# links were resolved; 126 is the exit code of a shell for a command that cannot be executed.
_START_SCRIPT: Final = r"""
mkdir -p -- "$1" && cd -- "$1" || exit 126
root=$(pwd -P)
cd -- "$2" || exit 126
case "$(pwd -P)/" in
"${root%/}/"*) ;;
*) echo "The folder $2 lies outside of $root." >&2; exit 126 ;;
esac
shift 2
exec env "$@"
"""
_RUN_SHELL: Final = 'exec "$(command -v bash || command -v sh)" -c "$0"'

# Processes with the id in their environment get SIGTERM, later SIGKILL. The search is repeated,
# because a process may be starting others at that moment. Prints the number of processes.
_KILL_SCRIPT: Final = r"""
[ -r /proc/self/environ ] || { echo "There is no /proc, so programs cannot be found." >&2; exit 3; }
list_pids() { grep -ls -- "$0" /proc/[0-9]*/environ | cut -d / -f 3; }
first=$(list_pids)
[ -n "$first" ] || { echo 0; exit 0; }
kill -TERM $first 2>/dev/null
n=0
while [ $n -lt 20 ] && [ -n "$(list_pids)" ]; do sleep 0.1; n=$((n + 1)); done
n=0
while left=$(list_pids); [ -n "$left" ]; do
    [ $n -lt 50 ] || { echo "Some of its processes could not be killed." >&2; exit 4; }
    kill -KILL $left 2>/dev/null
    sleep 0.05
    n=$((n + 1))
done
set -- $first
echo $#
"""


def remote_argv(program: Program, folder: str) -> list[str]:
    """Return the words that run a program there, in its folder and with its variables."""
    words = command_words(program.command)
    if isinstance(program.command, str):
        words = ["sh", "-c", _RUN_SHELL, *words]
    environment = {**program.variables, VARIABLE: program.process_id}
    for name in environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(
                f"Invalid name of an environment variable: {name!r}.",
                hint="Use letters, digits and '_'.",
                field="variables",
            )
    assignments = [f"{name}={value}" for name, value in environment.items()]
    return ["sh", "-c", _START_SCRIPT, "sh", folder, program.cwd or ".", *assignments, *words]


def kill_argv(process_id: str) -> list[str]:
    """Return the words that kill all processes with an id there."""
    return ["sh", "-c", _KILL_SCRIPT, f"{VARIABLE}={process_id}"]


def client_launch(argv: list[str]) -> Launch:
    """Return the launch of a client on this machine, such as ssh or docker."""
    return Launch(argv, "/", inherited_variables(_CLIENT_VARIABLES))


def program_launch(argv: list[str], program: Program, machine: str, folder: str) -> Launch:
    """Return the launch of a client that runs a program in a folder of another machine."""
    launch = client_launch(argv)
    launch.variables[VARIABLE] = program.process_id
    if program.pty:
        launch.variables["TERM"] = "xterm-256color"
    return launch._replace(display_folder=f"{machine}:{os.path.join(folder, program.cwd or '')}")
