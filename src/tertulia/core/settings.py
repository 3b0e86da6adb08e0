"""The settings of a store. Every field has a working default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from tertulia.core import validate
from tertulia.core.agent_route import AgentRoute
from tertulia.core.budget import Budget
from tertulia.core.policy import Policies
from tertulia.core.retention import Retention
from tertulia.core.target import HomeChannel
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

Durability = Literal["safe", "fast"]

RUNTIME_ONLY = Meta(extra={"is_runtime_only": True})
"""Marks a field of a settings class that a program sets; the configuration file cannot."""

FilePath = Annotated[str, Meta(extra={"is_path": True})]
"""A path; in the configuration file, a relative one starts at the folder of that file."""


_LONGEST = 10_000_000  # seconds or hours: a time so far from now can still be written
_FLAGS = ("group_sessions_per_user", "thread_sessions_shared", "redact_pii", "remember")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a store, all optional; `tertulia.open("talk.db")` works without any.

    policies                  when sessions end by themselves
    group_sessions_per_user   whether each person in a group has a conversation of their own
    thread_sessions_shared    whether a thread is one conversation for everybody in it
    agent                     the name of the agent; the second part of every key
    agents                    names of the further agents, which /agent and routes can choose
    routes                    which agent answers in which chat
    zone                      the time zone of daily resets and of usage by day; default: that of
                              the machine
    homes                     the default chat of each platform
    platforms                 names of the connected platforms, as shown to the agent
    redact_pii                whether ids and phone numbers leave the store as hashes only
    durability                "safe" survives power loss, "fast" only the end of the process
    lease_seconds             how long a turn may be silent before another process may take it over
    budgets                   limits; a turn over its budget is refused before its model is called
    remember                  whether sessions that a policy ended are queued to be written to
                              memory
    has_active_processes      called with a key before a policy ends its session
    protection_hours          how long after its due end a running process keeps a session open
    busy_seconds              how long to wait while another program locks the file
    retention                 how long settled entries, ended sessions and strangers are kept
    """

    policies: Policies = Policies()
    group_sessions_per_user: bool = True
    thread_sessions_shared: bool = False
    agent: str = "main"
    agents: Annotated[tuple[str, ...], RUNTIME_ONLY] = ()
    routes: Annotated[tuple[AgentRoute, ...], RUNTIME_ONLY] = ()
    zone: str | None = None
    homes: Mapping[str, HomeChannel] = {}
    platforms: Annotated[tuple[str, ...], RUNTIME_ONLY] = ()
    redact_pii: bool = False
    durability: Durability = "safe"
    lease_seconds: float = 60
    budgets: tuple[Budget, ...] = ()
    remember: bool = False
    has_active_processes: Annotated[Callable[[str], bool] | None, RUNTIME_ONLY] = None
    protection_hours: float = 24
    busy_seconds: float = 30
    retention: Retention = Retention()

    def __post_init__(self) -> None:
        validate.choice("durability", self.durability, ("safe", "fast"))
        if not self.agent:
            raise ConfigError("agent is empty.", hint="Give a name, such as main.", field="agent")
        self._check_types()
        for name in ("lease_seconds", "protection_hours", "busy_seconds"):
            validate.number(name, getattr(self, name))
            if not 0 < getattr(self, name) <= _LONGEST:
                raise ConfigError(
                    f"{name} is {short_repr(getattr(self, name))}.",
                    hint=f"Give a number above 0 and at most {_LONGEST:,}.",
                    field=name,
                )
        if self.zone is not None:
            require_zone(self.zone)

    def _check_types(self) -> None:
        """Check the types that a caller without a type checker easily gets wrong."""
        validate.text("agent", self.agent)
        validate.text("zone", self.zone, optional=True)
        for name in _FLAGS:
            validate.instance(name, getattr(self, name), bool, "True or False")
        validate.collection("platforms", self.platforms)
        for platform in self.platforms:
            validate.text("platforms", platform)
        validate.collection("budgets", self.budgets)
        are_budgets = all(isinstance(budget, Budget) for budget in self.budgets)
        guard: object = self.has_active_processes
        homes: object = self.homes
        are_homes = isinstance(homes, Mapping) and all(
            isinstance(home, HomeChannel) for home in homes.values()
        )
        checks: tuple[tuple[str, object, bool, str], ...] = (
            (
                "retention",
                self.retention,
                isinstance(self.retention, Retention),
                "Retention(sessions_days=365)",
            ),
            ("policies", self.policies, isinstance(self.policies, Policies), "Policies(default=…)"),
            ("homes", homes, are_homes, "{'telegram': HomeChannel('42')}"),
            ("budgets", self.budgets, are_budgets, "Budget(per='person', tokens=100_000)"),
            ("has_active_processes", guard, guard is None or callable(guard), "a function"),
        )
        for name, value, is_valid, example in checks:
            if not is_valid:
                raise ConfigError(
                    f"{name} is {short_repr(value)}.", hint=f"Give {example}.", field=name
                )

    @property
    def protection(self) -> timedelta:
        """Return `protection_hours` as a duration."""
        return timedelta(hours=self.protection_hours)


def require_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name; raise `ConfigError` if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
        raise ConfigError(
            f"There is no time zone {short_repr(name)}.",
            hint="Give an IANA name, such as Europe/Madrid or UTC.",
            field="zone",
        ) from problem
