"""How a gateway behaves; frozen values, read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tertulia.errors import ConfigError

Admission = Literal["everyone", "paired", "nobody"]
"""Who may write in private: anybody, those whom the owner let in, or only the allow list."""

Groups = Literal["mention", "always", "never"]
"""When a group is answered: if the agent is addressed, at every message, or not at all."""

Meanwhile = Literal["queue", "interrupt", "steer"]
"""What a message does that comes during a turn: wait, end the turn, or be taken into it."""


class PlatformSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is answered on one platform. `allow` names people by their id, whatever else is set."""

    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway behaves.

    platforms         who is answered where; a platform that is not named gets the defaults
    meanwhile         what a message does that comes during a turn
    gather_seconds    what a person writes in a row within so long is answered together
    turns             how many turns may be under way at once on this node
    history_tokens    how much of the past the model is shown
    history_messages  the same in messages
    compact_turns     how many turns stay word by word when a conversation is summed up
    tries             how often a message is tried before it is given up
    sends             how often a delivery is tried before it is given up
    watch_seconds     how often sessions are looked for that their policy ends
    drain_seconds     how long turns may go on when the gateway is told to stop
    """

    platforms: Mapping[str, PlatformSettings] = {}
    meanwhile: Meanwhile = "queue"
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
                raise _wrong(name, getattr(self, name), "Give a whole number above 0.")
        if not 0 < self.watch_seconds < float("inf"):
            raise _wrong("watch_seconds", self.watch_seconds, "Give a number of seconds above 0.")
        for name in ("gather_seconds", "drain_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise _wrong(name, getattr(self, name), "Give a number of seconds, or 0.")

    def of(self, platform: str) -> PlatformSettings:
        return self.platforms.get(platform, PlatformSettings())


def _wrong(name: str, value: object, hint: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}.", hint=hint, field=name)
