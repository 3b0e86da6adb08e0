"""Settings of background programs: who may start them, their variables and their limits."""

from __future__ import annotations

import msgspec

from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

DEFAULT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# By default a container has no network and no privileges.
DEFAULT_DOCKER_OPTIONS = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of background programs.

    role              lowest role whose agent may start programs: owner, member or guest
    variables         environment variables of the gateway that programs get; leave out keys and
                      tokens
    at_most           maximum number of programs that run at once on this machine
    keep_minutes      minutes that an ended program and its output stay available
    longest_seconds   maximum seconds that the agent waits for a program in one call
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
