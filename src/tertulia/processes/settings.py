"""Settings of background programs: who may start them, their variables and their limits."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from tertulia.core.settings import FilePath
from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

DEFAULT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# By default a container has no network and no privileges.
DEFAULT_DOCKER_OPTIONS = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of background programs.

    role              the lowest role whose agent may start programs
    variables         the environment variables that programs inherit; leave keys and tokens out
    at_most           how many programs may run at the same time on this machine
    keep_minutes      how long a program and its output stay available after its end
    longest_seconds   how long the agent may wait for a program in one call
    """

    role: Role = "owner"
    variables: tuple[str, ...] = DEFAULT_VARIABLES
    at_most: int = 64
    keep_minutes: float = 30
    longest_seconds: float = 180

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigError(
                f"Invalid role {self.role!r}.", hint=f"Use one of {', '.join(ROLES)}.", field="role"
            )
        for name in ("at_most", "keep_minutes", "longest_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(
                    f"Invalid {name}: {getattr(self, name)!r}.",
                    hint="Use a number above 0.",
                    field=name,
                )

    def allows(self, role: Role) -> bool:
        """Return whether an agent may start programs for a person with that role."""
        return ROLES.index(role) <= ROLES.index(self.role)


class SshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine for programs, reached with the system's ssh, which cannot prompt.

    destination   user@host, or a host name from ssh's own configuration
    folder        the working directory there, relative to the home folder; created if missing
    port          the port of the ssh server; default: as ssh chooses
    identity      the file of the private key; default: as ssh chooses
    known_hosts   the file of known host keys; default: that of ssh
    """

    destination: str
    folder: str = "."
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    identity: FilePath | None = None
    known_hosts: FilePath | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^-\s][^\s]*", self.destination):
            raise ConfigError(
                f"Invalid SSH destination {self.destination!r}: it names no host.",
                hint="Use user@host, or a name of the SSH configuration.",
                field="destination",
            )


class DockerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Containers for programs: one that is already running, or a new one for each program.

    container   the running container; programs start in its working directory
    image       the image of the new containers; processes.folder is mounted there as /work
    options     further options of `docker run`, for an image
    """

    container: str | None = None
    image: str | None = None
    options: tuple[str, ...] = DEFAULT_DOCKER_OPTIONS

    def __post_init__(self) -> None:
        if (self.container is None) == (self.image is None):
            raise ConfigError(
                "Docker needs a container or an image.",
                hint="Give exactly one of them.",
                field="image",
            )
