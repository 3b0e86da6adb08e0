"""Exponential back-off: how long to wait before an attempt is repeated."""

from __future__ import annotations

import random
from typing import Final

import msgspec

# For pauses, not for secrets. A generator of its own: a library must not draw from that of the
# program, whose numbers may have to be the same in every run.
JITTER: Final = random.Random()  # noqa: S311


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that double from `first` up to `longest` seconds.

    Jitter takes off up to half of each delay, so that attempts that failed together are not
    repeated together.
    """

    first: float
    longest: float

    def delay(self, attempts: int, chance: float) -> float:
        """Return the seconds to wait after `attempts` attempts; `chance` is random, 0 to 1."""
        # The exponent is bounded: a larger one overflows, and `longest` is reached long before.
        doubled = self.first * 2.0 ** min(attempts - 1, 60)
        return min(self.longest, doubled) * (1 - chance / 2)
