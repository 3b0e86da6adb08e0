"""Settings of a gateway: frozen values, read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tertulia.errors import ConfigError

Admission = Literal["everyone", "paired", "nobody"]
"""People who may write in private: anybody, people the owner let in, or only the allow list."""

Groups = Literal["mention", "always", "never"]
"""Messages of a group that are answered: those that address the agent, all, or none."""

DuringTurn = Literal["queue", "interrupt", "steer"]
"""Effect of a message that arrives during a turn: wait, end the turn, or be taken into it."""


class PlatformSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Access control of one platform.

    `allow` and `owners` list people by id; these are let in whatever `admission` is.
    """

    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a gateway.

    platforms         access control by platform; a platform that is not listed has the defaults
    meanwhile         effect of a message that arrives during a turn
    gather_seconds    messages of a person within this time are answered together
    turns             maximum number of turns in progress at once on this node
    history_tokens    maximum tokens of history shown to the model
    history_messages  maximum messages of history shown to the model
    compact_turns     number of newest turns that compaction leaves as they are
    tries             tries of a message before it is given up
    sends             tries of a delivery before it is given up
    watch_seconds     time between two searches for expired sessions
    drain_seconds     time that turns in progress get to finish when the gateway stops
    """

    platforms: Mapping[str, PlatformSettings] = {}
    meanwhile: DuringTurn = "queue"
    gather_seconds: float = 0.0
    turns: int = 64
    history_tokens: int | None = None
    history_messages: int = 500
    compact_turns: int = 4
    tries: int = 5
    sends: int = 8
    watch_seconds: float = 300
    drain_seconds: float = 30

    def __post_init__(self) -> None:
        for name in ("turns", "tries", "sends", "history_messages", "compact_turns"):
            if getattr(self, name) < 1:
                raise _invalid(name, getattr(self, name), "Use a whole number above 0.")
        if not 0 < self.watch_seconds < float("inf"):
            raise _invalid("watch_seconds", self.watch_seconds, "Use a number of seconds above 0.")
        for name in ("gather_seconds", "drain_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise _invalid(name, getattr(self, name), "Use 0 or a positive number of seconds.")

    def of(self, platform: str) -> PlatformSettings:
        """Return the settings of a platform, or the defaults."""
        return self.platforms.get(platform, PlatformSettings())


def _invalid(name: str, value: object, hint: str) -> ConfigError:
    return ConfigError(f"{name} cannot be {value!r}.", hint=hint, field=name)
