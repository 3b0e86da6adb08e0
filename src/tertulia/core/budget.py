"""Limits on cost and tokens, checked before a model is called."""

from __future__ import annotations

from typing import Literal

import msgspec

from tertulia.core import validate
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

Per = Literal["session", "person", "platform", "everyone"]
Period = Literal["day", "month", "ever"]
PERS: tuple[Per, ...] = ("session", "person", "platform", "everyone")
PERIODS: tuple[Period, ...] = ("day", "month", "ever")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit in dollars, in tokens, or in both, for each session, person or platform, or for all.

    Calls with an unknown price count as tokens only: for a strict limit, set one in tokens.
    The limit of a session covers its whole life.

    per      whose usage is added up: each session, person or platform, or all together
    period   for how long it is added up
    usd      the limit in dollars
    tokens   the limit in tokens
    only     the one session, person or platform that this limit is for; default: each of them
    """

    per: Per
    period: Period = "day"
    usd: float | None = None
    tokens: int | None = None
    only: str | None = None

    def __post_init__(self) -> None:
        validate.choice("per", self.per, PERS)
        validate.choice("period", self.period, PERIODS)
        validate.text("only", self.only, optional=True)
        if self.usd is None and self.tokens is None:
            raise ConfigError("The budget has no limit.", hint="Give usd, tokens, or both.")
        for name, limit in (("usd", self.usd), ("tokens", self.tokens)):
            if limit is None:
                continue
            validate.number(name, limit)
            if limit < 0:
                raise ConfigError(
                    f"{name} is {short_repr(limit)}.",
                    hint="Give 0 or more; 0 allows nothing.",
                    field=name,
                )

    def reached_limit(self, tokens: int, dollars: float) -> str | None:
        """Describe the limit that is reached; None while something is left."""
        if self.tokens is not None and tokens >= self.tokens:
            return f"{tokens:,} of {self.tokens:,} tokens"
        if self.usd is not None and dollars >= self.usd:
            return f"{format_limit(dollars)} of {format_limit(self.usd)}"
        return None

    def describe_rest(self, tokens: int, dollars: float) -> str:
        """Describe how much of each limit is left."""
        parts = []
        if self.usd is not None:
            parts.append(
                f"{format_limit(max(0.0, self.usd - dollars))} of {format_limit(self.usd)}"
            )
        if self.tokens is not None:
            parts.append(f"{max(0, self.tokens - tokens):,} of {self.tokens:,} tokens")
        return ", ".join(parts)


def format_limit(dollars: float) -> str:
    """Return an amount in dollars, with as many decimals as amounts under a cent need."""
    if dollars == 0 or dollars >= 0.01:
        return f"${dollars:,.2f}"
    return f"${dollars:.6f}".rstrip("0")
