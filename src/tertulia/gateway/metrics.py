"""What a gateway counts: turns, how long they took, and what they used."""

from __future__ import annotations

from typing import Protocol

from tertulia.core.usage import Usage


class Metrics(Protocol):
    """Told of each turn when it is over, and of each model call when it is stored."""

    def turned(self, platform: str, outcome: str, seconds: float) -> None: ...

    def spent(self, platform: str, usage: Usage) -> None: ...


class NullMetrics:
    """Nobody counts."""

    def turned(self, platform: str, outcome: str, seconds: float) -> None:
        return

    def spent(self, platform: str, usage: Usage) -> None:
        return
