"""Metrics of a gateway: turns, their duration, and the usage of model calls."""

from __future__ import annotations

from typing import Protocol

from tertulia.core.usage import Usage


class Metrics(Protocol):
    """Counts turns when they end, and model calls when their usage is stored."""

    def turn_ended(self, platform: str, outcome: str, seconds: float) -> None: ...

    def usage_stored(self, platform: str, usage: Usage) -> None: ...


class NullMetrics:
    """Counts nothing."""

    def turn_ended(self, platform: str, outcome: str, seconds: float) -> None:
        return

    def usage_stored(self, platform: str, usage: Usage) -> None:
        return
