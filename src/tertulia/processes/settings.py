"""What programs may be started, by whom, and what they are given."""

from __future__ import annotations

import msgspec

from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# A container has no network and no privileges, unless it is said otherwise.
DOCKER_OPTIONS = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How background programs behave.

    role              who may have the agent start programs: owner, member or guest, and those above
    variables         the environment variables of the gateway that programs are given; keys and
                      tokens are best left out
    at_most           how many may run at once on this machine
    keep_minutes      how long one that has ended can still be asked for
    longest_seconds   how long the agent may wait for one in a single call
    """

    role: Role = "owner"
    variables: tuple[str, ...] = VARIABLES
    at_most: int = 64
    keep_minutes: float = 30
    longest_seconds: float = 180

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigError(
                f"role is {self.role!r}.", hint=f"Allowed: {', '.join(ROLES)}.", field="role"
            )
        for name in ("at_most", "keep_minutes", "longest_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}.", hint="Give a number above 0.", field=name
                )

    def allows(self, role: Role) -> bool:
        """Whether somebody of that role may have programs started."""
        return ROLES.index(role) <= ROLES.index(self.role)
