"""Tokens and cost of model calls."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

from tertulia.core import validate
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

CostStatus = Literal["unknown", "estimated", "actual", "included"]

# From the least certain status of a cost to the most certain. A sum has the status of its least
# certain part.
STATUSES: tuple[CostStatus, ...] = ("unknown", "estimated", "actual", "included")

# Money is added up as whole billionths of a dollar: sums of floats drift.
NANO = 1_000_000_000

_COUNT_LIMIT = 2**53
_COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning", "last_prompt")
_TEXTS = ("model", "provider", "base_url", "cost_source")


class _CallDetails(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    cost_usd: float | None = None
    cost_status: CostStatus | None = None
    cost_source: str | None = None
    last_prompt: int | None = None


class Usage(_CallDetails, frozen=True):
    """The tokens and the cost of one model call, or the sum of many.

    `input` counts the prompt tokens that were neither read from nor written to a cache; `reasoning`
    is the number of output tokens that were reasoning. So `total` adds the first four. A cost of
    None is unknown, never free.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        # Written out and without calls: a list of sessions makes one of these for each, and a loop
        # over the names takes six times as long.
        a, b, c, d, e = self.input, self.output, self.cache_read, self.cache_write, self.reasoning
        last = 0 if self.last_prompt is None else self.last_prompt
        if not (
            type(a) is type(b) is type(c) is type(d) is type(e) is type(last) is int
            # Of numbers that are not negative, `|` has the highest bit of the highest one.
            and 0 <= a | b | c | d | e | last < _COUNT_LIMIT
        ):
            self._refuse_counts()
        status: object = self.cost_status
        if status is not None and (type(status) is not str or status not in STATUSES):
            validate.choice("cost_status", status, STATUSES)
        if not (self.model is self.provider is self.base_url is self.cost_source is None):
            self._check_texts()
        if self.cost_usd is not None and not _is_money(self.cost_usd):
            raise ConfigError(
                f"cost_usd is {short_repr(self.cost_usd)}.",
                hint="Give dollars, 0 or more, or None if the cost is unknown.",
                field="cost_usd",
            )

    def _refuse_counts(self) -> None:
        for name in _COUNTS:
            count = getattr(self, name)
            if count is None and name == "last_prompt":
                continue
            if type(count) is not int or not 0 <= count < _COUNT_LIMIT:
                raise ConfigError(
                    f"{name} is {short_repr(count)}.",
                    hint="Give a count of tokens, 0 or more.",
                    field=name,
                )

    def _check_texts(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ConfigError(f"{name} is {short_repr(value)}.", hint="Give text.", field=name)

    @property
    def total(self) -> int:
        """Return all tokens; reasoning tokens are a part of the output."""
        return self.input + self.output + self.cache_read + self.cache_write


def _is_money(dollars: object) -> bool:
    if isinstance(dollars, bool) or (isinstance(dollars, Decimal) and not dollars.is_finite()):
        return False
    return isinstance(dollars, int | float | Decimal) and 0 <= dollars < 1e9


def weakest_status(first: str | None, second: str | None) -> CostStatus | None:
    """Return the status of the sum of two costs; None means that there is no cost yet."""
    for status in STATUSES:
        if status in (first, second):
            return status
    return None


def to_nano(dollars: float | Decimal | None) -> int | None:
    """Convert dollars to billionths of a dollar."""
    return None if dollars is None else round(Decimal(str(dollars)) * NANO)


def from_nano(nano: int | None) -> float | None:
    """Convert billionths of a dollar to dollars."""
    return None if nano is None else nano / NANO
