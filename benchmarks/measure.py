"""Timing: every contestant in turn, round after round, and medians of what came out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

Seconds = float

# A lone commit takes 0.2 to 0.5 ms where the disk is a local one and nothing else runs.
BUSY_COMMIT = 0.0015


class GaveUpError(Exception):
    """A contestant cannot go on; the others do without it."""


class Contestant(Protocol):
    """Something whose operation is timed.

    1. `burst` times each operation alone. It does as many as asked, unless the contestant is so
       slow that the others would have to wait long.
    2. `rest` lets work that goes on behind the operation finish, so that it cannot disturb whoever
       is next.
    """

    @property
    def name(self) -> str: ...

    def burst(self, times: int) -> list[Seconds]: ...

    def rest(self) -> None: ...


@dataclass(slots=True)
class Operation:
    """A contestant in this process."""

    name: str
    call: Callable[[], object]
    afterwards: Callable[[], object] | None = None

    def burst(self, times: int) -> list[Seconds]:
        return timed(self.call, times)

    def rest(self) -> None:
        if self.afterwards is not None:
            self.afterwards()


@dataclass(slots=True)
class Samples:
    """What one contestant needed: for the first operation ever, then burst by burst."""

    first: Seconds = 0.0
    bursts: list[list[Seconds]] = field(default_factory=list)
    resting: list[Seconds] = field(default_factory=list)
    gave_up: str = ""

    @property
    def all(self) -> list[Seconds]:
        return [seconds for burst in self.bursts for seconds in burst]

    @property
    def median(self) -> Seconds:
        return statistics.median(self.all)

    @property
    def p99(self) -> Seconds:
        return percentile(self.all, 0.99)

    @property
    def worst(self) -> Seconds:
        return max(self.all)

    @property
    def stall(self) -> Seconds:
        """The typical worst case: the median over all bursts of the slowest operation in each.

        What happens in every burst counts in full; a single hiccup of the machine does not.
        """
        return statistics.median(max(burst) for burst in self.bursts)

    @property
    def sustained(self) -> Seconds:
        """Time per operation when the work behind it is counted as well."""
        return (sum(self.all) + sum(self.resting)) / len(self.all)

    def only(self, rounds: Sequence[int]) -> Samples:
        """Those rounds, or all where the contestant was in none of them."""
        kept = [number for number in rounds if number < len(self.bursts)]
        if not kept:
            return self
        return Samples(
            self.first,
            [self.bursts[number] for number in kept],
            [self.resting[number] for number in kept],
            self.gave_up,
        )


def timed(call: Callable[[], object], times: int) -> list[Seconds]:
    clock = time.perf_counter
    found = []
    for _ in range(times):
        start = clock()
        call()
        found.append(clock() - start)
    return found


def interleave(
    contestants: Sequence[Contestant], *, rounds: int, times: int, budget: Seconds = 20.0
) -> dict[str, Samples]:
    """A B C A B C …: one burst of each per round, after one operation of each to warm up.

    A contestant that has used up its budget sits out the remaining rounds, with what it has.
    """
    found = {contestant.name: Samples() for contestant in contestants}
    for contestant in contestants:
        _attempt(contestant, found[contestant.name], _warm_up)
    for _ in range(rounds):
        for contestant in contestants:
            samples = found[contestant.name]
            if not samples.gave_up and sum(samples.all) <= budget:
                _attempt(contestant, samples, partial(_burst, times=times))
    return found


def was_disturbed(raw: Samples) -> bool:
    """Whether raw commits had to wait for something else; checkpoints alone are one in 200."""
    waited = sum(seconds > BUSY_COMMIT for seconds in raw.all)
    return waited > 0.01 * len(raw.all)


def calm(found: dict[str, Samples], yardstick: str) -> dict[str, Samples]:
    """The rounds in which the yardstick was not disturbed; all contestants lose the same rounds.

    When something else kept the machine busy, every commit waited for it, and a ratio of two waits
    says that all stores are alike. Nothing is chosen by how the store under test did.
    """
    medians = [statistics.median(burst) for burst in found[yardstick].bursts]
    usual = percentile(medians, 0.2)
    kept = [number for number, median in enumerate(medians) if median <= 1.5 * usual]
    return {name: samples.only(kept) for name, samples in found.items()}


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _attempt(
    contestant: Contestant, samples: Samples, step: Callable[[Contestant, Samples], None]
) -> None:
    try:
        step(contestant, samples)
    except GaveUpError as problem:
        samples.gave_up = str(problem)


def _warm_up(contestant: Contestant, samples: Samples) -> None:
    samples.first = contestant.burst(1)[0]


def _burst(contestant: Contestant, samples: Samples, times: int) -> None:
    samples.bursts.append(contestant.burst(times))
    start = time.perf_counter()
    contestant.rest()
    samples.resting.append(time.perf_counter() - start)
