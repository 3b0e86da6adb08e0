"""Metrics of a gateway: turns, their duration, and the usage of model calls."""

from __future__ import annotations

from typing import Protocol

from tertulia.core.usage import Usage


class Metrics(Protocol):
    """Counts turns when they end, and model calls when their usage is stored."""

    def turned(self, platform: str, outcome: str, seconds: float) -> None: ...

    def spent(self, platform: str, usage: Usage) -> None: ...


class NullMetrics:
    """Counts nothing."""

    def turned(self, platform: str, outcome: str, seconds: float) -> None:
        return

    def spent(self, platform: str, usage: Usage) -> None:
        return
